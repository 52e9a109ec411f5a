package index

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/store"
)

// rowKeyScans find the series of a data table whose index is not complete, by its row keys: per salt bucket and metric
// the rows of the hours asked for, filtered by a regular expression on the tags as OpenTSDB itself does it.
func (r *Reader) rowKeyScans(mint, maxt int64, p *predicate) []source {
	schema := r.Settings.Schema
	first, last := mapping.BaseTime(mint), mapping.BaseTime(maxt)
	scan := store.Scan{
		Table:  r.Settings.Tables.Data,
		Ranges: rowRanges(schema, p.metrics, first, last),
		Filter: store.RowFilter{Regexp: p.rowRegexp()},
	}
	var tsuid []byte
	scan.Filter.Match = func(row []byte) bool {
		var base uint32
		var err error
		tsuid, base, err = schema.AppendRowTSUID(tsuid[:0], row)
		return err == nil && base >= first && base <= last && p.mayPass(tsuid)
	}
	return []source{{
		scan: scan,
		tsuidOf: func(dst, row []byte) ([]byte, error) {
			dst, _, err := schema.AppendRowTSUID(dst, row)
			return dst, err
		},
		dayOf: func(row []byte) mapping.Day {
			key, _ := schema.ParseRowKey(row) // Match has parsed it
			return mapping.DayOf(int64(key.Base) * 1000)
		},
		repeats: true,
	}}
}

// rowRanges are the ranges of data row keys of some metrics (nil: all) and the hours first to last, inclusive.
func rowRanges(s mapping.Schema, metrics []mapping.UID, first, last uint32) []store.Range {
	if metrics == nil {
		return nil // time stands behind the metric: only the filter can tell the hours
	}
	buckets := 1
	if s.SaltWidth > 0 {
		buckets = s.SaltBuckets
	}
	var out []store.Range
	for bucket := range buckets {
		for _, m := range metrics {
			prefix := s.AppendUID(s.AppendSalt(nil, bucket), mapping.Metric, m)
			out = append(out, store.Range{
				Start: appendBase(slices.Clone(prefix), first),
				Stop:  store.PrefixEnd(appendBase(prefix, last)),
			})
		}
	}
	return out
}

func appendBase(dst []byte, base uint32) []byte {
	return append(dst, byte(base>>24), byte(base>>16), byte(base>>8), byte(base))
}

// mayPass is passes as far as it can tell without reading texts.
func (p *predicate) mayPass(tsuid []byte) bool {
	for _, t := range p.tags {
		value := t.value(p.schema, tsuid)
		if value == 0 && !t.absent || value != 0 && t.closed && !t.matched[value] {
			return false
		}
	}
	return true
}

// maxRegexpValues bounds the alternatives of one tag in a row-key expression; a tag with more is left to Match.
const maxRegexpValues = 256

// rowRegexp is a regular expression, in store.RowFilter's form, that every row key with the wanted tags matches; empty
// if it would say nothing. For tagk 000001 with tagv 000001 or 000002, on 3-byte UIDs without salt:
//
//	^.{7}(?:.{6})*\x00\x00\x01(?:\x00\x00\x01|\x00\x00\x02)(?:.{6})*$
//
// It relies on the order of the tags in a row key, which every writer keeps: they are sorted by tagk UID.
func (p *predicate) rowRegexp() string {
	var wanted []*tagTest
	for _, t := range p.tags {
		if !t.absent && len(t.keys) == 1 && (!t.closed || len(t.matched) <= maxRegexpValues) {
			wanted = append(wanted, t)
		}
	}
	if len(wanted) == 0 {
		return ""
	}
	slices.SortFunc(wanted, func(a, b *tagTest) int { return cmp.Compare(a.keys[0], b.keys[0]) })
	var b strings.Builder
	anyPairs := fmt.Sprintf("(?:.{%d})*", p.schema.PairWidth())
	fmt.Fprintf(&b, "^.{%d}", p.schema.TagsOffset())
	for _, t := range wanted {
		b.WriteString(anyPairs)
		quote(&b, p.schema.AppendUID(nil, mapping.Tagk, t.keys[0]))
		if !t.closed {
			fmt.Fprintf(&b, ".{%d}", p.schema.TagvWidth)
			continue
		}
		var values []mapping.UID
		for v := range t.matched {
			values = append(values, v)
		}
		b.WriteString("(?:")
		for i, v := range sorted(values) {
			if i > 0 {
				b.WriteByte('|')
			}
			quote(&b, p.schema.AppendUID(nil, mapping.Tagv, v))
		}
		b.WriteByte(')')
	}
	b.WriteString(anyPairs)
	b.WriteByte('$')
	return b.String()
}

// quote writes bytes as characters of ISO-8859-1 by their code, which Java and Go read alike.
func quote(b *strings.Builder, bytes []byte) {
	for _, c := range bytes {
		fmt.Fprintf(b, `\x%02x`, c)
	}
}
