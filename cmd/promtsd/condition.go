package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/promtsd/promtsd/store"
)

// condition is what is known of a store beyond its answers. That of a store which says nothing is always good.
type condition struct {
	watched
}

// watched is a store that knows how it is.
type watched interface {
	Writable() error         // why new data should not be written at present
	Failed() <-chan struct{} // closed when only a restart of the process helps
}

// unwatched is a store that does not.
type unwatched struct{}

func (unwatched) Writable() error         { return nil }
func (unwatched) Failed() <-chan struct{} { return nil }

func conditionOf(st store.Store) condition {
	if w, ok := st.(watched); ok {
		return condition{w}
	}
	return condition{unwatched{}}
}

// healthy says why only a restart helps, nil if one is not needed.
func (c condition) healthy() error {
	select {
	case <-c.Failed():
		return c.Writable()
	default:
		return nil
	}
}

var errRestart = errors.New(
	"promtsd ended by itself, because only a restart helps after a failure of the disk: nothing " +
		"that was acknowledged is lost; see to the disk, and start it again")

// end adds to the error that promtsd ends with what to do.
func (c condition) end(err error) error {
	if c.healthy() != nil {
		return errors.Join(err, errRestart)
	}
	return err
}

// persevereEvery is how long persevere waits between two tries.
const persevereEvery = time.Second

// persevere calls f until it does not fail because the store is unavailable, or ctx ends. Only a store that says how it
// is is waited for: any other has tried for long enough.
func (c condition) persevere(ctx context.Context, logger *slog.Logger, f func() error) error {
	for first := true; ; first = false {
		err := f()
		if _, alone := c.watched.(unwatched); alone || !errors.Is(err, store.ErrUnavailable) || c.healthy() != nil {
			return err
		}
		if first {
			logger.Warn("the start waits for the store", "err", err)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(persevereEvery):
		}
	}
}
