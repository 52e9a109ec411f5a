package mapping_test

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
)

// drawSchema draws any valid schema.
func drawSchema(t *rapid.T) mapping.Schema {
	s := mapping.Schema{
		MetricWidth: rapid.IntRange(1, 8).Draw(t, "metric width"),
		TagkWidth:   rapid.IntRange(1, 8).Draw(t, "tagk width"),
		TagvWidth:   rapid.IntRange(1, 8).Draw(t, "tagv width"),
		SaltWidth:   rapid.IntRange(0, 8).Draw(t, "salt width"),
		SaltBuckets: rapid.IntRange(1, 256).Draw(t, "salt buckets"),
	}
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	return s
}

func drawUID(t *rapid.T, s mapping.Schema, k mapping.Kind) mapping.UID {
	return mapping.UID(rapid.Uint64Range(0, uint64(s.MaxUID(k))).Draw(t, k.String()))
}

func TestSchema_ValidateRefusesWhatTheFormatsDoNotHave(t *testing.T) {
	with := func(change func(*mapping.Schema)) mapping.Schema {
		s := mapping.DefaultSchema()
		change(&s)
		return s
	}
	for name, s := range map[string]mapping.Schema{
		"no metric":       with(func(s *mapping.Schema) { s.MetricWidth = 0 }),
		"wide tagk":       with(func(s *mapping.Schema) { s.TagkWidth = 9 }),
		"negative tagv":   with(func(s *mapping.Schema) { s.TagvWidth = -1 }),
		"wide salt":       with(func(s *mapping.Schema) { s.SaltWidth = 9 }),
		"no buckets":      with(func(s *mapping.Schema) { s.SaltWidth, s.SaltBuckets = 1, 0 }),
		"too many for it": with(func(s *mapping.Schema) { s.SaltWidth, s.SaltBuckets = 1, 257 }),
	} {
		if err := s.Validate(); !errors.Is(err, mapping.ErrInvalid) {
			t.Errorf("%s: %+v: got %v, want ErrInvalid", name, s, err)
		}
	}
	for _, s := range []mapping.Schema{
		mapping.DefaultSchema(),
		with(func(s *mapping.Schema) { s.SaltWidth, s.SaltBuckets = 1, 256 }),
		with(func(s *mapping.Schema) { s.SaltWidth, s.SaltBuckets = 0, 0 }),
	} {
		if err := s.Validate(); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

func TestSchema_UIDsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSchema(t)
		for _, k := range []mapping.Kind{mapping.Metric, mapping.Tagk, mapping.Tagv} {
			want := drawUID(t, s, k)
			b := s.AppendUID([]byte("x"), k, want)
			if len(b) != 1+s.Width(k) {
				t.Fatalf("UID %d of %s has %d bytes, want %d", want, k, len(b)-1, s.Width(k))
			}
			if got, err := s.ParseUID(k, b[1:]); err != nil || got != want {
				t.Fatalf("UID of %s: got %d, %v, want %d", k, got, err, want)
			}
			if _, err := s.ParseUID(k, b); !errors.Is(err, mapping.ErrCorrupt) {
				t.Fatalf("UID of a wrong width: got %v, want ErrCorrupt", err)
			}
		}
	})
}

func TestSchema_MaxUIDIsAllOnes(t *testing.T) {
	s := mapping.Schema{MetricWidth: 1, TagkWidth: 3, TagvWidth: 8}
	for _, k := range []mapping.Kind{mapping.Metric, mapping.Tagk, mapping.Tagv} {
		want := bytes.Repeat([]byte{0xff}, s.Width(k))
		if got := s.AppendUID(nil, k, s.MaxUID(k)); !bytes.Equal(got, want) {
			t.Errorf("largest UID of %s is %x, want %x", k, got, want)
		}
	}
}
