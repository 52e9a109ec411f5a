// Package index is the series index: which series exist, and on which days each was active. A data row key has time
// before the tags, so that finding the few series a selector wants among a metric's rows costs hours x all its series;
// the index answers it once.
//
// Where a Memory has the series of the days asked for, they are found there. What it is filled from, and what answers
// otherwise, are two kinds of rows, both written before the first sample of a series (of a day) is acknowledged, and
// idempotent:
//
//	meta table:  row TSUID | family "name" | qualifier "ts_ctr" | value 8-byte 1
//	             the row that OpenTSDB itself writes with tsd.core.meta.enable_tsuid_tracking, so that its look-ups
//	             (/api/search/lookup) find our series; it lists every series that ever was
//
//	own table:   row 'd' | day (2 bytes, days since 1970) | TSUID | family "p" | empty qualifier | empty value
//	             the series that were active on that day (UTC); a query of some days reads only these, however many
//	             series came and went before
//
// A Reader answers from a Memory, or from the store; it is safe for concurrent use. A Writer only makes rows. Whoever
// writes index rows hands their batch to Memory.Apply: that applies it to the store, tells other processes (package
// feed), and adds the series to those in memory (package postings). Memory.Run is called once, in a goroutine of its
// own.
//
// Lock order: feed.Feed, then Memory.mu, then postings.Set. The label cache has a lock of its own, taken alone. The
// store is asked under none of them but the first, which no query waits for.
package index

import (
	"encoding/binary"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/store"
)

const (
	dayPrefix    = 'd'
	dayRowPrefix = 3 // bytes before the TSUID

	// maxDays is the number of days up to which a query finds series in the rows of the days; beyond, in the list of all
	// series.
	maxDays = 40
)

var (
	counterQualifier = []byte("ts_ctr")
	counterValue     = []byte{0, 0, 0, 0, 0, 0, 0, 1}
	emptyQualifier   = []byte{}
)

// Writer adds series to the index.
type Writer struct {
	Tables catalog.Tables
}

// PutSeries adds the row that says that a series exists.
func (w Writer) PutSeries(b *store.Batch, tsuid []byte, now int64) {
	b.Put(w.Tables.Meta, tsuid, catalog.FamilyName, counterQualifier, now, counterValue)
}

// PutDay adds the row that says that a series was active on a day. scratch is returned, grown, for the next call.
func (w Writer) PutDay(b *store.Batch, tsuid []byte, day mapping.Day, now int64, scratch []byte) []byte {
	scratch = append(appendDay(scratch[:0], day), tsuid...)
	b.Put(w.Tables.System, scratch, catalog.FamilySystem, emptyQualifier, now, nil)
	return scratch
}

func appendDay(dst []byte, day mapping.Day) []byte {
	return binary.BigEndian.AppendUint16(append(dst, dayPrefix), uint16(day))
}

// parseDay reads the day of a row that begins with appendDay's bytes.
func parseDay(row []byte) mapping.Day { return mapping.Day(binary.BigEndian.Uint16(row[1:])) }
