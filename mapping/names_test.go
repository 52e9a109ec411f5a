package mapping_test

import (
	"errors"
	"slices"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
)

var bothNames = []mapping.Names{mapping.NamesRaw, mapping.NamesOpenTSDB}

func TestNames_Encode(t *testing.T) {
	for _, c := range []struct{ label, raw, opentsdb string }{
		{"node_cpu-1.a/b", "node_cpu-1.a/b", "node_cpu-1.a/b"},
		{"go:gc_x", "go:gc_x", "U__go_3a_gc__x"},
		{"10.0.0.1:9090", "10.0.0.1:9090", "U__10.0.0.1_3a_9090"},
		{"U__x", "U__x", "U__U____x"},
		{"métrique", "métrique", "U__m_e9_trique"},
		{"指标", "指标", "U___6307__6807_"},
		{"a b", "a b", "U__a_20_b"},
		{"🎈", "🎈", "U___1f388_"},
		{"\x00", "\x00\xff", "U___0_"},
		{"\x00\x00", "\x00\x00", "U___0__0_"},
		{"", "", ""},
		{mapping.NoMetric, mapping.NoMetric, mapping.NoMetric},
		{mapping.NoTagk, mapping.NoTagk, mapping.NoTagk},
	} {
		if got := mapping.NamesRaw.Encode(c.label); got != c.raw {
			t.Errorf("raw: name of %q is %q, want %q", c.label, got, c.raw)
		}
		if got := mapping.NamesOpenTSDB.Encode(c.label); got != c.opentsdb {
			t.Errorf("opentsdb: name of %q is %q, want %q", c.label, got, c.opentsdb)
		}
	}
}

func TestNames_Decode(t *testing.T) {
	for _, c := range []struct{ stored, raw, opentsdb string }{
		{"sys.cpu", "sys.cpu", "sys.cpu"},
		{"m\xe9trique", "métrique", "métrique"},
		{"métrique", "métrique", "métrique"},
		{"U__go_3a_gc__x", "U__go_3a_gc__x", "go:gc_x"},
		{"\x00\xff", "\x00", "\x00"},
		{"\xff\x00", "ÿ\x00", "ÿ\x00"},
		{mapping.NoMetric, mapping.NoMetric, mapping.NoMetric},
		{mapping.NoTagv, mapping.NoTagv, mapping.NoTagv},
		// What is no escape that Encode makes is a name in itself.
		{"U__", "U__", "U__"},
		{"U__abc", "U__abc", "U__abc"},
		{"U__a_3a", "U__a_3a", "U__a_3a"},
		{"U__a_3A_", "U__a_3A_", "U__a_3A_"},
		{"U__a_03a_", "U__a_03a_", "U__a_03a_"},
		{"U__a_61_", "U__a_61_", "U__a_61_"},
		{"U__a_d800_", "U__a_d800_", "U__a_d800_"},
		{"U__a_110000_", "U__a_110000_", "U__a_110000_"},
		{"U__a_fffffffffffffffff_", "U__a_fffffffffffffffff_", "U__a_fffffffffffffffff_"},
		{"U__a_+3a_", "U__a_+3a_", "U__a_+3a_"},
		{"U__a:b", "U__a:b", "U__a:b"},
		{"U__a\xff", "U__aÿ", "U__aÿ"},
	} {
		if got := mapping.NamesRaw.Decode(c.stored); got != c.raw {
			t.Errorf("raw: label of %q is %q, want %q", c.stored, got, c.raw)
		}
		if got := mapping.NamesOpenTSDB.Decode(c.stored); got != c.opentsdb {
			t.Errorf("opentsdb: label of %q is %q, want %q", c.stored, got, c.opentsdb)
		}
	}
}

func TestNames_Variants(t *testing.T) {
	for _, c := range []struct {
		label         string
		raw, opentsdb []string
	}{
		{"abc", []string{"abc"}, []string{"abc"}},
		{"a:b", []string{"a:b"}, []string{"U__a_3a_b", "a:b"}},
		{"é", []string{"é", "\xe9"}, []string{"U___e9_", "é", "\xe9"}},
		{"指", []string{"指"}, []string{"U___6307_", "指"}},
		{"U__abc", []string{"U__abc"}, []string{"U__U____abc", "U__abc"}},
		{"U__a_3a_b", []string{"U__a_3a_b"}, []string{"U__U____a__3a__b"}}, // its bytes mean a:b
		{"no_metricÿ", []string{"no_metricÿ"}, []string{"U__no__metric_ff_", "no_metricÿ"}},
		{"Ã©", []string{"Ã©"}, []string{"U___c3__a9_", "Ã©"}}, // its ISO-8859-1 form is é in UTF-8
		{"\x00", []string{"\x00\xff"}, []string{"U___0_", "\x00\xff"}},
		{"\x00ÿ", []string{"\x00ÿ"}, []string{"U___0__ff_", "\x00ÿ"}},
		{mapping.NoMetric, []string{mapping.NoMetric}, []string{mapping.NoMetric}},
	} {
		if got := mapping.NamesRaw.Variants(c.label); !slices.Equal(got, c.raw) {
			t.Errorf("raw: variants of %q are %q, want %q", c.label, got, c.raw)
		}
		if got := mapping.NamesOpenTSDB.Variants(c.label); !slices.Equal(got, c.opentsdb) {
			t.Errorf("opentsdb: variants of %q are %q, want %q", c.label, got, c.opentsdb)
		}
	}
}

// drawLabel draws valid UTF-8, most of it near what the spellings treat in a special way.
func drawLabel(t *rapid.T, name string) string {
	return rapid.OneOf(
		rapid.StringOf(rapid.SampledFrom([]rune("Ua_03aeé:\x00ÿ指./"))),
		rapid.String(),
		rapid.Map(rapid.StringOf(rapid.SampledFrom([]rune("_03ae:é"))), func(s string) string { return "U__" + s }),
	).Draw(t, name)
}

func TestNames_LabelsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		label := drawLabel(t, "label")
		for _, n := range bothNames {
			stored := n.Encode(label)
			if got := n.Decode(stored); got != label {
				t.Fatalf("%s: label %q is stored as %q and read as %q", n, label, stored, got)
			}
			if variants := n.Variants(label); variants[0] != stored {
				t.Fatalf("%s: variants of %q are %q, the first not %q", n, label, variants, stored)
			}
			if stored == "\x00" {
				t.Fatalf("%s: label %q is stored in the row of the counters", n, label)
			}
		}
	})
}

func TestNames_DifferentLabelsHaveDifferentNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawLabel(t, "a"), drawLabel(t, "b")
		for _, n := range bothNames {
			if a != b && n.Encode(a) == n.Encode(b) {
				t.Fatalf("%s: %q and %q are both stored as %q", n, a, b, n.Encode(a))
			}
		}
	})
}

func TestNames_VariantsAreAllThatMeanTheLabel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stored := rapid.OneOf(
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
			rapid.Custom(func(t *rapid.T) string { return mapping.NamesOpenTSDB.Encode(drawLabel(t, "label")) }),
		).Draw(t, "stored")
		if stored == "\x00" {
			t.Skip("the row of the counters is no name")
		}
		for _, n := range bothNames {
			label := n.Decode(stored)
			if variants := n.Variants(label); !slices.Contains(variants, stored) {
				t.Fatalf("%s: %q means %q, whose variants are %q", n, stored, label, variants)
			}
			for _, v := range n.Variants(label) {
				if n.Decode(v) != label {
					t.Fatalf("%s: variant %q of %q means %q", n, v, label, n.Decode(v))
				}
			}
		}
	})
}

func TestParseNames_ReadsWhatStringWrites(t *testing.T) {
	for _, n := range bothNames {
		if got, err := mapping.ParseNames(n.String()); err != nil || got != n {
			t.Errorf("ParseNames(%q) = %v, %v", n, got, err)
		}
	}
	for _, s := range []string{"", "Raw", "utf8"} {
		if _, err := mapping.ParseNames(s); !errors.Is(err, mapping.ErrInvalid) {
			t.Errorf("ParseNames(%q): got %v, want ErrInvalid", s, err)
		}
	}
}

func FuzzNamesDecode(f *testing.F) {
	for _, s := range []string{
		"", "abc", "U__go_3a_gc", "U___", "U____", "m\xe9", "é", "\x00\xff", mapping.NoMetric, "U__\xff",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, stored string) {
		for _, n := range bothNames {
			label := n.Decode(stored)
			if label != mapping.NoMetric && label != mapping.NoTagk && !utf8.ValidString(label) {
				t.Fatalf("%s: label %q of %q is no UTF-8", n, label, stored)
			}
			if got := n.Decode(n.Encode(label)); got != label {
				t.Fatalf("%s: label %q reads back as %q", n, label, got)
			}
			if stored != "\x00" && !slices.Contains(n.Variants(label), stored) {
				t.Fatalf("%s: %q means %q, whose variants are %q", n, stored, label, n.Variants(label))
			}
		}
	})
}
