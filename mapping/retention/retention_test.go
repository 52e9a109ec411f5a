package retention_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/exemplars"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/mapping/retention"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

func rows(t *testing.T, st store.Store, table string) (keys []string) {
	t.Helper()
	for row, err := range st.Scan(t.Context(), store.Scan{Table: table}) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, fmt.Sprintf("%x", row.Key))
	}
	return keys
}

func TestDrop_RemovesTheHoursBefore(t *testing.T) {
	for _, asked := range []map[string]string{nil, {catalog.SaltWidth: "1", catalog.SaltBuckets: "3"}} {
		st := storetest.NewMem()
		s, _, err := catalog.Init(t.Context(), st, "promtsd", asked)
		if err != nil {
			t.Fatal(err)
		}
		const hour = mapping.HourMs
		limit := int64(1000*hour + 5)
		var b store.Batch
		var want []string
		for metric := mapping.UID(1); metric <= 0xffffff; metric = metric*16 + 15 {
			for series := mapping.UID(1); series <= 3; series++ {
				tsuid := s.Schema.AppendTSUID(nil, metric, []mapping.Tag{{Key: 1, Value: series}})
				for _, h := range []int64{0, 990, 999, 1000, 1001} {
					row := s.Schema.AppendRowKey(nil, tsuid, mapping.BaseTime(h*hour))
					b.Put(s.Tables.Data, row, catalog.FamilyData, []byte{0, 0}, 1, []byte{1})
					if h >= 1000 {
						want = append(want, fmt.Sprintf("%x", row))
					}
				}
			}
		}
		odd := []byte{0}
		b.Put(s.Tables.Data, odd, catalog.FamilyData, []byte{0, 0}, 1, []byte{1}) // no data row
		want = append(want, "00")
		if err := st.Apply(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		ranges, err := retention.Drop(t.Context(), st, s, limit)
		if err != nil || ranges == 0 {
			t.Fatalf("dropped %d ranges, %v", ranges, err)
		}
		slices.Sort(want)
		if got := rows(t, st, s.Tables.Data); !slices.Equal(got, want) {
			t.Errorf("%v: left are %q, want %q", asked, got, want)
		}
		if again, err := retention.Drop(t.Context(), st, s, limit); err != nil || again != 0 {
			t.Errorf("a second time it dropped %d ranges, %v, want none", again, err)
		}
	}
}

func TestDrop_RemovesTheExemplarsOfTheHoursBefore(t *testing.T) {
	st := storetest.NewMem()
	s, _, err := catalog.Init(t.Context(), st, "promtsd", map[string]string{catalog.SaltWidth: "1"})
	if err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	var w exemplars.Writer
	var left []string
	for _, metric := range []mapping.UID{1, 2, 0xffffff} {
		for series := mapping.UID(1); series <= 2; series++ {
			tsuid := s.Schema.AppendTSUID(nil, metric, []mapping.Tag{{Key: 1, Value: series}})
			for _, h := range []int64{0, 999, 1000, 1001} {
				w.Put(&b, s.Tables.Exemplars(), exemplars.NewRows(s.Schema), tsuid,
					request.Exemplar{T: h*mapping.HourMs + 5}, 1)
				if h >= 1000 {
					left = append(left, fmt.Sprintf("%x", b.At(b.Len()-1).Row))
				}
			}
		}
	}
	if err := st.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if ranges, err := retention.Drop(t.Context(), st, s, 1000*mapping.HourMs+5); err != nil || ranges != 3 {
		t.Errorf("dropped %d ranges, %v, want one of each metric", ranges, err)
	}
	slices.Sort(left)
	if got := rows(t, st, s.Tables.Exemplars()); !slices.Equal(got, left) {
		t.Errorf("left are %q, want %q", got, left)
	}
}

func TestDropDays_RemovesTheDaysBeforeFromTheIndex(t *testing.T) {
	st := storetest.NewMem()
	s, _, err := catalog.Init(t.Context(), st, "promtsd", nil)
	if err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	w := index.Writer{Tables: s.Tables}
	for _, day := range []mapping.Day{0, 1, 99, 100, 101} {
		w.PutDay(&b, []byte("tsuid"), day, 1, nil)
	}
	if err := st.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if err := retention.DropDays(t.Context(), st, s, 100*24*mapping.HourMs+7); err != nil {
		t.Fatal(err)
	}
	if got := rows(t, st, s.Tables.System); len(got) != 3 { // the settings, and two days
		t.Errorf("left are %q, want the settings and two days", got)
	}
}

func TestDrop_SaysThatAStoreCannotDoIt(t *testing.T) {
	if _, err := retention.Drop(t.Context(), struct{ store.Store }{}, catalog.Default(), 1<<40); !errors.Is(err,
		retention.ErrNotSupported) {
		t.Errorf("got %v, want ErrNotSupported", err)
	}
	if err := retention.DropDays(t.Context(), struct{ store.Store }{}, catalog.Default(), 1<<40); !errors.Is(err,
		retention.ErrNotSupported) {
		t.Errorf("got %v, want ErrNotSupported", err)
	}
}
