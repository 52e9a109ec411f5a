package uid_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/store"
)

// faultAt fails call n of those it counts, the first being 0.
type faultAt struct {
	n, calls int
}

func (f *faultAt) fail(context.Context, call) error {
	f.calls++
	if f.calls-1 == f.n {
		return errFault
	}
	return nil
}

// TestAssign_AnyStoreCallMayFail lets each store call of an assignment fail once: before it had an effect, after it, or
// half-way. The assignment is as hard as can be: an id is in use, and another process wins the race for a name.
func TestAssign_AnyStoreCallMayFail(t *testing.T) {
	names := []uid.Name{tagv("old"), tagv("a"), tagv("raced"), tagv("b"), tagv("c")}
	for _, when := range []string{"before", "half", "after"} {
		for n := 0; ; n++ {
			st := newFake()
			rival := newRegistry(t, config(st))
			old := assign(t, rival, tagv("old"))[0]
			st.put("\x00\x00\x03", "name", "tagv", "in use")

			fault := &faultAt{n: n}
			raced := false
			inner := &tapped{Store: st, before: func(_ context.Context, c call) error {
				if c == (call{"check", "id"}) && !raced {
					raced = true
					assign(t, rival, tagv("raced"))
				}
				return nil
			}}
			outer := &tapped{Store: inner, before: fault.fail, half: when == "half"}
			if when == "after" {
				outer.before, outer.after = nil, fault.fail
			}
			r := newRegistry(t, config(outer))

			results, err := r.Assign(t.Context(), names)
			what := fmt.Sprintf("fault %s call %d", when, n)
			hit := fault.calls > n
			if hit != (err != nil) || (hit && !errors.Is(err, store.ErrUnavailable)) {
				t.Fatalf("%s: Assign: %v, want an error: %v", what, err, hit)
			}
			// What the failed call has put into the caches must be the truth.
			for _, name := range names {
				if id, ok := r.CachedUID(name.Kind, name.Text); ok {
					want := lookup(t, newRegistry(t, config(st)), name)
					wantEqual(t, what+": cached UID of "+name.Text, []mapping.UID{id}, want[0])
				}
			}
			uids := assign(t, r, names...)
			if err == nil {
				for i := range uids {
					wantEqual(t, what+": UID of the second call", uids[i], results[i].UID)
				}
			}
			wantEqual(t, what+": old UID", uids[0], old)
			wantEqual(t, what+": UIDs of another process", assign(t, newRegistry(t, config(st)), names...), uids)
			wantEqual(t, what+": UIDs of the rival", assign(t, rival, names...), uids)
			wantEqual(t, what+": cell in use", st.get("\x00\x00\x03", "name", "tagv"), "in use")
			sorted := slices.Sorted(slices.Values(uids))
			if len(slices.Compact(sorted)) != len(names) {
				t.Errorf("%s: UIDs %v are not distinct", what, uids)
			}
			for i, text := range texts(t, newRegistry(t, config(st)), idsOf(mapping.Tagv, uids)...) {
				wantEqual(t, what+": name of the UID", text, uid.Text{Text: names[i].Text, OK: true})
			}
			checkTable(t, st)
			if !hit {
				if n < 7 {
					t.Errorf("%s: only %d calls, the races were not met", what, n)
				}
				break
			}
		}
	}
}

func TestLookupsReportFaultsAndRecover(t *testing.T) {
	st := newFake()
	assign(t, newRegistry(t, config(st)), metric("up"))
	for _, after := range []bool{false, true} {
		fault := &faultAt{}
		c := config(&tapped{Store: st, before: fault.fail})
		if after {
			c = config(&tapped{Store: st, after: fault.fail})
		}
		r := newRegistry(t, c)
		if _, err := r.Lookup(t.Context(), []uid.Name{metric("up")}); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("Lookup: %v, want ErrUnavailable", err)
		}
		fault.n, fault.calls = 0, 0
		ids := []uid.ID{{Kind: mapping.Metric, UID: 1}}
		if _, err := r.Texts(t.Context(), ids); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("Texts: %v, want ErrUnavailable", err)
		}
		wantEqual(t, "Lookup", lookup(t, r, metric("up")), [][]mapping.UID{{1}})
		wantEqual(t, "Texts", texts(t, r, ids...), []uid.Text{{Text: "up", OK: true}})
	}
}

func idsOf(kind mapping.Kind, uids []mapping.UID) []uid.ID {
	ids := make([]uid.ID, len(uids))
	for i, u := range uids {
		ids[i] = uid.ID{Kind: kind, UID: u}
	}
	return ids
}
