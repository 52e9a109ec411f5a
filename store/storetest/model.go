package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/store"
)

// Model runs random lists of calls against a store and a NewMem, and compares every answer. Rapid shrinks a list that
// fails and prints how to repeat it.
func Model(t *testing.T, open func(t testing.TB) store.Store) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{real: open(t), mem: NewMem(), clock: time.Now().UnixMilli()}
		defer func() {
			if err := errors.Join(m.real.Close(), m.mem.Close()); err != nil {
				rt.Errorf("Close: %v", err)
			}
		}()
		for _, s := range []store.Store{m.real, m.mem} {
			if err := s.CreateTable(t.Context(), store.Table{Name: "data", Families: []string{"clock", "timed"}}); err != nil {
				rt.Fatal(err)
			}
		}
		actions := map[string]func(*rapid.T){
			"apply":     m.apply,
			"get":       m.get,
			"scan":      m.scan,
			"increment": m.increment,
			"check":     m.check,
		}
		if _, ok := m.real.(store.RangeDeleter); ok {
			actions["delete range"] = m.deleteRange
			m.removes = true
		}
		rt.Repeat(actions)
		m.compareScan(rt, store.Scan{Table: "data"})
	})
}

// model is a pair of stores that get the same calls. Cells of family "timed" are put and deleted with timestamps that
// rise; those of family "clock" take the store's time, which the two do not share, and are never deleted.
type model struct {
	real, mem store.Store
	clock     int64
	removes   bool // checks remove cells, which are written again afterwards: only a store that forgets them keeps that
}

var (
	modelRows       = rapid.SampledFrom(append([]string{"\xff\x00\xff", "m", "n"}, awkwardKeys...))
	modelQualifiers = rapid.SampledFrom([]string{
		"", "\x00", "q", "q\x00", "\xff", strings.Repeat("q", 253), strings.Repeat("q", 300),
		// Around the lengths and the shared first bytes from which a store may keep qualifiers in another way.
		"qqqqqqqqq", "qqqqqqqqqz", strings.Repeat("q", 15), strings.Repeat("q", 16), strings.Repeat("q", 17),
		strings.Repeat("q", 17) + "a", strings.Repeat("q", 17) + "b", strings.Repeat("q", 16) + "\x00\x00",
	})
	modelValues = rapid.SampledFrom([]string{"", "\x00", "v", "other", "\x00\x00\x00\x00\x00\x00\x00\x07"})
)

func (m *model) both(rt *rapid.T, call func(store.Store) (any, error)) {
	rt.Helper()
	got, gotErr := call(m.real)
	want, wantErr := call(m.mem)
	if class(gotErr) != class(wantErr) || fmt.Sprint(got) != fmt.Sprint(want) {
		rt.Fatalf("got %v, %v\nwant %v, %v", got, gotErr, want, wantErr)
	}
}

// class is the class of an error, as the contract has them.
func class(err error) string {
	for _, c := range []error{
		store.ErrInvalid, store.ErrNoTable, store.ErrUnavailable, store.ErrCorrupt, store.ErrClosed,
	} {
		if errors.Is(err, c) {
			return c.Error()
		}
	}
	if err != nil {
		return "unknown class"
	}
	return ""
}

func (m *model) apply(rt *rapid.T) {
	var b store.Batch
	for range rapid.IntRange(1, 12).Draw(rt, "mutations") {
		row := []byte(modelRows.Draw(rt, "row"))
		qualifier := []byte(modelQualifiers.Draw(rt, "qualifier"))
		value := []byte(modelValues.Draw(rt, "value"))
		m.clock++
		switch rapid.SampledFrom([]string{"put", "put", "clock", "delete", "old delete"}).Draw(rt, "kind") {
		case "put":
			b.Put("data", row, "timed", qualifier, m.clock, value)
		case "clock":
			b.Put("data", row, "clock", qualifier, 0, value)
		case "delete":
			b.Delete("data", row, "timed", qualifier, m.clock)
		case "old delete":
			b.Delete("data", row, "timed", qualifier, 1)
		}
	}
	m.both(rt, func(s store.Store) (any, error) { return nil, s.Apply(rt.Context(), &b) })
}

func (m *model) columns(rt *rapid.T) []store.Column {
	var columns []store.Column
	for range rapid.IntRange(0, 2).Draw(rt, "columns") {
		c := store.Column{Family: rapid.SampledFrom([]string{"clock", "timed"}).Draw(rt, "family")}
		if rapid.Bool().Draw(rt, "one qualifier") {
			c.Qualifier = []byte(modelQualifiers.Draw(rt, "qualifier"))
		}
		columns = append(columns, c)
	}
	return columns
}

func (m *model) get(rt *rapid.T) {
	g := store.Get{Table: "data", Columns: m.columns(rt)}
	rows := rapid.SliceOfDistinct(modelRows, rapid.ID).Draw(rt, "rows")
	slices.Sort(rows)
	for _, r := range rows {
		g.Rows = append(g.Rows, []byte(r))
	}
	m.both(rt, func(s store.Store) (any, error) {
		rows, err := Collect(s.Get(rt.Context(), g))
		return comparableRows(rows), err
	})
}

func (m *model) scan(rt *rapid.T) {
	s := store.Scan{Table: "data", Columns: m.columns(rt), Limit: rapid.IntRange(0, 5).Draw(rt, "limit")}
	bounds := rapid.SliceOfN(modelRows, 0, 6).Draw(rt, "bounds")
	slices.Sort(bounds)
	if rapid.Bool().Draw(rt, "from the beginning") {
		bounds = append([]string{""}, bounds...)
	}
	for i := 0; i < len(bounds); i += 2 {
		r := store.Range{Start: []byte(bounds[i])}
		if i+1 < len(bounds) {
			r.Stop = []byte(bounds[i+1])
		}
		s.Ranges = append(s.Ranges, r)
	}
	if rapid.Bool().Draw(rt, "filter") {
		parity := byte(rapid.IntRange(0, 1).Draw(rt, "parity"))
		s.Filter = store.RowFilter{Match: func(row []byte) bool { return row[len(row)-1]%2 == parity }, Regexp: ".*"}
	}
	m.compareScan(rt, s)
}

func (m *model) compareScan(rt *rapid.T, s store.Scan) {
	m.both(rt, func(st store.Store) (any, error) {
		rows, err := Collect(st.Scan(rt.Context(), s))
		return comparableRows(rows), err
	})
}

func (m *model) increment(rt *rapid.T) {
	c := m.clockCell(rt)
	delta := rapid.Int64().Draw(rt, "delta")
	m.both(rt, func(s store.Store) (any, error) { return s.Increment(rt.Context(), c, delta) })
}

func (m *model) check(rt *rapid.T) {
	checks := make([]store.Check, rapid.IntRange(1, 3).Draw(rt, "checks"))
	for i := range checks {
		checks[i].Coord = m.clockCell(rt)
		checks[i].Qualifier = append(checks[i].Qualifier, byte(i)) // different cells
		if rapid.Bool().Draw(rt, "expect a value") {
			checks[i].Expect = []byte(modelValues.Draw(rt, "expect"))
		}
		if checks[i].Delete = len(checks[i].Expect) > 0 && m.removes && rapid.Bool().Draw(rt, "remove"); !checks[i].Delete {
			checks[i].Value = []byte(modelValues.Draw(rt, "value"))
		}
	}
	m.both(rt, func(s store.Store) (any, error) { return s.CheckAndPut(rt.Context(), checks) })
}

func (m *model) deleteRange(rt *rapid.T) {
	r := store.Range{Start: []byte(modelRows.Draw(rt, "start")), Stop: []byte(modelRows.Draw(rt, "stop"))}
	m.both(rt, func(s store.Store) (any, error) {
		return nil, s.(store.RangeDeleter).DeleteRange(rt.Context(), "data", r)
	})
}

func (m *model) clockCell(rt *rapid.T) store.Coord {
	return store.Coord{
		Table: "data", Family: "clock",
		Row: []byte(modelRows.Draw(rt, "row")), Qualifier: []byte(modelQualifiers.Draw(rt, "qualifier")),
	}
}

// comparableRows writes rows with the timestamps that both stores must agree on.
func comparableRows(rows []store.Row) []string {
	lines := FormatRows(rows)
	for i, r := range rows {
		for _, c := range r.Cells {
			if c.Family == "timed" {
				lines[i] += fmt.Sprint(" @", c.Timestamp)
			}
		}
	}
	return lines
}
