package exemplars_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/exemplars"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/store"
)

func raw(pairs ...string) (b []byte) {
	for i := 0; i < len(pairs); i += 2 {
		b = request.AppendLabel(b, pairs[i], pairs[i+1])
	}
	return b
}

// The bytes as they are drawn.
func TestPut_WritesWhatIsDrawn(t *testing.T) {
	for _, salt := range []int{0, 1} { // which is not in the key
		schema := mapping.DefaultSchema()
		schema.SaltWidth = salt
		tsuid := schema.AppendTSUID(nil, 1, []mapping.Tag{{Key: 2, Value: 3}})
		var b store.Batch
		var w exemplars.Writer
		e := request.Exemplar{T: 3_600_000*9 + 258, V: 1.5, Labels: raw("a", "b")}
		w.Put(&b, "table", exemplars.NewRows(schema), tsuid, e, 77)
		m := b.At(0)
		got := fmt.Sprintf("%s %x %s %x %d %x", m.Table, m.Row, m.Family, m.Qualifier, m.Timestamp, m.Value)
		const want = "table 000001" + "00007e90" + "000002" + "000003" + " p " + "00000102" + "edb5d96b557eaacf" + " 77 " +
			"3ff8000000000000" + "0a060a01611201" + "62"
		if got != want {
			t.Errorf("salt %d:\n got %s\nwant %s", salt, got, want)
		}
	}
}

func TestPut_ComesBackAsItWas(t *testing.T) {
	schema := mapping.DefaultSchema()
	rows := exemplars.NewRows(schema)
	rapid.Check(t, func(t *rapid.T) {
		var tags []mapping.Tag
		for i := range rapid.IntRange(1, 3).Draw(t, "tags") {
			tags = append(tags, mapping.Tag{Key: mapping.UID(i + 1), Value: mapping.UID(rapid.IntRange(1, 9).Draw(t, "tagv"))})
		}
		tsuid := schema.AppendTSUID(nil, mapping.UID(rapid.IntRange(1, 1<<24-1).Draw(t, "metric")), tags)
		labels, err := exemplars.AppendLabels(nil, raw("id", rapid.StringN(1, 20, 80).Draw(t, "value")))
		if err != nil {
			t.Fatal(err)
		}
		e := request.Exemplar{
			T: rapid.Int64Range(0, mapping.MaxTime-3*mapping.HourMs).Draw(t, "t"),
			V: math.Float64frombits(rapid.Uint64().Draw(t, "v")), Labels: labels,
		}
		var b store.Batch
		var w exemplars.Writer
		w.Put(&b, "table", rows, tsuid, e, 1)
		m := b.At(0)
		gotTSUID, base, err := rows.AppendTSUID(nil, m.Row)
		if err != nil || !bytes.Equal(gotTSUID, tsuid) {
			t.Fatalf("got TSUID %x, %v, want %x", gotTSUID, err, tsuid)
		}
		got, err := exemplars.Parse(base, store.Cell{Qualifier: m.Qualifier, Value: m.Value})
		if err != nil || got.T != e.T || math.Float64bits(got.V) != math.Float64bits(e.V) ||
			!bytes.Equal(got.Labels, e.Labels) {
			t.Fatalf("got %+v, %v, want %+v", got, err, e)
		}
		// Of a metric's rows those of a range of hours, and no others.
		metric := tsuid[:schema.MetricWidth]
		if r := rows.Range(metric, base, base); bytes.Compare(m.Row, r.Start) < 0 || bytes.Compare(m.Row, r.Stop) >= 0 {
			t.Fatalf("row %x is not in %x", m.Row, r)
		}
		if r := rows.Range(metric, base+3600, base+7200); bytes.Compare(m.Row, r.Start) >= 0 {
			t.Fatalf("row %x is in the hour after", m.Row)
		}
	})
}

func TestAppendLabels_SortsAndRefuses(t *testing.T) {
	long := strings.Repeat("ü", 120) // characters count, not bytes
	for _, c := range []struct {
		raw  []byte
		want []byte
		text string
	}{
		{raw: nil, want: nil},
		{raw: raw("b", "1", "a", "2", "c", ""), want: raw("a", "2", "b", "1")},
		{raw: raw("trace_id", long), want: raw("trace_id", long)},
		{raw: raw("trace_id", long, "x", ""), want: raw("trace_id", long)},
		{raw: raw("trace_id", long+"x"), text: "more than the 128 characters"},
		{raw: raw("trace_id", long, "a", "b"), text: "more than the 128 characters"},
		{raw: raw("a", "1", "a", "1"), text: `label "a" of an exemplar is there twice`},
		{raw: raw("a", "\xff"), text: "must be UTF-8"},
		{raw: raw("", "a"), text: "the name not empty"},
		{raw: []byte{0x0a, 0x7f}, text: "length beyond the end"},
	} {
		got, err := exemplars.AppendLabels(nil, c.raw)
		if c.text == "" && (err != nil || !bytes.Equal(got, c.want)) {
			t.Errorf("%q: got %q, %v, want %q", c.raw, got, err, c.want)
		}
		if c.text != "" && (!errors.Is(err, mapping.ErrInvalid) || !strings.Contains(err.Error(), c.text)) {
			t.Errorf("%q: got %v, want ErrInvalid that says %q", c.raw, err, c.text)
		}
	}
}

func FuzzParse(f *testing.F) {
	rows := exemplars.NewRows(mapping.DefaultSchema())
	var b store.Batch
	var w exemplars.Writer
	w.Put(&b, "table", rows, make([]byte, 9), request.Exemplar{T: 5, V: 1, Labels: raw("a", "b")}, 1)
	f.Add(b.At(0).Row, b.At(0).Qualifier, b.At(0).Value)
	f.Add([]byte("x"), []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, row, qualifier, value []byte) {
		tsuid, base, err := rows.AppendTSUID(nil, row)
		if err != nil {
			if !errors.Is(err, mapping.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		if again := rows.Append(nil, tsuid, base); !bytes.Equal(again, row) {
			t.Fatalf("row %x became %x", row, again)
		}
		if _, err := exemplars.Parse(base, store.Cell{Qualifier: qualifier, Value: value}); err != nil &&
			!errors.Is(err, mapping.ErrCorrupt) {
			t.Fatal(err)
		}
	})
}

func TestRows_TextReadsBack(t *testing.T) {
	schema := mapping.DefaultSchema()
	schema.SaltWidth, schema.SaltBuckets = 1, 20
	rows := exemplars.NewRows(schema)
	rapid.Check(t, func(t *rapid.T) {
		row := rapid.SliceOfN(rapid.Byte(), 0, 30).Draw(t, "row")
		text := rows.Format(row)
		if got, err := rows.ParseFormatted(text); err != nil || !bytes.Equal(got, row) {
			t.Fatalf("row %x as %q: got %x, %v", row, text, got, err)
		}
	})
}
