package uid_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/store"
)

// failing fails the calls of a verb and family while on.
type failing struct {
	call
	on bool
}

func (f *failing) fail(_ context.Context, c call) error {
	if f.on && c == f.call {
		return errFault
	}
	return nil
}

// A store that fails takes no more ids than there are names, however often the names are tried.
func TestAssign_AttemptsThatFailUseNoIDsUp(t *testing.T) {
	const names, attempts = 100, 50
	var list []uid.Name
	for i := range names {
		list = append(list, metric(fmt.Sprint("m", i)), tagv(fmt.Sprint("v", i)))
	}
	for _, c := range []struct {
		name        string
		call        call
		half, after bool
		most        int64
	}{
		{"reverse cells not written", call{"check", "name"}, false, false, names},
		{"half of the reverse cells written", call{"check", "name"}, true, false, names},
		{"reverse cells written", call{"check", "name"}, false, true, names},
		{"forward cells not written", call{"check", "id"}, false, false, names},
		{"half of the forward cells written", call{"check", "id"}, true, false, names},
		{"forward cells written", call{"check", "id"}, false, true, names},
		{"ids not taken", call{"increment", "id"}, false, false, names},
		{"ids taken and not told", call{"increment", "id"}, false, true, 2*names + attempts},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := newFake()
			fault := &failing{call: c.call, on: true}
			tap := &tapped{Store: st, before: fault.fail, half: c.half}
			if c.after {
				tap.before, tap.after = nil, fault.fail
			}
			r := newRegistry(t, config(tap))
			for attempt := range attempts {
				// Where something was written the second attempt may find all in place.
				if _, err := r.Assign(t.Context(), list); attempt == 0 && !errors.Is(err, store.ErrUnavailable) {
					t.Fatalf("Assign: %v, want ErrUnavailable", err)
				}
			}
			fault.on = false
			assign(t, r, list...)
			checkTable(t, st)
			for _, kind := range []string{"metrics", "tagv"} {
				if got := st.counter(kind); got > c.most {
					t.Errorf("%d ids of %s are used up for %d names, want %d at most", got, kind, names, c.most)
				}
			}
		})
	}
}

// An id of which nothing was written goes to whoever comes next, one whose reverse cell may have been written only to
// its name.
func TestAssign_KeptIDsGoToWhomTheyMay(t *testing.T) {
	st := newFake()
	fault := &failing{call: call{"increment", "id"}, on: true}
	r := newRegistry(t, config(&kindFault{Store: st, qualifier: "tagk", fail: fault.fail}))
	if _, err := r.Assign(t.Context(), []uid.Name{metric("a"), tagk("k")}); err == nil {
		t.Fatal("Assign succeeds without a counter of tagk")
	}
	wantEqual(t, "UID of another metric", assign(t, r, metric("b")), []mapping.UID{1})

	check := &failing{call: call{"check", "name"}, on: true}
	r = newRegistry(t, config(&tapped{Store: st, before: check.fail}))
	if _, err := r.Assign(t.Context(), []uid.Name{metric("c")}); err == nil {
		t.Fatal("Assign succeeds without reverse cells")
	}
	check.on = false
	wantEqual(t, "UIDs of another metric, and of the one that failed", assign(t, r, metric("d"), metric("c")),
		[]mapping.UID{3, 2})
}

// kindFault fails Increments of one kind.
type kindFault struct {
	store.Store
	qualifier string
	fail      func(context.Context, call) error
}

func (k *kindFault) Increment(ctx context.Context, at store.Coord, delta int64) (int64, error) {
	if string(at.Qualifier) == k.qualifier {
		if err := k.fail(ctx, call{"increment", at.Family}); err != nil {
			return 0, err
		}
	}
	return k.Store.Increment(ctx, at, delta)
}

// lateStore answers some CheckAndPuts with an error, and carries them out in part, or later, when it is asked for
// others.
type lateStore struct {
	store.Store
	mu     sync.Mutex // guards what follows
	random *rand.Rand
	late   []store.Check
	broken bool
}

func (l *lateStore) CheckAndPut(ctx context.Context, checks []store.Check) ([]bool, error) {
	l.mu.Lock()
	fails := l.broken && l.random.IntN(2) == 0
	if fails {
		l.late = append(l.late, checks...)
	}
	var now []store.Check
	for i := 0; i < len(l.late); {
		if l.random.IntN(4) > 0 && l.broken {
			i++
			continue
		}
		now = append(now, l.late[i])
		l.late[i] = l.late[len(l.late)-1]
		l.late = l.late[:len(l.late)-1]
	}
	l.mu.Unlock()
	for _, c := range now {
		if _, err := l.Store.CheckAndPut(ctx, []store.Check{c}); err != nil {
			return nil, err
		}
	}
	if fails {
		return nil, errFault
	}
	return l.Store.CheckAndPut(ctx, checks)
}

func (l *lateStore) Increment(ctx context.Context, at store.Coord, delta int64) (int64, error) {
	l.mu.Lock()
	fails := l.broken && l.random.IntN(4) == 0
	l.mu.Unlock()
	if fails {
		return 0, errFault
	}
	return l.Store.Increment(ctx, at, delta)
}

// Many processes assign the same names while the store fails, and writes take effect long after they have been answered
// with an error.
func TestAssign_WritesThatTakeEffectLateChangeNoMeaning(t *testing.T) {
	const processes, workers, rounds, pool = 3, 3, 30, 60
	seed := rand.Uint64()
	t.Log("seed", seed)
	st := newFake()
	late := &lateStore{Store: st, random: rand.New(rand.NewPCG(seed, 0)), broken: true}
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex // guards given
		given = make(map[uid.Name]mapping.UID)
	)
	for p := range processes {
		r := newRegistry(t, config(late))
		for w := range workers {
			random := rand.New(rand.NewPCG(seed, uint64(1+p*workers+w)))
			wg.Go(func() {
				for range rounds {
					names := make([]uid.Name, 1+random.IntN(20))
					for i := range names {
						names[i] = uid.Name{Kind: mapping.Kind(random.IntN(3)), Text: fmt.Sprint("name", random.IntN(pool))}
					}
					results, err := r.Assign(context.Background(), names)
					if err != nil {
						continue
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
	late.broken = false
	r := newRegistry(t, config(late))
	for n, id := range given {
		wantEqual(t, fmt.Sprintf("UID of %v", n), assign(t, r, n), []mapping.UID{id})
	}
	assign(t, r, metric("all that is late has taken effect"))
	checkTable(t, st)
	if used := st.counter("metrics") + st.counter("tagk") + st.counter("tagv"); used > (processes+1)*3*pool {
		t.Errorf("%d ids are used up by %d processes for %d names", used, processes, 3*pool)
	}
}
