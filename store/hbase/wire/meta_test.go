package wire_test

import (
	"bytes"
	"testing"

	"github.com/promtsd/promtsd/store/hbase/wire"
)

// A row may be as long as a row of hbase:meta, and the bounds of the look-up for it have more than it.
func TestMetaBounds_AreNoLongerThanARow(t *testing.T) {
	table := wire.ParseTableName("space:data")
	for _, length := range []int{1, 100, wire.MaxRow - 20, wire.MaxRow} {
		row := bytes.Repeat([]byte("r"), length)
		start, stop := wire.MetaLookup(table, row)
		for what, bound := range map[string][]byte{"start": start, "stop": stop, "before": wire.MetaBefore(table, row)} {
			if len(bound) > wire.MaxRow {
				t.Errorf("a row of %d bytes: %s has %d", length, what, len(bound))
			}
		}
		if kept := bytes.Count(start, []byte("r")); kept != length && kept < wire.MaxRow-50 {
			t.Errorf("a row of %d bytes: %d are looked for", length, kept)
		}
	}
}
