// Package fair divides what there is a bounded number of between the clients that ask for it. Nobody is told beforehand
// how many clients there are: each may have three times as much as it leaves free. So one that is alone has three
// quarters, two have three sevenths each, and there is always something left for one that comes.
package fair

import (
	"context"
	"net/netip"
	"slices"
	"sync"
)

// Client is who is behind the remote address of a connection: its IP address, and of IPv6 the first 64 bits, for
// whoever has one of these addresses has all. What a request says of itself, such as X-Forwarded-For, anyone can write.
func Client(remote string) string {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is6() {
		network, _ := ip.Prefix(64)
		return network.String()
	}
	return ip.String()
}

// Share says whether a client may hold so much where so much is left free besides.
func Share(held, free int64) bool { return held <= 3*free }

// Places are a number of places, which clients hold for a while. A client that has none gets any that is free. A place
// that becomes free goes to the client with the fewest. They are safe for concurrent use.
type Places struct {
	most int

	mu      sync.Mutex // guards what follows
	taken   int
	held    map[string]int // by client
	waiting []*waiter      // those that came first are first
}

type waiter struct {
	client string
	has    chan struct{} // closed when it has a place
}

// NewPlaces returns so many places.
func NewPlaces(most int) *Places { return &Places{most: most, held: make(map[string]int)} }

// Most is how many places there are.
func (p *Places) Most() int { return p.most }

// Taken is how many of them are taken.
func (p *Places) Taken() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}

// TryEnter gives a client a place if there is one for it. Leave gives it back.
func (p *Places) TryEnter(client string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tryEnter(client)
}

func (p *Places) tryEnter(client string) bool {
	if !p.mayEnter(client) {
		return false
	}
	p.enter(client)
	return true
}

// Enter is TryEnter that waits; the error is the cause of ctx's end.
func (p *Places) Enter(ctx context.Context, client string) error {
	p.mu.Lock()
	if p.tryEnter(client) {
		p.mu.Unlock()
		return nil
	}
	w := &waiter{client, make(chan struct{})}
	p.waiting = append(p.waiting, w)
	p.mu.Unlock()
	select {
	case <-w.has:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.waiting, w); i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	} else {
		p.leave(client)
	}
	return context.Cause(ctx)
}

// Leave gives back a place of a client.
func (p *Places) Leave(client string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(client)
}

func (p *Places) mayEnter(client string) bool {
	free, held := p.most-p.taken, p.held[client]
	return free > 0 && (held == 0 || Share(int64(held+1), int64(free-1)))
}

func (p *Places) enter(client string) {
	p.taken++
	p.held[client]++
}

func (p *Places) leave(client string) {
	p.taken--
	if p.held[client]--; p.held[client] == 0 {
		delete(p.held, client)
	}
	for {
		next := -1
		for i, w := range p.waiting {
			if p.mayEnter(w.client) && (next < 0 || p.held[w.client] < p.held[p.waiting[next].client]) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		w := p.waiting[next]
		p.waiting = slices.Delete(p.waiting, next, next+1)
		p.enter(w.client)
		close(w.has)
	}
}
