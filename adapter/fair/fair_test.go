package fair_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/promtsd/promtsd/adapter/fair"
)

func TestClient(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1", "[::ffff:192.0.2.1]:80": "192.0.2.1", "[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::/64",
		"[2001:db8:1:2::1%eth0]:9": "2001:db8:1:2::/64", "@": "@", "": "",
	} {
		if got := fair.Client(remote); got != want {
			t.Errorf("%q: got %q, want %q", remote, got, want)
		}
	}
}

// enter takes places until one has to be waited for, and says how many it got.
func enter(t *testing.T, p *fair.Places, client string) (got int) {
	t.Helper()
	ended, end := context.WithCancel(t.Context())
	end()
	for p.Enter(ended, client) == nil {
		got++
	}
	return got
}

func TestPlaces_OneClientLeavesSomeToOthers(t *testing.T) {
	for most, want := range map[int][]int{1: {1, 0}, 2: {1, 1, 0}, 4: {3, 1, 0}, 10: {7, 2, 1, 0}, 20: {15, 3, 1, 1, 0}} {
		p := fair.NewPlaces(most)
		for i, n := range want {
			if got := enter(t, p, string(rune('a'+i))); got != n {
				t.Errorf("of %d places client %d got %d, want %d", most, i, got, n)
			}
		}
	}
}

// Who waits gets the place that becomes free, the client with the fewest first.
func TestPlaces_GoToWhoHasFewest(t *testing.T) {
	p := fair.NewPlaces(2)
	for _, client := range []string{"a", "b"} {
		if err := p.Enter(t.Context(), client); err != nil {
			t.Fatal(err)
		}
	}
	order := make(chan string, 3)
	waits := func(client string) {
		go func() {
			if err := p.Enter(t.Context(), client); err == nil {
				order <- client
			}
		}()
		time.Sleep(20 * time.Millisecond) // so that they wait in this order; another would do, too
	}
	waits("b")
	waits("b")
	waits("c")
	p.Leave("a")
	if got := <-order; got != "c" {
		t.Errorf("%s got the place first", got)
	}
	p.Leave("c")
	p.Leave("b")
	if got := <-order; got != "b" {
		t.Errorf("%s got a place", got)
	}
	p.Leave("b")
	<-order
	p.Leave("b")
	if n := p.Taken(); n != 0 {
		t.Errorf("%d places are taken in the end", n)
	}
}

// Those who go away while they wait take no place with them.
func TestPlaces_AreNotLost(t *testing.T) {
	p := fair.NewPlaces(3)
	var running, most atomic.Int32
	var wg sync.WaitGroup
	gone := errors.New("gone")
	for i := range 200 {
		wg.Go(func() {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if i%3 == 0 {
				time.AfterFunc(time.Duration(i)*10*time.Microsecond, func() { cancel(gone) })
			}
			client := string(rune('a' + i%5))
			if err := p.Enter(ctx, client); err != nil {
				if !errors.Is(err, gone) {
					t.Error(err)
				}
				return
			}
			if n := running.Add(1); n > 3 {
				most.Store(n)
			}
			time.Sleep(50 * time.Microsecond)
			running.Add(-1)
			p.Leave(client)
		})
	}
	wg.Wait()
	if p.Taken() != 0 || most.Load() > 3 {
		t.Errorf("%d places are taken in the end, %d were at a time", p.Taken(), most.Load())
	}
	if got := enter(t, p, "a"); got != 2 {
		t.Errorf("a client gets %d of 3 places", got)
	}
}
