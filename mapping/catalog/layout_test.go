package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

// wishes is a store that notes how its tables are made.
type wishes struct {
	store.Store
	made map[string]store.Table
}

func (w *wishes) CreateTable(ctx context.Context, t store.Table) error {
	w.made[t.Name] = t
	return w.Store.CreateTable(ctx, t)
}

func TestLayout_OnlyTheDataTableIsSplitAndForgets(t *testing.T) {
	buckets := func(width string, n int) map[string]string {
		return map[string]string{catalog.SaltWidth: width, catalog.SaltBuckets: fmt.Sprint(n)}
	}
	for _, c := range []struct {
		name   string
		layout catalog.Layout
		asked  map[string]string
		splits []string // hex; of many the first two and the last
		count  int
	}{
		{"zero", catalog.Layout{}, nil, nil, 0},
		{"unsalted", catalog.Layout{Regions: 4}, nil, []string{"0001f5", "0003e9", "0005dd"}, 3},
		{"as many as metrics", catalog.Layout{Regions: 2500}, nil, []string{"000002", "000003", "0007d0"}, 1999},
		{
			"metrics of one byte", catalog.Layout{Regions: 300}, map[string]string{catalog.MetricWidth: "1"},
			[]string{"02", "03", "ff"}, 254,
		},
		{"a region a bucket", catalog.Layout{}, buckets("1", 4), []string{"01", "02", "03"}, 3},
		{"fewer regions than buckets", catalog.Layout{Regions: 3}, buckets("1", 20), []string{"06", "0d"}, 2},
		{"more regions than buckets", catalog.Layout{Regions: 30}, buckets("1", 3), []string{"01", "02"}, 2},
		{"one bucket", catalog.Layout{}, buckets("1", 1), nil, 0},
		{"every bucket of a byte", catalog.Layout{}, buckets("1", 256), []string{"01", "02", "ff"}, 255},
		{"two bytes", catalog.Layout{Regions: 300}, buckets("2", 300), []string{"0001", "0002", "012b"}, 299},
		{"very many buckets", catalog.Layout{}, buckets("4", 1<<31-1), []string{"007fffff", "00ffffff", "7f7fffff"}, 255},
		{"retention", catalog.Layout{Retention: 90 * 24 * time.Hour}, nil, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := &wishes{storetest.NewMem(), map[string]store.Table{}}
			if _, _, err := c.layout.Init(t.Context(), st, own, c.asked); err != nil {
				t.Fatal(err)
			}
			data := st.made["tsdb"]
			var splits []string
			for i, s := range data.Splits {
				if i < 2 || i == len(data.Splits)-1 {
					splits = append(splits, fmt.Sprintf("%x", s))
				}
			}
			if fmt.Sprint(splits) != fmt.Sprint(c.splits) || len(data.Splits) != c.count {
				t.Errorf("%d splits, such as %q; want %d, %q", len(data.Splits), splits, c.count, c.splits)
			}
			if data.Retention != c.layout.Retention {
				t.Errorf("retention of the data table: got %v, want %v", data.Retention, c.layout.Retention)
			}
			for _, name := range []string{"tsdb-uid", "tsdb-meta", own} {
				if other := st.made[name]; len(other.Splits) > 0 || other.Retention != 0 {
					t.Errorf("table %s has splits %x and retention %v, want none", name, other.Splits, other.Retention)
				}
			}
		})
	}
}

func TestLayout_JournalsOfWritersAreSpread(t *testing.T) {
	st := &wishes{storetest.NewMem(), map[string]store.Table{}}
	if _, _, err := catalog.Init(t.Context(), st, own, nil); err != nil {
		t.Fatal(err)
	}
	journal := st.made[own+"-journal"]
	if got, want := fmt.Sprintf("%x", journal.Splits), "[20 40 60 80 a0 c0 e0]"; got != want || !journal.Log {
		t.Errorf("the journal's table is split at %s, want %s: %+v", got, want, journal)
	}
}

func TestLayout_RefusesWhatNoTableCanHave(t *testing.T) {
	for _, layout := range []catalog.Layout{
		{Regions: -1},
		{Regions: catalog.MaxRegions + 1},
		{Retention: -time.Hour},
		{Retention: time.Millisecond},
		{Retention: catalog.MaxRetention + 1},
	} {
		st := storetest.NewMem()
		if _, _, err := layout.Init(t.Context(), st, own, nil); !errors.Is(err, mapping.ErrInvalid) {
			t.Errorf("Init with %+v: got %v, want ErrInvalid", layout, err)
		}
		if tables, err := st.Tables(t.Context()); err != nil || len(tables) > 0 {
			t.Errorf("Init with %+v left tables %v, %v", layout, tables, err)
		}
	}
}
