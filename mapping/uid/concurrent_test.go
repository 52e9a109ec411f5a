package uid_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

// recorder keeps the calls of a tapped store.
type recorder struct {
	mu    sync.Mutex // guards calls
	calls []call
}

func (r *recorder) note(_ context.Context, c call) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, c)
	return nil
}

func (r *recorder) list() []call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// total is the sum of a metric over its labels and over some registries.
func total(t testing.TB, name string, regs ...*prometheus.Registry) float64 {
	t.Helper()
	var sum float64
	for _, reg := range regs {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != name {
				continue
			}
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func TestAssign_ManyProcessesAgree(t *testing.T) {
	const processes, workers, rounds, pool = 4, 4, 20, 300
	st := newFake()
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex // guards given
		given = make(map[uid.Name]mapping.UID)
		regs  []*prometheus.Registry
	)
	for p := range processes {
		reg := prometheus.NewRegistry()
		regs = append(regs, reg)
		c := config(st)
		c.Registerer = reg
		c.CacheEntries = 50 * (p + 1) // some forget much
		r := newRegistry(t, c)
		for w := range workers {
			random := rand.New(rand.NewPCG(uint64(p), uint64(w)))
			wg.Go(func() {
				for range rounds {
					names := make([]uid.Name, 1+random.IntN(40))
					for i := range names {
						text := fmt.Sprintf("name%d", random.IntN(pool))
						names[i] = uid.Name{Kind: mapping.Kind(random.IntN(3)), Text: text}
					}
					results, err := r.Assign(context.Background(), names)
					if err != nil {
						t.Errorf("Assign: %v", err)
						return
					}
					mu.Lock()
					for i, res := range results {
						if before, ok := given[names[i]]; ok && before != res.UID || res.Err != nil {
							t.Errorf("%v has UIDs %d and %d (%v)", names[i], before, res.UID, res.Err)
						}
						given[names[i]] = res.UID
					}
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()

	checkTable(t, st)
	fresh := newRegistry(t, config(st))
	for n, id := range given {
		wantEqual(t, fmt.Sprintf("Lookup(%v)", n), lookup(t, fresh, n), [][]mapping.UID{{id}})
		wantEqual(t, fmt.Sprintf("Texts(%d)", id), texts(t, fresh, uid.ID{Kind: n.Kind, UID: id}),
			[]uid.Text{{Text: n.Text, OK: true}})
	}
	counters := st.counter("metrics") + st.counter("tagk") + st.counter("tagv")
	assigned, lost := total(t, "promtsd_uid_assigned_total", regs...), total(t, "promtsd_uid_lost_races_total", regs...)
	wantEqual(t, "assigned", assigned, float64(len(given)))
	wantEqual(t, "ids taken from the counters", float64(counters), assigned+lost)
	t.Logf("%d names, %v ids lost in races", len(given), lost)
}

// gate holds up the first call of a verb until it is opened or the call's context ends.
type gate struct {
	verb string
	held atomic.Bool
	open chan struct{} // closed by the test
}

func newGate(verb string) *gate { return &gate{verb: verb, open: make(chan struct{})} }

func (g *gate) hold(ctx context.Context, c call) error {
	if c.verb != g.verb || g.held.Swap(true) {
		return nil
	}
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestAssign_SameNameAtTheSameTimeIsAssignedOnce(t *testing.T) {
	for _, verb := range []string{"get", "increment", "check"} {
		synctest.Test(t, func(t *testing.T) {
			st := newFake()
			g := newGate(verb)
			r := newRegistry(t, config(&tapped{Store: st, before: g.hold}))
			for range 20 {
				go func() {
					names := []uid.Name{metric("up"), tagk("job"), tagv("node"), tagv("node")}
					wantEqual(t, "UIDs", assign(t, r, names...), []mapping.UID{1, 1, 1, 1})
				}()
			}
			synctest.Wait() // all wait for the one that waits for the gate
			close(g.open)
			synctest.Wait()
			for _, kind := range []string{"metrics", "tagk", "tagv"} {
				wantEqual(t, "counter of "+kind, st.counter(kind), 1)
			}
		})
	}
}

func TestAssign_OtherNamesDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate("check")
		r := newRegistry(t, config(&tapped{Store: newFake(), before: g.hold}))
		slow := make(chan []mapping.UID, 1)
		go func() { slow <- assign(t, r, metric("slow"), tagv("shared")) }()
		synctest.Wait()
		wantEqual(t, "UID of the other", assign(t, r, metric("quick")), []mapping.UID{2})
		close(g.open)
		wantEqual(t, "UIDs of the slow", <-slow, []mapping.UID{1, 1})
	})
}

func TestAssign_OneCallerGivingUpFailsNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFake()
		g := newGate("check")
		r := newRegistry(t, config(&tapped{Store: st, before: g.hold}))
		ctx, cancel := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan []mapping.UID, 1)
		go func() {
			_, err := r.Assign(ctx, []uid.Name{metric("up")})
			first <- err
		}()
		synctest.Wait()
		go func() { second <- assign(t, r, metric("up")) }()
		synctest.Wait()
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("the caller that gave up: %v, want context.Canceled", err)
		}
		close(g.open)
		wantEqual(t, "the other's UID", <-second, []mapping.UID{1})
		wantEqual(t, "counter", st.counter("metrics"), 1)
	})
}

func TestAssign_EndedContextBeginsNothing(t *testing.T) {
	st := newFake()
	r := newRegistry(t, config(st))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Assign(ctx, []uid.Name{metric("up")}); !errors.Is(err, context.Canceled) {
		t.Errorf("Assign: %v, want context.Canceled", err)
	}
	r.Close()
	wantEqual(t, "cells", format(st.all()), "")
}

func TestAssign_StuckStoreIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, config(&tapped{Store: newFake(), before: newGate("increment").hold}))
		_, err := r.Assign(t.Context(), []uid.Name{metric("up")})
		if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Assign on a stuck store: %v, want ErrUnavailable, not the caller's deadline", err)
		}
		wantEqual(t, "UID of the next call", assign(t, r, metric("up")), []mapping.UID{1})
	})
}

func TestClose_EndsAssignments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := storetest.Must(uid.New(config(&tapped{Store: newFake(), before: newGate("check").hold})))
		failed := make(chan error, 1)
		go func() {
			_, err := r.Assign(t.Context(), []uid.Name{metric("up")})
			failed <- err
		}()
		synctest.Wait()
		r.Close() // synctest fails the test if a goroutine is left
		if err := <-failed; !errors.Is(err, store.ErrClosed) {
			t.Errorf("Assign under way at Close: %v, want ErrClosed", err)
		}
		if _, err := r.Assign(t.Context(), []uid.Name{metric("later")}); !errors.Is(err, store.ErrClosed) {
			t.Errorf("Assign after Close: %v, want ErrClosed", err)
		}
	})
}
