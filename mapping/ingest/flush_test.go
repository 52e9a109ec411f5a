package ingest_test

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/ingest"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

// Rows of an ended hour whose cells cannot be read keep them, and get their new points in cells of their own; all
// others of the flush become one cell as ever.
func TestFlush_UnreadableRowHoldsUpNoOther(t *testing.T) {
	const hosts, unreadable = 40, 3
	registry, log := prometheus.NewRegistry(), new(strings.Builder)
	st := &worn{Store: storetest.NewMem(), rows: map[string]bool{}}
	db := open(t, st, nil, func(c *ingest.Config) {
		buffered(c)
		c.Registerer, c.Logger = registry, slog.New(slog.NewTextHandler(log, nil))
	})
	if err := db.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	hour := int64(mapping.BaseTime(now)) * 1000
	flushAt := func(at int64, minutes ...int64) {
		for i := range hosts {
			for _, m := range minutes {
				db.append(t, raw("__name__", "m", "s", fmt.Sprint(i)), sample(hour+m*60_000, float64(m)))
			}
		}
		db.clock.Store(at)
		if err := db.FlushAll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	flushAt(hour+10*60_000, 1, 2)
	flushAt(hour+20*60_000, 11, 12)
	n := 0
	for row, err := range st.Scan(t.Context(), store.Scan{Table: "tsdb"}) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n%13 == 1 && len(st.rows) < unreadable {
			st.rows[string(row.Key)] = true
		}
	}
	flushAt(hour+mapping.HourMs+1, 21, 22)
	if got := cellsOf(t, st, "tsdb"); got != hosts-unreadable+3*unreadable {
		t.Errorf("%d rows, of which %d cannot be read, have %d cells, want one of a row and 3 of each of those", hosts,
			unreadable, got)
	}
	for tsuid, points := range read(t, st.Store, db.settings.Schema) {
		if len(points) != 6 {
			t.Errorf("%s has %d samples, want 6", tsuid, len(points))
		}
	}
	for row := range st.rows {
		if name := db.config.UIDs.FormatRowKey([]byte(row)); !strings.Contains(log.String(), strconv.Quote(name)) {
			t.Errorf("the log does not name the row %s:\n%s", name, log)
		}
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(fmt.Sprintf(`
		# HELP promtsd_ingest_unreadable_rows_total Rows of an ended hour whose cells were not made one, since one cannot be read; the log names them.
		# TYPE promtsd_ingest_unreadable_rows_total counter
		promtsd_ingest_unreadable_rows_total %d
	`, unreadable)), "promtsd_ingest_unreadable_rows_total"); err != nil {
		t.Error(err)
	}
	if err := db.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}
