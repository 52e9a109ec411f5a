package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/store"
)

// TestBatch_HandsOutWhatWasPutIn compares a batch with a plain list of the same mutations.
func TestBatch_HandsOutWhatWasPutIn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b store.Batch
		for round := range 2 { // the second on a batch that was reset
			var want []store.Mutation
			size := 0
			for range rapid.IntRange(0, 30).Draw(t, "mutations") {
				part := rapid.SliceOfN(rapid.Byte(), 1, 20)
				m := store.Mutation{
					Table:     fmt.Sprint("table", rapid.IntRange(0, 3).Draw(t, "table")),
					Delete:    rapid.Bool().Draw(t, "delete"),
					Row:       part.Draw(t, "row"),
					Family:    part.Draw(t, "family"),
					Qualifier: part.Draw(t, "qualifier")[1:],
					Timestamp: rapid.Int64().Draw(t, "timestamp"),
				}
				row, qualifier := bytes.Clone(m.Row), bytes.Clone(m.Qualifier)
				if m.Delete {
					b.Delete(m.Table, row, string(m.Family), qualifier, m.Timestamp)
				} else {
					m.Value = part.Draw(t, "value")[1:]
					value := bytes.Clone(m.Value)
					b.Put(m.Table, row, string(m.Family), qualifier, m.Timestamp, value)
					clear(value)
				}
				clear(row) // the caller may use them again
				clear(qualifier)
				want = append(want, m)
				size += len(m.Row) + len(m.Family) + len(m.Qualifier) + len(m.Value)
			}
			if b.Len() != len(want) || b.Size() != size || b.Err() != nil {
				t.Fatalf("round %d: Len %d, Size %d, Err %v, want %d, %d", round, b.Len(), b.Size(), b.Err(), len(want), size)
			}
			for i, w := range want {
				if got := b.At(i); !equal(got, w) {
					t.Fatalf("round %d: At(%d) = %+v, want %+v", round, i, got, w)
				}
			}
			b.Reset()
			if b.Len() != 0 || b.Size() != 0 || b.Err() != nil {
				t.Fatalf("after Reset: Len %d, Size %d, Err %v", b.Len(), b.Size(), b.Err())
			}
		}
	})
}

func equal(a, b store.Mutation) bool {
	return a.Table == b.Table && a.Delete == b.Delete && a.Timestamp == b.Timestamp && bytes.Equal(a.Row, b.Row) &&
		bytes.Equal(a.Family, b.Family) && bytes.Equal(a.Qualifier, b.Qualifier) && bytes.Equal(a.Value, b.Value)
}

func TestBatch_RemembersTheFirstRefusal(t *testing.T) {
	row, long := []byte("r"), make([]byte, store.MaxRow+1)
	for _, c := range []struct {
		name string
		want string
		add  func(*store.Batch)
	}{
		{"no table", "table", func(b *store.Batch) { b.Put("", row, "f", nil, 0, nil) }},
		{"empty row", "row key of 0 bytes", func(b *store.Batch) { b.Put("t", nil, "f", nil, 0, nil) }},
		{"long row", "row key of 32768 bytes", func(b *store.Batch) { b.Delete("t", long, "f", nil, 0) }},
		{"empty family", "family name of 0 bytes", func(b *store.Batch) { b.Put("t", row, "", nil, 0, nil) }},
		{"long family", "family name of 256 bytes", func(b *store.Batch) {
			b.Put("t", row, strings.Repeat("f", store.MaxFamily+1), nil, 0, nil)
		}},
		{"long qualifier", "qualifier of", func(b *store.Batch) {
			b.Put("t", row, "f", make([]byte, store.MaxQualifier+1), 0, nil)
		}},
		{"long value", "value of", func(b *store.Batch) { b.Put("t", row, "f", nil, 0, make([]byte, store.MaxValue+1)) }},
		{"many tables", "256 tables", func(b *store.Batch) {
			for i := range 257 {
				b.Put(fmt.Sprint("t", i), row, "f", nil, 0, nil)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b store.Batch
			b.Put("t0", row, "f", nil, 0, nil)
			c.add(&b)
			first := b.Err()
			if !errors.Is(first, store.ErrInvalid) || !strings.Contains(first.Error(), c.want) {
				t.Fatalf("Err() = %v, want ErrInvalid with %q", first, c.want)
			}
			b.Put("t0", nil, "f", nil, 0, nil)
			if b.Err() != first { // the very same value
				t.Errorf("Err() became %v, want the first, %v", b.Err(), first)
			}
		})
	}
}

func TestBatch_TakesWhatIsJustWithinBounds(t *testing.T) {
	var b store.Batch
	row, family := make([]byte, store.MaxRow), strings.Repeat("f", store.MaxFamily)
	b.Put("t", row, family, make([]byte, store.MaxQualifier), 0, nil)
	for i := range 256 {
		b.Put(fmt.Sprint("table", i), row[:1], family[:1], nil, 0, nil)
		if i == 254 {
			break // with "t", 256 tables
		}
	}
	if b.Err() != nil || b.Len() != 256 {
		t.Fatalf("Len %d, Err %v, want 256 and none", b.Len(), b.Err())
	}
	m := b.At(0)
	if len(m.Row) != store.MaxRow || len(m.Family) != store.MaxFamily || len(m.Qualifier) != store.MaxQualifier {
		t.Errorf("At(0) has %d, %d and %d bytes", len(m.Row), len(m.Family), len(m.Qualifier))
	}
	if m := b.At(255); m.Table != "table254" {
		t.Errorf("At(255) is of table %s, want table254", m.Table)
	}
}

func TestBatch_DoesNotAllocateOnceGrown(t *testing.T) {
	var b store.Batch
	row, qualifier, value := []byte("row"), []byte("qual"), []byte("value")
	fill := func() {
		b.Reset()
		for range 1000 {
			b.Put("t", row, "f", qualifier, 1, value)
			b.Put("u", row, "f", qualifier, 1, value)
		}
	}
	fill()
	if n := testing.AllocsPerRun(10, fill); n > 0 {
		t.Errorf("%v allocations to fill a batch again, want none", n)
	}
}

func TestCoord_CheckRefusesWhatABatchRefuses(t *testing.T) {
	good := store.Coord{Table: "t", Row: []byte("r"), Family: "f"}
	if err := good.Check(); err != nil {
		t.Errorf("Check(%+v) = %v", good, err)
	}
	for _, bad := range []store.Coord{
		{}, {Table: "t", Family: "f"}, {Table: "t", Row: good.Row}, {Row: good.Row, Family: "f"},
	} {
		if err := bad.Check(); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("Check(%+v) = %v, want ErrInvalid", bad, err)
		}
	}
}

func BenchmarkBatch(b *testing.B) {
	b.ReportAllocs()
	var batch store.Batch
	row, qualifier, value := make([]byte, 43), make([]byte, 4), make([]byte, 8)
	const cells = 2000
	b.SetBytes(cells * (43 + 4 + 8))
	for b.Loop() {
		batch.Reset()
		for range cells {
			batch.Put("tsdb", row, "t", qualifier, 1, value)
		}
		for i := range batch.Len() {
			if batch.At(i).Delete {
				b.Fatal("a put became a delete")
			}
		}
	}
	b.ReportMetric(cells*float64(b.N)/b.Elapsed().Seconds(), "cells/s")
}
