package uid

import (
	"context"
	"fmt"
	"strings"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/store"
)

// claim is one name on its way to a UID, shared by all who wait for it. Its flight alone writes to it, and is done when
// the others read.
type claim struct {
	key    nameKey
	stored string      // the name as it stands in the table
	id     mapping.UID // the id tried at present; it means nothing until resolved
	result Result      // set once resolved
	flight *flight

	by      claimant // who asked first
	written bool     // the id's reverse cell may have been written
}

// resolved tells whether the claim has come to its end, good or bad.
func (c *claim) resolved() bool { return c.result.UID != 0 || c.result.Err != nil }

// flight is one run of the protocol for some claims.
type flight struct {
	done chan struct{} // closed by the flight's goroutine
	err  error         // why claims are not resolved; read it after done
}

// Assign returns the UID of each name, making those that do not exist yet. All names of a call go through the protocol
// together: what is not cached costs one read, and new names cost one reservation of ids per kind and two writes,
// however many they are. Calls for the same name at the same time share one assignment; calls for other names do not
// wait for it.
//
// The results stand in the order of the names, which may repeat; what is wrong with single names is in Result.Err. The
// error is the store's, or the context's, and leaves no results; calling again is safe then, and so it is after any
// other failure. An assignment begun goes on when the context ends, for others may wait for it.
//
// Names may point into memory that is used again as soon as Assign has returned.
func (r *Registry) Assign(ctx context.Context, names []Name) ([]Result, error) {
	return r.assign(ctx, names, known)
}

// AssignNewcomer is Assign for a newcomer, see Limits.
func (r *Registry) AssignNewcomer(ctx context.Context, names []Name) ([]Result, error) {
	return r.assign(ctx, names, newcomer)
}

// Find is Assign without making UIDs: the result of a name that has none is ErrUnassigned.
func (r *Registry) Find(ctx context.Context, names []Name) ([]Result, error) {
	return r.assign(ctx, names, finder)
}

func (r *Registry) assign(ctx context.Context, names []Name, by claimant) ([]Result, error) {
	results := make([]Result, len(names))
	var misses []int
	for i, n := range names {
		if uid, ok := r.CachedUID(n.Kind, n.Text); ok {
			results[i].UID = uid
		} else {
			misses = append(misses, i)
		}
	}
	if len(misses) == 0 {
		return results, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("assign UIDs: %w", err)
	}
	claims, err := r.claim(ctx, names, by, misses, results)
	if err != nil {
		return nil, fmt.Errorf("assign UIDs: %w", err)
	}
	for i, c := range claims {
		if c == nil {
			continue
		}
		select {
		case <-c.flight.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for UIDs to be assigned: %w", ctx.Err())
		}
		if !c.resolved() {
			return nil, fmt.Errorf("assign UIDs: %w", c.flight.err)
		}
		results[misses[i]] = c.result
	}
	return results, nil
}

// claim returns the claim of each missing name: one that is pending already, or a new one, and starts a flight for the
// new. A name that cannot be stored has none, and its result is filled in.
func (r *Registry) claim(
	ctx context.Context, names []Name, by claimant, misses []int, results []Result,
) ([]*claim, error) {
	claims := make([]*claim, len(misses))
	for i, at := range misses {
		n := names[at]
		r.metrics.misses[n.Kind].Inc()
		stored, err := r.storedName(n)
		if err != nil {
			results[at].Err = err
			continue
		}
		claims[i] = &claim{key: nameKey{n.Text, n.Kind}, stored: stored, by: by}
	}

	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	f := &flight{done: make(chan struct{})}
	var own []*claim
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		<-r.slots
		return nil, fmt.Errorf("%w: UID registry", store.ErrClosed)
	}
	for i, c := range claims {
		if c == nil {
			continue
		}
		if p := r.pending[c.key]; p != nil {
			claims[i] = p
			continue
		}
		// The claim outlives the call, and its text goes into the caches.
		text := strings.Clone(c.key.text)
		if c.stored == text {
			c.stored = text
		}
		c.key.text, c.flight = text, f
		r.pending[c.key] = c
		own = append(own, c)
	}
	if len(own) > 0 {
		r.flights.Add(1)
	}
	r.mu.Unlock()

	if len(own) == 0 {
		<-r.slots
		return claims, nil
	}
	go r.fly(f, own)
	return claims, nil
}

// storedName is the name as the table has it; an error says why the table cannot.
func (r *Registry) storedName(n Name) (string, error) {
	if n.Text == "" {
		return "", fmt.Errorf("%w: empty %s name", mapping.ErrInvalid, n.Kind)
	}
	// Before it is spelt, so that nothing is spelt that is bounded by its sender only.
	if len(n.Text) > store.MaxRow {
		return "", tooLong(n, len(n.Text))
	}
	stored := r.names.Encode(n.Text)
	if len(stored) > store.MaxRow {
		return "", tooLong(n, len(stored))
	}
	if r.names.Decode(stored) != n.Text {
		return "", fmt.Errorf("%w: %s name %.100q is not valid UTF-8", mapping.ErrInvalid, n.Kind, n.Text)
	}
	return stored, nil
}

func tooLong(n Name, length int) error {
	return fmt.Errorf("%w: %s name that begins with %.100q has %d bytes, at most %d can be stored",
		mapping.ErrInvalid, n.Kind, n.Text, length, store.MaxRow)
}

// fly runs a flight to its end and publishes it.
func (r *Registry) fly(f *flight, own []*claim) {
	defer r.flights.Done()
	ctx, cancel := context.WithTimeout(r.base, flightTimeout)
	defer cancel()
	err := r.resolve(ctx, own)
	switch {
	case err == nil:
	case r.base.Err() != nil:
		err = fmt.Errorf("%w: UID registry: %v", store.ErrClosed, err)
	case ctx.Err() != nil:
		// Not the caller's deadline: its class is that of a slow store.
		err = fmt.Errorf("%w: no UIDs after %v: %v", store.ErrUnavailable, flightTimeout, err)
	}
	f.err = err

	r.mu.Lock()
	for _, c := range own {
		delete(r.pending, c.key)
	}
	r.mu.Unlock()
	close(f.done)
	<-r.slots
}
