package pebble

import (
	"errors"
	"strings"
	"testing"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/promtsd/promtsd/store"
)

func TestOpen_RefusesCatalogsItDoesNotUnderstand(t *testing.T) {
	for _, c := range []struct {
		name, row, qualifier, value string
		class                       error
		want                        string
	}{
		{"newer layout", "", "", "\x03", store.ErrInvalid, "use a newer one"},
		{"older layout", "", "", "\x01", store.ErrInvalid, "begin with an empty directory"},
		{"layout without a secret", "", "", "\x02\x01", store.ErrCorrupt, "layout version"},
		{"table without ids", "t", "\x01", "", store.ErrCorrupt, "catalog cell"},
		{"table id 0", "t", "\x01", "\x00\x00f", store.ErrCorrupt, "catalog cell"},
		{"table id 255", "t", "\x01", "\xff\x00f", store.ErrCorrupt, "catalog cell"},
		{"unknown kind of table", "t", "\x01", "\x01\x02f", store.ErrCorrupt, "catalog cell"},
		{"family that is not the next", "t", "\x02", "\x01\x00f", store.ErrCorrupt, "catalog cell"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := Config{Dir: "db", FS: vfs.NewMem()}
			s, err := Open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			key := appendKey(nil, catalogTable, []byte(c.row), 0, []byte(c.qualifier))
			if err := s.data.db.Set(key, payload{body: []byte(c.value)}.append(nil, 0), lsm.Sync); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s, err = Open(cfg)
			if err == nil {
				_ = s.Close()
			}
			if !errors.Is(err, c.class) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Open = %v, want %v with %q", err, c.class, c.want)
			}
			if again, err := Open(cfg); err == nil || again != nil {
				t.Errorf("Open again = %v, want the same refusal", err)
			} else if strings.Contains(err.Error(), "in use") {
				t.Errorf("a refused Open left the directory locked: %v", err)
			}
		})
	}
}

func TestCreateTable_EndsWhereIdsEnd(t *testing.T) {
	s, err := Open(Config{Dir: "db", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxTable + 1 {
		name := strings.Repeat("t", i+1)
		err := s.CreateTable(t.Context(), store.Table{Name: name, Families: []string{"f"}})
		if i < maxTable && err != nil || i == maxTable && !errors.Is(err, store.ErrInvalid) {
			t.Fatalf("table %d: %v", i+1, err)
		}
	}
	var b store.Batch
	b.Put(strings.Repeat("t", maxTable), []byte("\xff\xff"), "f", nil, 0, nil)
	if err := s.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range s.Scan(t.Context(), store.Scan{Table: strings.Repeat("t", maxTable)}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 1 {
		t.Errorf("%d rows in the last table, want 1", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
