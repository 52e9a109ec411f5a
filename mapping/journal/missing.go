package journal

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/metricset"
)

// Quarantine watches what is in quarantine, wherever it was put there. It is safe for concurrent use.
type Quarantine struct {
	store   store.Store
	tables  catalog.Tables
	logger  *slog.Logger
	entries prometheus.Gauge
}

// watchEvery is how often the metric follows what is in quarantine; queries see it at once.
const watchEvery = 15 * time.Second

// NewQuarantine returns a Quarantine. r may be nil; the error is that of registering the metrics with it.
func NewQuarantine(
	st store.Store, tables catalog.Tables, r prometheus.Registerer, logger *slog.Logger,
) (*Quarantine, error) {
	var set metricset.Set
	q := &Quarantine{st, tables, logger, set.Gauge("promtsd_journal_quarantined_entries",
		"Journal entries that could not be replayed, and wait to be tried again or dropped.")}
	return q, set.Register(r)
}

// Run keeps the metric until ctx ends, and says once what is there at first.
func (q *Quarantine) Run(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for said := false; ; {
		entries, err := q.look(ctx)
		if err == nil && !said {
			said = true
			if len(entries) > 0 {
				q.logger.Warn("journal entries are in quarantine: promtsd journal list names them, and what to do", "entries",
					len(entries))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (q *Quarantine) look(ctx context.Context) ([]Quarantined, error) {
	entries, err := InQuarantine(ctx, q.store, q.tables)
	if err == nil {
		q.entries.Set(float64(len(entries)))
	}
	return entries, err
}

// Missing says why an answer may lack samples if its range begins at mint (milliseconds since 1970): the samples of an
// entry in quarantine are not known, but none is later than it could be when its request came. Whoever has looked for a
// lease of the entry's writer, and asks here then, does not miss it.
func (q *Quarantine) Missing(ctx context.Context, mint int64) []error {
	entries, err := q.look(ctx)
	if err != nil {
		return []error{fmt.Errorf("samples may be missing: %w", err)}
	}
	n, from, to := 0, int64(math.MaxInt64), int64(math.MinInt64)
	for _, e := range entries {
		if mint <= e.Latest {
			n++
			from, to = min(from, e.Arrived), max(to, e.Arrived)
		}
	}
	if n == 0 {
		return nil
	}
	return []error{fmt.Errorf(
		"samples of %d requests that came from %s to %s may be missing: their journal entries are in quarantine; "+
			"promtsd journal list names them, and what to do", n,
		time.UnixMilli(from).UTC().Format(time.RFC3339), time.UnixMilli(to).UTC().Format(time.RFC3339))}
}
