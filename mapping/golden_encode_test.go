package mapping_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/promtsd/promtsd/mapping"
)

// goldenPutExceptions are puts whose cells cannot be found, by metric, and why.
var goldenPutExceptions = map[string]string{
	"plain http.指标": whyLost,
	"plain xts":     "OpenTSDB cuts a base time after 2106 to 32 bits; here such a point is refused",
}

// goldenSetsWithoutPuts have no accepted put.
var goldenSetsWithoutPuts = []string{"badput-noauto", "readraw", "readraw-compact", "readraw-fixdup"}

// TestGolden_PutsEncodeToTheCellsOfOpenTSDB compares, for each put that OpenTSDB accepted, the cell that this package
// makes with what OpenTSDB stored: the row key always, given the UIDs of the set; the flags and the value; and the
// qualifier, of points in seconds only its offset and flags, because here all qualifiers are in milliseconds.
// A value may have a smaller form than OpenTSDB's (HTTP puts store all floats on 8 bytes, telnet puts 1.0 on 4) of the
// same float64. Of several puts of one instant, one must be there: OpenTSDB overwrites one, or drops it in compaction.
func TestGolden_PutsEncodeToTheCellsOfOpenTSDB(t *testing.T) {
	occurred := map[string]bool{}
	var total putCounts
	for _, set := range goldenSets(t) {
		stored := newStoredPoints(t, set)
		puts, refused := set.puts()
		var n putCounts
		for i, put := range puts {
			if key := set.name + " " + put.metric; goldenPutExceptions[key] != "" && stored.find(put) != nil {
				occurred[key] = true
				continue
			}
			n.count(stored.compare(t, put, slices.Concat(puts[:i], puts[i+1:])))
		}
		compared := n[sameForm] + n[smallerForm]
		if (compared == 0) != slices.Contains(goldenSetsWithoutPuts, set.name) {
			t.Errorf("%s: %d puts compared", set.name, compared)
		}
		t.Logf("%s: %s; not accepted %d", set.name, n, refused)
		total.add(n)
	}
	for key := range goldenPutExceptions {
		if !occurred[key] {
			t.Errorf("exception %q did not occur: remove it", key)
		}
	}
	t.Logf("all: %s", total)
}

// putOutcome says how a put compares with what is stored.
type putOutcome int

const (
	sameForm putOutcome = iota
	smallerForm
	replaced
	differs
	putOutcomes
)

type putCounts [putOutcomes]int

func (n *putCounts) count(o putOutcome) { n[o]++ }

func (n *putCounts) add(m putCounts) {
	for i := range n {
		n[i] += m[i]
	}
}

func (n putCounts) String() string {
	return fmt.Sprintf("same cell %d, smaller form %d, replaced %d", n[sameForm], n[smallerForm], n[replaced])
}

// storedPoint is a point of a cell: its qualifier if that is in milliseconds, its time beyond the base time, its flags
// and value as they stand there.
type storedPoint struct {
	msQualifier string
	offsetMs    uint32
	flags       byte
	value       string
}

// storedPoints are all points in any dump of a set, taken out of the cells without the code under test, by row key.
type storedPoints struct {
	schema mapping.Schema
	tables []*goldenTables
	points map[string][]storedPoint
}

func newStoredPoints(t *testing.T, set *goldenSet) *storedPoints {
	t.Helper()
	s := &storedPoints{schema: set.schema, points: map[string][]storedPoint{}}
	for _, name := range slices.Sorted(maps.Keys(set.dumps)) {
		if name == "input" {
			continue
		}
		tables := set.dumps[name]
		s.tables = append(s.tables, tables)
		for row, cells := range tables.cells {
			for _, c := range cells {
				s.points[row] = append(s.points[row], splitCell(c.Qualifier, c.Value)...)
			}
		}
	}
	return s
}

func splitCell(qualifier, value []byte) (points []storedPoint) {
	if len(qualifier)%2 == 1 && qualifier[0] != 5 {
		return nil
	}
	appended := len(qualifier) == 3
	if appended {
		qualifier = value
	}
	for len(qualifier) >= 2 {
		p := storedPoint{offsetMs: uint32(binary.BigEndian.Uint16(qualifier)>>4) * 1000, flags: qualifier[1] & 0xf}
		width := 2
		if qualifier[0]>>4 == 0xf {
			q := binary.BigEndian.Uint32(qualifier)
			p, width = storedPoint{msQualifier: string(qualifier[:4]), offsetMs: q << 4 >> 10, flags: byte(q) & 0xf}, 4
		}
		qualifier = qualifier[width:]
		if appended {
			value = qualifier
		}
		n := int(p.flags&7) + 1
		if n > len(value) {
			return nil
		}
		p.value, value = string(value[:n]), value[n:]
		points = append(points, p)
		if appended {
			qualifier = value
		}
	}
	return points
}

// find is nil if the put has a row, and the reason why not otherwise.
func (s *storedPoints) find(put goldenPut) error {
	row, err := s.rowKey(put)
	if err == nil && s.points[string(row)] == nil {
		err = fmt.Errorf("no row %s", s.schema.FormatRowKey(row))
	}
	return err
}

// rowKey is the row key of a put under the UIDs that OpenTSDB assigned.
func (s *storedPoints) rowKey(put goldenPut) ([]byte, error) {
	if err := mapping.CheckTime(put.ms); err != nil {
		return nil, err
	}
	metric, err := s.id(mapping.Metric, put.metric)
	if err != nil {
		return nil, err
	}
	var tags []mapping.Tag
	for key, value := range put.tags {
		var tag mapping.Tag
		if tag.Key, err = s.id(mapping.Tagk, key); err != nil {
			return nil, err
		}
		if tag.Value, err = s.id(mapping.Tagv, value); err != nil {
			return nil, err
		}
		tags = append(tags, tag)
	}
	s.schema.SortTags(tags)
	tsuid := s.schema.AppendTSUID(nil, metric, tags)
	return s.schema.AppendRowKey(nil, tsuid, mapping.BaseTime(put.ms)), nil
}

func (s *storedPoints) id(kind mapping.Kind, label string) (mapping.UID, error) {
	for _, tables := range s.tables {
		if id, ok := tables.id(kind, label); ok {
			return s.schema.ParseUID(kind, id)
		}
	}
	return 0, fmt.Errorf("no UID for %s %q", kind, label)
}

func (s *storedPoints) compare(t *testing.T, put goldenPut, others []goldenPut) putOutcome {
	t.Helper()
	if err := s.find(put); err != nil {
		t.Errorf("%s: %v", put.text, err)
		return differs
	}
	row, _ := s.rowKey(put)
	value, flags := mapping.AppendValue(nil, put.value)
	qualifier := mapping.AppendQualifier(nil, uint32(put.ms%mapping.HourMs), flags)
	mine := splitCell(qualifier, value)[0]
	outcome := differs
	for _, p := range s.points[string(row)] {
		if p.offsetMs != mine.offsetMs {
			continue
		}
		same := mine
		if p.msQualifier == "" {
			same.msQualifier = ""
		}
		if p == same {
			return sameForm
		}
		v, err := mapping.ParseValue([]byte(p.value), p.flags)
		if err == nil && math.Float64bits(v) == math.Float64bits(put.value) && len(value) <= len(p.value) {
			outcome = smallerForm
		}
	}
	if outcome == differs {
		if slices.ContainsFunc(others, func(o goldenPut) bool {
			return o.metric == put.metric && o.ms == put.ms && o.value != put.value && maps.Equal(o.tags, put.tags)
		}) {
			return replaced
		}
		t.Errorf("%s: row %s has no %+v, only %+v",
			put.text, s.schema.FormatRowKey(row), mine, s.points[string(row)])
	}
	return outcome
}

// TestGolden_NamesAndUIDsReadBackAsStored checks each name that OpenTSDB stored: the look-up of its label finds it, a
// name of the characters that OpenTSDB accepts everywhere is stored in the same way in both spellings, and the UID has
// the bytes that AppendUID makes.
func TestGolden_NamesAndUIDsReadBackAsStored(t *testing.T) {
	accepted := regexp.MustCompile(`^[a-zA-Z0-9._/-]+$`)
	names := 0
	for _, set := range goldenSets(t) {
		for key, id := range set.dumps["cells.jsonl"].ids {
			names++
			for _, n := range []mapping.Names{mapping.NamesRaw, mapping.NamesOpenTSDB} {
				label := n.Decode(key.name)
				if !slices.Contains(n.Variants(label), key.name) {
					t.Errorf("%s: %s: variants of %q are %q, without %q",
						set.name, n, label, n.Variants(label), key.name)
				}
				if got := n.Encode(label); accepted.MatchString(key.name) && got != key.name {
					t.Errorf("%s: %s: name of %q is %q, want %q", set.name, n, label, got, key.name)
				}
			}
			uid, err := set.schema.ParseUID(key.kind, id)
			if err != nil {
				t.Errorf("%s: %s %q: %v", set.name, key.kind, key.name, err)
			} else if got := set.schema.AppendUID(nil, key.kind, uid); !bytes.Equal(got, id) {
				t.Errorf("%s: UID %d of %s is %x, want %x", set.name, uid, key.kind, got, id)
			}
		}
	}
	if names == 0 {
		t.Error("no names")
	}
}

// TestGolden_RowKeysAreMadeFromTheirTSUIDs takes each data row key of OpenTSDB to its TSUID and back, salt included.
func TestGolden_RowKeysAreMadeFromTheirTSUIDs(t *testing.T) {
	rows, salted := 0, 0
	for _, set := range goldenSets(t) {
		s := set.schema
		for _, row := range set.dumps["cells.jsonl"].rows {
			tsuid, base, err := s.AppendRowTSUID(nil, []byte(row))
			if err != nil {
				if !strings.HasPrefix(set.name, "readraw") { // those have damaged rows
					t.Errorf("%s: %v", set.name, err)
				}
				continue
			}
			rows++
			if s.SaltWidth > 0 {
				salted++
			}
			if got := s.AppendRowKey(nil, tsuid, base); string(got) != row {
				t.Errorf("%s: row key of TSUID %x at %d is %s, want %s", set.name, tsuid, base,
					s.FormatRowKey(got), s.FormatRowKey([]byte(row)))
			}
		}
	}
	if rows == 0 || salted == 0 {
		t.Errorf("%d rows, %d of them salted, want more than 0 of each", rows, salted)
	}
}
