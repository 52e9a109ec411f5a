package index

import (
	"fmt"
	"testing"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/store"
)

func TestWriter_WritesTheRowsAsTheyAreDrawn(t *testing.T) {
	w := Writer{Tables: catalog.DefaultTables()}
	var b store.Batch
	tsuid := []byte("\x00\x00\x01\x00\x00\x02\x00\x00\x03")
	w.PutSeries(&b, tsuid, 1795253864620)
	scratch := w.PutDay(&b, tsuid, 0x5123, 1795253864621, nil)
	w.PutDay(&b, tsuid[:3], 1, 1795253864622, scratch)
	want := []string{
		`tsdb-meta 000001000002000003 name:ts_ctr = 0000000000000001 @ 1795253864620`,
		`promtsd 645123000001000002000003 p: =  @ 1795253864621`,
		`promtsd 640001000001 p: =  @ 1795253864622`,
	}
	if b.Len() != len(want) {
		t.Fatalf("got %d cells, want %d", b.Len(), len(want))
	}
	for i, want := range want {
		m := b.At(i)
		got := fmt.Sprintf("%s %x %s:%s = %x @ %d", m.Table, m.Row, m.Family, m.Qualifier, m.Value, m.Timestamp)
		if got != want {
			t.Errorf("cell %d:\n got %s\nwant %s", i, got, want)
		}
	}
}

func TestDayOf_DaysBeginAtMidnightUTC(t *testing.T) {
	for _, c := range []struct {
		ms   int64
		want mapping.Day
	}{
		{0, 0}, {mapping.DayMs - 1, 0}, {mapping.DayMs, 1},
		{1795219200000, 20778}, {1795219199999, 20777}, {mapping.MaxTime, 49710},
	} {
		if got := mapping.DayOf(c.ms); got != c.want {
			t.Errorf("mapping.DayOf(%d) = %d, want %d", c.ms, got, c.want)
		}
	}
}
