package ingest_test

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

func indexRows(t testing.TB, st store.Store) (rows []string) {
	cells := dump(t, st, "tsdb-meta", "promtsd")
	for _, line := range regexp.MustCompile(`"row":"([0-9a-f]+)"`).FindAllStringSubmatch(cells, -1) {
		if line[1] != fmt.Sprintf("%x", "settings") && line[1] != fmt.Sprintf("%x", "ahead") {
			rows = append(rows, line[1])
		}
	}
	return slices.Compact(rows)
}

func TestAppend_IndexRowsComeWithTheFirstSampleOfADayOnly(t *testing.T) {
	spy := &spy{Store: storetest.NewMem()}
	db := open(t, spy, nil, nil)
	labels := raw("__name__", "m", "a", "b")
	for _, c := range []struct {
		times []int64
		want  string
	}{
		{[]int64{now}, "tsdb-meta promtsd tsdb"},
		{[]int64{now}, "tsdb"},
		{[]int64{now + 1, now + mapping.HourMs}, "tsdb tsdb"},
		{[]int64{now + day, now + day + 1}, "promtsd tsdb tsdb"},
		{[]int64{now, now + day}, "tsdb tsdb"},
		{[]int64{now - 3*day, now}, "promtsd tsdb tsdb"},
		{[]int64{now - 3*day}, "tsdb"},
		{[]int64{now - 70*day}, "promtsd tsdb"}, // too long ago to be remembered
		{[]int64{now - 70*day}, "promtsd tsdb"},
		{[]int64{now + 200*day}, "promtsd tsdb"},
	} {
		spy.seen = nil
		db.clock.Store(now + 300*day)
		var samples []request.Sample
		for _, at := range c.times {
			samples = append(samples, sample(at, 1))
		}
		db.append(t, labels, samples...)
		if got := strings.Join(spy.seen, "; "); got != c.want {
			t.Errorf("samples at %v: the batches hold %s, want %s", c.times, got, c.want)
		}
	}
}

func TestAppend_IndexRowsAreWrittenAgainAfterAFailure(t *testing.T) {
	for _, when := range []storetest.When{storetest.Before, storetest.After} {
		mem := storetest.NewMem()
		spy := &spy{Store: storetest.Faulty(mem, storetest.Fault{Verb: storetest.Apply, Call: 1, When: when},
			storetest.Fault{Verb: storetest.Apply, Call: 3, When: when})}
		db := open(t, spy, nil, nil)
		var req request.Write
		add(&req, raw("__name__", "m", "a", "b"), sample(now, 1))
		var later request.Write
		add(&later, raw("__name__", "m", "a", "b"), sample(now-day, 2), sample(now, 2))
		for i, c := range []struct {
			req  *request.Write
			fail bool
			want string
		}{
			{&req, true, "tsdb-meta promtsd tsdb"},
			{&req, false, "tsdb-meta promtsd tsdb"},
			{&later, true, "promtsd tsdb tsdb"},
			{&later, false, "promtsd tsdb tsdb"},
			{&later, false, "tsdb tsdb"},
		} {
			spy.seen = nil
			got, err := db.Append(t.Context(), c.req)
			if c.fail && (!errors.Is(err, store.ErrUnavailable) || got.Written != 0) || !c.fail && err != nil {
				t.Errorf("request %d: got %+v, %v", i, got, err)
			}
			if got := strings.Join(spy.seen, "; "); got != c.want {
				t.Errorf("request %d: the batches hold %s, want %s", i, got, c.want)
			}
		}
		want := []string{"000001000001000001", "645129000001000001000001", "64512a000001000001000001"}
		if got := indexRows(t, mem); !slices.Equal(got, want) {
			t.Errorf("index rows %v, want %v", got, want)
		}
		samples := read(t, mem, db.settings.Schema)["000001000001000001"]
		if want := fmt.Sprint(map[int64]float64{now: 2, now - day: 2}); fmt.Sprint(samples) != want {
			t.Errorf("the samples are %v, want %s", samples, want)
		}
	}
}

func TestAppend_AfterAnyCallFailedTheRequestMayBeSentAgain(t *testing.T) {
	req := request.Write{}
	add(&req, raw("__name__", "m", "a", "b"), sample(now, 1), sample(now+1, 2))
	add(&req, raw("__name__", "m", "a", "c"), sample(now, 3))
	for _, when := range []storetest.When{storetest.Before, storetest.Midway, storetest.After} {
		for call := 1; ; call++ {
			mem := storetest.NewMem()
			open(t, mem, nil, nil)                                                       // makes the tables
			faulty := storetest.Faulty(mem, storetest.Fault{Call: call + 1, When: when}) // the first is the read of the settings
			db := open(t, faulty, nil, nil)
			got, err := db.Append(t.Context(), &req)
			if faulty.Calls(storetest.Any) <= call {
				if call < 6 || err != nil {
					t.Errorf("Append ended after %d calls with %v", call-1, err)
				}
				break
			}
			if !errors.Is(err, store.ErrUnavailable) || got.Written != 0 {
				t.Fatalf("call %d failing: got %+v, %v, want ErrUnavailable", call, got, err)
			}
			if got, err = db.Append(t.Context(), &req); err != nil || got.Written != 3 {
				t.Fatalf("after call %d had failed: got %+v, %v", call, got, err)
			}
			data := read(t, mem, db.settings.Schema)
			if len(data) != 2 || len(indexRows(t, mem)) != 4 {
				t.Errorf("after call %d had failed: %v, index rows %v", call, data, indexRows(t, mem))
			}
			for _, samples := range data {
				first, second := map[int64]float64{now: 1, now + 1: 2}, map[int64]float64{now: 3}
				if !maps.Equal(samples, first) && !maps.Equal(samples, second) {
					t.Errorf("after call %d had failed: a series has %v", call, samples)
				}
			}
		}
	}
}
