package uid

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/store"
)

// maxAttempts bounds how often a claim may find its id taken. Each attempt moves the counter on, so that a counter that
// fell behind the ids in use, by a restored table say, is overtaken by and by.
const maxAttempts = 10

// resolve brings every claim to its end. After an error the resolved ones are good, and the others as if never begun:
// of what may have been written, only a forward cell counts, and the next attempt reads those first. Their ids are
// kept for it.
func (r *Registry) resolve(ctx context.Context, claims []*claim) error {
	defer r.kept.giveBack(claims)
	if err := r.resolveExisting(ctx, claims, true); err != nil {
		return err
	}
	for range maxAttempts {
		claims = unsettled(claims)
		if len(claims) == 0 {
			return nil
		}
		if err := r.attempt(ctx, claims); err != nil {
			return err
		}
	}
	claims = unsettled(claims)
	if len(claims) == 0 {
		return nil
	}
	return fmt.Errorf("%w: every id for %d names, first %s %.100q, was in use already: "+
		"the counter in table %s is behind the ids in use; calling again moves it on",
		store.ErrUnavailable, len(claims), claims[0].key.kind, claims[0].key.text, r.table.name)
}

func unsettled(claims []*claim) []*claim {
	var left []*claim
	for _, c := range claims {
		if !c.resolved() {
			left = append(left, c)
		}
	}
	return left
}

// resolveExisting resolves the claims whose names have a UID in the table. If counters, it takes note of the counters
// of their kinds, which come with the same read.
func (r *Registry) resolveExisting(ctx context.Context, claims []*claim, counters bool) error {
	cells := make([]*cell, len(claims), len(claims)+kinds)
	for i, c := range claims {
		cells[i] = &cell{kind: c.key.kind, row: c.stored}
	}
	var counter [kinds]*cell
	if counters {
		for _, c := range claims {
			if k := c.key.kind; counter[k] == nil {
				counter[k] = &cell{kind: k, row: counterRow}
				cells = append(cells, counter[k])
			}
		}
	}
	if err := r.table.readEach(ctx, familyID, cells); err != nil {
		return err
	}
	for i, c := range claims {
		c.result.Err = cells[i].err
		if !cells[i].found {
			continue
		}
		uid, err := r.table.parseUID(cells[i])
		if err != nil {
			c.result.Err = err
			continue
		}
		c.result.UID = uid
		r.uids.Add(c.key, uid)
		r.kept.resolved(c.key)
	}
	for k, c := range counter {
		if c != nil && c.found {
			if last, ok := parseCounter(c.value); ok {
				r.noteCounter(mapping.Kind(k), last)
			}
		}
	}
	return nil
}

// attempt runs the protocol once. Claims may be left unsettled by it: those whose id was in use, and those whose name
// was assigned and deleted by others meanwhile.
func (r *Registry) attempt(ctx context.Context, claims []*claim) error {
	if err := r.reserve(ctx, claims); err != nil {
		return err
	}
	claims = unsettled(claims) // the others get none
	if len(claims) == 0 {
		return nil
	}

	// Reverse before forward: a UID that can be found by its name can always be turned back into it.
	cells := make([]*cell, len(claims))
	for i, c := range claims {
		cells[i] = &cell{kind: c.key.kind, row: r.table.row(c.key.kind, c.id), value: c.stored}
		c.written = true // from now on
	}
	created, err := r.table.create(ctx, familyName, cells)
	if err != nil {
		return fmt.Errorf("write reverse cells: %w", err)
	}
	mine, err := r.own(ctx, claims, created)
	if err != nil || len(mine) == 0 {
		return err
	}

	cells = cells[:0]
	for _, c := range mine {
		cells = append(cells, &cell{kind: c.key.kind, row: c.stored, value: r.table.row(c.key.kind, c.id)})
	}
	created, err = r.table.create(ctx, familyID, cells)
	if err != nil {
		return fmt.Errorf("write forward cells: %w", err)
	}
	var lost []*claim
	for i, c := range mine {
		if !created[i] {
			r.metrics.lostRaces.Inc()
			lost = append(lost, c)
			continue
		}
		c.result.UID = c.id
		r.metrics.assigned[c.key.kind].Inc()
		r.uids.Add(c.key, c.id)
		r.texts.Add(ID{c.key.kind, c.id}, c.key.text)
	}
	if len(lost) == 0 {
		return nil
	}
	return r.resolveExisting(ctx, lost, false)
}

// own returns the claims whose ids' reverse cells have their names: those just created, and those that an attempt
// before has created although it failed. The ids of the others are in use.
func (r *Registry) own(ctx context.Context, claims []*claim, created []bool) ([]*claim, error) {
	var mine, old []*claim
	var cells []*cell
	for i, c := range claims {
		if created[i] {
			mine = append(mine, c)
			continue
		}
		old = append(old, c)
		cells = append(cells, &cell{kind: c.key.kind, row: r.table.row(c.key.kind, c.id)})
	}
	if len(old) == 0 {
		return mine, nil
	}
	if err := r.table.read(ctx, familyName, slices.Clone(cells)); err != nil {
		return nil, fmt.Errorf("read reverse cells: %w", err)
	}
	taken := 0
	for i, c := range old {
		if cells[i].found && cells[i].value == c.stored {
			mine = append(mine, c)
			continue
		}
		c.id, c.written = 0, false
		taken++
	}
	if taken > 0 {
		r.metrics.lostRaces.Add(float64(taken))
		r.logger.Warn("ids from the UID counters are in use already, trying others", "count", taken)
	}
	return mine, nil
}

// reserve gives each claim that has none an id of its own that no one had before, in order; where the width has no
// more, the counter is damaged, or the limits allow none, it resolves the claim with an error.
func (r *Registry) reserve(ctx context.Context, claims []*claim) error {
	var wanted [kinds]int64
	var ids [kinds][]mapping.UID
	for _, c := range claims {
		if c.id == 0 {
			r.kept.take(c)
		}
	}
	r.admit(claims)
	claims = unsettled(claims)
	for _, c := range claims {
		if c.id == 0 {
			wanted[c.key.kind]++
		}
	}
	var errs [kinds]error
	var wg sync.WaitGroup // together: each is a round trip, or a sync
	for k := range wanted {
		kind := mapping.Kind(k)
		if wanted[k] == 0 || r.exhausted[k].Load() {
			continue
		}
		wg.Go(func() { ids[k], errs[k] = r.reserveIDs(ctx, kind, wanted[k]) })
	}
	wg.Wait()
	for _, err := range errs {
		if err == nil || errors.Is(err, mapping.ErrCorrupt) {
			continue
		}
		for k := range ids {
			r.kept.add(mapping.Kind(k), ids[k])
		}
		return err
	}
	for _, c := range claims {
		k := c.key.kind
		switch {
		case c.id != 0:
		case len(ids[k]) > 0:
			c.id, ids[k] = ids[k][0], ids[k][1:]
		case errs[k] != nil:
			c.result.Err = fmt.Errorf("%s name %.100q has no UID yet: %w", k, c.key.text, errs[k])
		default:
			c.result.Err = fmt.Errorf("%w: no %s UID of %d bytes is left for %.100q",
				ErrExhausted, k, r.table.schema.Width(k), c.key.text)
		}
	}
	return nil
}

// reserveIDs takes n ids from the counter of a kind, fewer if the width has no more, or if there is an error. After an
// error, of which it is not known whether it counted, a single one is taken first: so a counter that goes on failing
// loses one at a time.
func (r *Registry) reserveIDs(ctx context.Context, kind mapping.Kind, n int64) (ids []mapping.UID, err error) {
	blocks := []int64{n}
	if n > 1 && r.kept.isUncertain(kind) {
		blocks = []int64{1, n - 1}
	}
	for _, block := range blocks {
		used, last, err := r.reserveBlock(ctx, kind, block)
		r.kept.setUncertain(kind, err != nil)
		if err != nil {
			return ids, err
		}
		for ; used < last; used++ {
			ids = append(ids, mapping.UID(used+1))
		}
	}
	return ids, nil
}

// reserveBlock takes n ids from the counter of a kind: those after used up to last, fewer than n if the width has no
// more.
func (r *Registry) reserveBlock(ctx context.Context, kind mapping.Kind, n int64) (used, last int64, err error) {
	sum, err := r.table.increment(ctx, kind, n)
	if errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrCorrupt) {
		return 0, 0, fmt.Errorf("%w: %w: repair the counter", mapping.ErrCorrupt, err)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("reserve %d %s UIDs: %w", n, kind, err)
	}
	if sum < n {
		return 0, 0, fmt.Errorf("reserve %d %s UIDs: %w: the counter in table %s was %d: repair it",
			n, kind, mapping.ErrCorrupt, r.table.name, sum-n)
	}
	r.noteCounter(kind, sum)
	return sum - n, min(sum, r.largest(kind)), nil
}

// largest is the largest UID that a counter can give.
func (r *Registry) largest(kind mapping.Kind) int64 {
	return int64(min(r.table.schema.MaxUID(kind), math.MaxInt64))
}

// noteCounter remembers, and says once, that a kind is exhausted.
func (r *Registry) noteCounter(kind mapping.Kind, last int64) {
	largest := r.largest(kind)
	r.metrics.last[kind].Set(float64(min(last, largest)))
	r.tellFill(kind, last, largest)
	if last >= largest && !r.exhausted[kind].Swap(true) {
		r.logger.Error("UIDs are exhausted: new names of this kind are refused from now on",
			"kind", kind, "width", r.table.schema.Width(kind), "counter", last)
	}
}
