package budget_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/promtsd/promtsd/query/budget"
)

const mib = 1 << 20

func newBudget(t *testing.T, c budget.Config) *budget.Budget {
	t.Helper()
	b, err := budget.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if held := b.Held(); held != 0 {
			t.Errorf("%d bytes are still held", held)
		}
		if waiting := b.Waiting(); waiting != 0 {
			t.Errorf("%d requests still wait", waiting)
		}
	})
	return b
}

func mustTake(t *testing.T, a *budget.Account, n int64) {
	t.Helper()
	if err := a.Take(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

// takes begins a Take, and returns its error when it is over.
func takes(t *testing.T, a *budget.Account, n int64) <-chan error {
	over := make(chan error, 1)
	go func() { over <- a.Take(t.Context(), n) }()
	return over
}

func TestAccount_HoldsWhatIsTakenInSteps(t *testing.T) {
	b := newBudget(t, budget.Config{Total: 64 * mib})
	a := b.Open()
	for range 1000 {
		mustTake(t, a, 1000)
	}
	if held := b.Held(); held < 1000_000 || held > 1000_000+mib/4 {
		t.Errorf("%d bytes are held for 1000000", held)
	}
	a.Give(1000_000)
	if held := b.Held(); held > mib/2 {
		t.Errorf("%d bytes are held for 0", held)
	}
	a.Close()
	a.Close()
	if held := b.Held(); held != 0 {
		t.Errorf("%d bytes are held by nobody", held)
	}
	if err := a.Take(t.Context(), mib); err == nil {
		t.Error("an account takes after its end")
	}
}

func TestAccount_NoneIsWithoutBounds(t *testing.T) {
	a := budget.From(t.Context())
	if err := a.Take(t.Context(), 1<<60); err != nil {
		t.Error(err)
	}
	a.Give(1 << 60)
	a.Close()
	var b *budget.Budget
	if err := b.Open().Take(t.Context(), 1<<60); err != nil {
		t.Error(err)
	}
}

func TestNew_RefusesWhatCannotBe(t *testing.T) {
	for _, c := range []budget.Config{{}, {Total: 31 * mib}, {Total: 64 * mib, Request: -1}} {
		if _, err := budget.New(c); err == nil || !strings.Contains(err.Error(), "--query.max-") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestAccount_OneRequestIsNotLargerThanItMay(t *testing.T) {
	for _, c := range []struct {
		request, fits int64
		flag          string
	}{{10 * mib, 10 * mib, "--query.max-memory-bytes"}, {0, 56 * mib, "--query.max-total-memory-bytes"},
		{60 * mib, 56 * mib, "--query.max-total-memory-bytes"}} {
		b := newBudget(t, budget.Config{Total: 64 * mib, Request: c.request})
		a := b.Open()
		mustTake(t, a, c.fits)
		err := a.Take(t.Context(), 1)
		if !errors.Is(err, budget.ErrTooLarge) || !strings.Contains(err.Error(), c.flag) {
			t.Errorf("%d of %d: %v, want ErrTooLarge and %s", c.fits+1, c.request, err, c.flag)
		}
		a.Close()
	}
}

func TestTake_WaitsUntilOthersGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(t, budget.Config{Total: 64 * mib})
		first, second, third := b.Open(), b.Open(), b.Open()
		mustTake(t, first, 50*mib)
		thirds := takes(t, third, 10*mib)
		synctest.Wait()
		seconds := takes(t, second, 20*mib)
		synctest.Wait()
		if waiting := b.Waiting(); waiting != 2 {
			t.Errorf("%d wait, want 2", waiting)
		}
		first.Give(8 * mib) // enough for the one that began last and asked first
		synctest.Wait()
		if len(thirds) > 0 || len(seconds) > 0 {
			t.Error("a request went before one that began earlier")
		}
		first.Close()
		if err := errors.Join(<-seconds, <-thirds); err != nil {
			t.Error(err)
		}
		second.Close()
		third.Close()
	})
}

func TestTake_EndsWhenItHasWaitedTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(t, budget.Config{Total: 64 * mib, Wait: time.Second})
		first, second := b.Open(), b.Open()
		mustTake(t, first, 51*mib)
		mustTake(t, second, 5*mib)
		begin := time.Now()
		one, other := takes(t, second, 10*mib), takes(t, second, mib)
		for _, over := range []<-chan error{one, other} {
			if err := <-over; !errors.Is(err, budget.ErrBusy) ||
				!strings.Contains(err.Error(), "--query.max-total-memory-bytes") {
				t.Errorf("got %v, want ErrBusy with its flag", err)
			}
		}
		if waited := time.Since(begin); waited != time.Second {
			t.Errorf("it waited %v", waited)
		}
		if err := second.Take(t.Context(), mib); !errors.Is(err, budget.ErrBusy) {
			t.Errorf("a request that was refused goes on: %v", err)
		}
		second.Close()
		if held := b.Held(); held != 51*mib {
			t.Errorf("%d bytes are held", held)
		}
		first.Close()
	})
}

func TestTake_EndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(t, budget.Config{Total: 64 * mib, Wait: time.Hour})
		first, second := b.Open(), b.Open()
		mustTake(t, first, 50*mib)
		gone := errors.New("the client has left")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { synctest.Wait(); cancel(gone) }()
		if err := second.Take(ctx, 10*mib); !errors.Is(err, gone) {
			t.Error(err)
		}
		first.Close()
		second.Close()
	})
}

// Two that each hold a half, and want more, would wait for each other.
func TestTake_ThoseThatWaitForEachOtherDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(t, budget.Config{Total: 64 * mib, Wait: time.Hour})
		old, young, small := b.Open(), b.Open(), b.Open()
		mustTake(t, old, 28*mib)
		mustTake(t, young, 27*mib)
		smalls := takes(t, small, 20*mib) // holds nothing, so that to refuse it would help nobody
		olds := takes(t, old, 20*mib)
		synctest.Wait()
		if len(smalls) > 0 || len(olds) > 0 {
			t.Error("a request was refused while the young one could still end")
		}
		if err := young.Take(t.Context(), 20*mib); !errors.Is(err, budget.ErrBusy) {
			t.Errorf("the young one: %v, want ErrBusy", err)
		}
		young.Close()
		if err := <-olds; err != nil {
			t.Errorf("the old one: %v", err)
		}
		old.Close()
		if err := <-smalls; err != nil {
			t.Errorf("the one that held nothing: %v", err)
		}
		small.Close()
	})
}

// A request that holds nothing yet waits for its turn, however many wait: it keeps nothing from anybody.
func TestTake_ThoseThatBeginWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(t, budget.Config{Total: 64 * mib, Wait: time.Minute})
		large := b.Open()
		mustTake(t, large, 56*mib)
		var accounts []*budget.Account
		for range 8 { // the share of the small ones
			a := b.Open()
			mustTake(t, a, mib)
			accounts = append(accounts, a)
		}
		var waiting []<-chan error
		for range 50 {
			a := b.Open()
			accounts = append(accounts, a)
			waiting = append(waiting, takes(t, a, 1))
			synctest.Wait()
		}
		large.Close()
		for i, over := range waiting {
			if err := <-over; err != nil {
				t.Errorf("request %d: %v", i, err)
			}
		}
		for _, a := range accounts {
			a.Close()
		}
	})
}

func TestTake_SmallOnesGoOnWhileLargeOnesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(t, budget.Config{Total: 64 * mib, Wait: time.Minute})
		large := b.Open()
		mustTake(t, large, 56*mib)
		var accounts []*budget.Account
		var waiting []<-chan error
		refused := 0
		for range 50 {
			a := b.Open()
			accounts = append(accounts, a)
			if a.Take(t.Context(), mib) != nil {
				t.Fatal("a request that begins finds no memory")
			}
			over := takes(t, a, 5*mib)
			synctest.Wait()
			select {
			case err := <-over:
				if !errors.Is(err, budget.ErrBusy) {
					t.Error(err)
				}
				a.Close()
				refused++
			default:
				waiting = append(waiting, over)
			}
		}
		if len(waiting) == 0 || refused == 0 {
			t.Errorf("%d wait and %d are refused, want some of each", len(waiting), refused)
		}
		small := b.Open()
		if err := small.Take(t.Context(), mib); err != nil {
			t.Errorf("a small request: %v", err)
		}
		small.Close()
		large.Close()
		for i, over := range waiting {
			if err := <-over; err != nil {
				t.Errorf("waiter %d: %v", i, err)
			}
		}
		for _, a := range accounts {
			a.Close()
		}
	})
}

// Whatever requests do, the accounts never have more than the budget, all of them end, and nothing is left over.
func TestBudget_HoldsUnderACrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const total = 64 * mib
		b := newBudget(t, budget.Config{Total: total, Request: 40 * mib, Wait: time.Second})
		var wg sync.WaitGroup
		var done, busy, large atomic.Int64
		for i := range 200 {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(i)))
				time.Sleep(time.Duration(random.IntN(10_000)) * time.Millisecond)
				err := request(t, b, random)
				switch {
				case errors.Is(err, budget.ErrBusy):
					busy.Add(1)
				case errors.Is(err, budget.ErrTooLarge):
					large.Add(1)
				case err != nil:
					t.Error(err)
				default:
					done.Add(1)
				}
				if held := b.Held(); held > total {
					t.Errorf("%d bytes are held", held)
				}
			})
		}
		wg.Wait()
		t.Logf("%d done, %d busy, %d too large", done.Load(), busy.Load(), large.Load())
		if done.Load() == 0 || busy.Load() == 0 || large.Load() == 0 {
			t.Error("want some of each")
		}
	})
}

// request takes and gives from some goroutines for a while.
func request(t *testing.T, b *budget.Budget, random *rand.Rand) error {
	a := b.Open()
	defer a.Close()
	ctx := budget.NewContext(t.Context(), a)
	errs := make(chan error)
	const workers = 3
	for range workers {
		seed := random.Uint64()
		go func() {
			random := rand.New(rand.NewPCG(2, seed))
			for range 20 {
				n := random.Int64N(2 * mib)
				if err := budget.From(ctx).Take(ctx, n); err != nil {
					errs <- fmt.Errorf("take %d: %w", n, err)
					return
				}
				time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond)
				if random.IntN(3) == 0 {
					a.Give(n)
				}
			}
			errs <- nil
		}()
	}
	var all error
	for range workers {
		all = errors.Join(all, <-errs)
	}
	return all
}

func BenchmarkTake(b *testing.B) {
	budgets, err := budget.New(budget.Config{Total: 1 << 40})
	if err != nil {
		b.Fatal(err)
	}
	a := budgets.Open()
	defer a.Close()
	ctx := budget.NewContext(b.Context(), a)
	for b.Loop() {
		if err := a.Take(ctx, 500); err != nil {
			b.Fatal(err)
		}
	}
}

// Who holds more than a small request may is told before, may end there, and may begin again as old as it was.
func TestAccount_TellsBeforeItIsLarge(t *testing.T) {
	b := newBudget(t, budget.Config{Total: 64 * mib})
	a := b.Open()
	told, begin := 0, errors.New("begin again")
	a.OnLarge(func() error { told++; return begin })
	mustTake(t, a, mib)
	if told != 0 {
		t.Error("it is large with what a small one may hold")
	}
	for range 2 {
		if err := a.Take(t.Context(), 1); !errors.Is(err, begin) {
			t.Errorf("got %v", err)
		}
	}
	again := a.Again()
	if held := b.Held(); held != 0 || told != 1 {
		t.Errorf("%d bytes are held, told %d times", held, told)
	}
	again.OnLarge(func() error { told++; return nil })
	mustTake(t, again, 3*mib)
	mustTake(t, again, 3*mib)
	if told != 2 {
		t.Errorf("told %d times", told)
	}
	a.Close() // closes the other, too
}
