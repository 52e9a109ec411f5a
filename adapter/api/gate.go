package api

import (
	"context"
	"fmt"
)

// gate bounds the queries that run at a time. It is a promql.QueryTracker; Prometheus's own also writes them to a
// file, to log after a crash what ran.
type gate chan struct{}

// GetMaxConcurrent is how many there may be.
func (g gate) GetMaxConcurrent() int { return cap(g) }

// Insert waits for a place.
func (g gate) Insert(ctx context.Context, _ string) (int, error) {
	select {
	case g <- struct{}{}:
		return 0, nil
	case <-ctx.Done():
		return 0, fmt.Errorf("wait for other queries, --query.max-concurrency allows %d: %w", cap(g), ctx.Err())
	}
}

// Delete gives a place back.
func (g gate) Delete(int) { <-g }

// Close does nothing.
func (g gate) Close() error { return nil }
