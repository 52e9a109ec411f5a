package feed_test

import (
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/index/feed"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

// member is a feed of one process, and what it has read.
func member(t *testing.T, st store.Store) (f *feed.Feed, read *[]string) {
	read = new([]string)
	return feed.New(feed.Config{
		Store: st, Table: "own", Interval: time.Hour,
		Apply: func(changes iter.Seq2[mapping.Day, []byte]) {
			for day, tsuid := range changes {
				*read = append(*read, fmt.Sprintf("%d %x", day, tsuid))
			}
		},
		Lose: func() { t.Error("it has lost changes") },
	}), read
}

func TestFeed_TellsOthersOfIndexRows(t *testing.T) {
	st := storetest.NewMem()
	if err := st.CreateTable(t.Context(), store.Table{Name: "own", Families: []string{"p"}}); err != nil {
		t.Fatal(err)
	}
	one, readByOne := member(t, st)
	two, readByTwo := member(t, st)
	var b store.Batch
	b.Put("own", []byte("other"), "p", nil, 7, nil)
	b.Put("own", []byte("d\x4e\x20\x00\x01"), "p", nil, 7, nil)
	b.Put("own", []byte("d\x4e\x21\x00\x02"), "p", nil, 7, nil)
	one.Put(&b, []int{1, 2})
	if err := st.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if two.Fresh() {
		t.Error("a feed that has read nothing says that it knows all")
	}
	for range 2 { // the second time nothing is new
		for _, f := range []*feed.Feed{one, two} {
			if err := f.Read(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if want := []string{"20000 0001", "20001 0002"}; !slices.Equal(*readByTwo, want) || !two.Fresh() {
		t.Errorf("the other process has read %q, want %q", *readByTwo, want)
	}
	if len(*readByOne) != 0 {
		t.Errorf("a process has read %q of its own", *readByOne)
	}
	row := b.At(3)
	if row.Timestamp != 7 {
		t.Errorf("the row has timestamp %d, want that of the index rows", row.Timestamp)
	}
	if text, ok := feed.FormatKey(row.Row); !ok || text != fmt.Sprintf("change 1 of the index, by %x", row.Row[1:9]) {
		t.Errorf("FormatKey = %q, %v", text, ok)
	}
}

func FuzzChanges(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 11, 0x4e, 0x20, 0, 0, 1, 0, 0, 1, 0, 0, 1})
	f.Add([]byte{0, 11, 0x4e, 0x20, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 2, 0, 1, 0, 1, 7, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, value []byte) {
		left := len(value)
		for _, tsuid := range feed.Changes(value) {
			if left -= 4 + len(tsuid); left < 0 {
				t.Fatalf("the changes of %x are longer than it", value)
			}
		}
	})
}
