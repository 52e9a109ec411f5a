package index_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	promindex "github.com/prometheus/prometheus/tsdb/index"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/index"
)

func TestCardinality_CountsAsPrometheus(t *testing.T) {
	for schema, asked := range schemas {
		t.Run(schema, func(t *testing.T) {
			db := newDatabase(t, asked)
			postings := promindex.NewMemPostings()
			const series = 200
			for i := range series {
				metric, job, host := fmt.Sprint("m", i%7), fmt.Sprint("j", i%3), fmt.Sprint("h", i%31)
				tsuid := db.tsuid(metric, "job", job, "host", host, "id", fmt.Sprint(i))
				switch i % 3 {
				case 0:
					db.write(tsuid, noon)
				case 1:
					db.write(tsuid, noon+day)
				default: // it is counted once
					db.write(tsuid, noon, noon+day)
				}
				ls := labels.FromStrings("__name__", metric, "job", job, "host", host, "id", fmt.Sprint(i))
				postings.Add(storage.SeriesRef(i), ls)
			}
			db.write(db.tsuid("old", "job", "j0"), noon-day)
			db.write(db.tsuid(mapping.NoMetric, "job", "j0"), noon)
			postings.Add(series, labels.FromStrings("job", "j0"))
			db.write(db.tsuid("bare", mapping.NoTagk, mapping.NoTagv), noon)
			postings.Add(series+1, labels.FromStrings("__name__", "bare"))
			_, memory := db.memory(1000)
			for path, r := range map[string]*index.Reader{"memory": memory, "store": db.reader(true),
				"row keys": db.reader(false)} {
				for _, most := range []int{1, 5, 1000} {
					got, _, err := r.Cardinality(t.Context(), noon, noon+day, index.Limits{Series: 1}, most)
					if err != nil {
						t.Fatal(err)
					}
					want := postings.Stats("__name__", 1000, labels.SizeOfLabels)
					if got.Series != series+2 || got.Pairs != want.NumLabelPairs {
						t.Errorf("%s: got %d series and %d pairs, want %d and %d", path, got.Series, got.Pairs, series+2,
							want.NumLabelPairs)
					}
					compareCounts(t, path+" metrics", got.SeriesByMetric, want.CardinalityMetricsStats, most)
					compareCounts(t, path+" values", got.ValuesByLabel, want.CardinalityLabelStats, most)
					compareCounts(t, path+" bytes", got.BytesByLabel, want.LabelValueStats, most)
					compareCounts(t, path+" pairs", got.SeriesByPair, want.LabelValuePairsStats, most)
				}
			}
		})
	}
}

func compareCounts(t *testing.T, what string, got []index.Count, stats []promindex.Stat, most int) {
	t.Helper()
	var want []index.Count
	for _, s := range stats {
		want = append(want, index.Count{Name: s.Name, N: s.Count})
	}
	slices.SortFunc(want, func(a, b index.Count) int { return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Name, b.Name)) })
	if want = want[:min(most, len(want))]; !slices.Equal(got, want) {
		t.Errorf("%s, at most %d:\n got %v\nwant %v", what, most, got, want)
	}
}

func TestCardinality_BoundsItsMemory(t *testing.T) {
	db := newDatabase(t, nil)
	for i := range 100 {
		db.write(db.tsuid("m", "id", fmt.Sprint(i)), noon)
	}
	_, memory := db.memory(1000)
	errMost := errors.New("no more")
	for path, r := range map[string]*index.Reader{"memory": memory, "store": db.reader(true)} {
		for most, want := range map[int64]error{1000: errMost, 20_000: nil} {
			taken := int64(0)
			limits := index.Limits{Take: func(bytes int64) error {
				if taken += bytes; taken > most {
					return errMost
				}
				return nil
			}}
			if _, _, err := r.Cardinality(t.Context(), noon, noon, limits, 10); !errors.Is(err, want) {
				t.Errorf("by %s in %d bytes: got %v", path, most, err)
			}
		}
	}
}
