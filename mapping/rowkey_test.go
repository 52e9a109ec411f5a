package mapping_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
)

func TestRowKey_HasTheBytesOfOpenTSDB(t *testing.T) {
	salted := mapping.DefaultSchema()
	salted.SaltWidth = 1
	wide := salted
	wide.SaltWidth, wide.SaltBuckets = 2, 300
	for _, c := range []struct {
		schema mapping.Schema
		tsuid  string
		row    string
		text   string
	}{
		{
			mapping.DefaultSchema(), "000001000001000001",
			"000001" + "50e22700" + "000001000001", "metric 000001 tags 000001=000001 2013-01-01T00:00:00Z",
		},
		{
			salted, "000001000001000001",
			"08" + "000001" + "50e22700" + "000001000001", "metric 000001 tags 000001=000001 2013-01-01T00:00:00Z salt 08",
		},
		{
			salted, "00000200000100000100000200000d",
			"00" + "000002" + "50e22700" + "00000100000100000200000d",
			"metric 000002 tags 000001=000001 000002=00000d 2013-01-01T00:00:00Z salt 00",
		},
		{
			wide, "00000200000100000100000200000d",
			"0078" + "000002" + "50e22700" + "00000100000100000200000d",
			"metric 000002 tags 000001=000001 000002=00000d 2013-01-01T00:00:00Z salt 0078",
		},
		{salted, "000000", "00" + "000000" + "50e22700", "metric 000000 2013-01-01T00:00:00Z salt 00"}, // a global annotation
	} {
		tsuid, _ := hex.DecodeString(c.tsuid)
		row := c.schema.AppendRowKey(nil, tsuid, 0x50e22700)
		if got := hex.EncodeToString(row); got != c.row {
			t.Errorf("row key of %s: got %s, want %s", c.tsuid, got, c.row)
		}
		if got := c.schema.FormatRowKey(row); got != c.text {
			t.Errorf("text of row key %s: got %q, want %q", c.row, got, c.text)
		}
	}
}

func TestSortTags_IsByTagkUID(t *testing.T) {
	tags := []mapping.Tag{{Key: 0x100, Value: 1}, {Key: 0xff, Value: 9}, {Key: 2, Value: 2}, {Key: 2, Value: 1}}
	mapping.DefaultSchema().SortTags(tags)
	want := []mapping.Tag{{Key: 2, Value: 1}, {Key: 2, Value: 2}, {Key: 0xff, Value: 9}, {Key: 0x100, Value: 1}}
	if !slices.Equal(tags, want) {
		t.Errorf("got %v, want %v", tags, want)
	}
}

func TestRowKey_ReadsBackWhatWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSchema(t)
		metric := drawUID(t, s, mapping.Metric)
		tags := make([]mapping.Tag, rapid.IntRange(0, 12).Draw(t, "tags"))
		for i := range tags {
			tags[i] = mapping.Tag{Key: drawUID(t, s, mapping.Tagk), Value: drawUID(t, s, mapping.Tagv)}
		}
		s.SortTags(tags)
		base := rapid.Uint32().Draw(t, "base")
		tsuid := s.AppendTSUID(nil, metric, tags)

		gotMetric, gotTags, err := s.ParseTSUID(tsuid, nil)
		if err != nil || gotMetric != metric || !slices.Equal(gotTags, tags) {
			t.Fatalf("TSUID %x: got %d %v %v, want %d %v", tsuid, gotMetric, gotTags, err, metric, tags)
		}
		row := s.AppendRowKey(nil, tsuid, 0)
		s.SetBaseTime(row, base)
		if want := s.AppendRowKey(nil, tsuid, base); !bytes.Equal(row, want) {
			t.Fatalf("row key with base time set: got %x, want %x", row, want)
		}
		gotTSUID, gotBase, err := s.AppendRowTSUID(nil, row)
		if err != nil || gotBase != base || !bytes.Equal(gotTSUID, tsuid) {
			t.Fatalf("row key %x: got %x %d %v, want %x %d", row, gotTSUID, gotBase, err, tsuid, base)
		}
		key, err := s.ParseRowKey(row)
		if err != nil {
			t.Fatal(err)
		}
		if want := s.AppendSalt(nil, s.Bucket(tsuid)); !bytes.Equal(key.Salt, want) {
			t.Fatalf("salt %x, want %x", key.Salt, want)
		}
		if got := slices.Concat(key.Metric, key.Tags); !bytes.Equal(got, tsuid) || key.Base != base {
			t.Fatalf("parts of row key %x: got %x %d, want %x %d", row, got, key.Base, tsuid, base)
		}
		if !bytes.Equal(row[s.TagsOffset():], key.Tags) || len(key.Tags) != len(tags)*s.PairWidth() {
			t.Fatalf("tags %x of row key %x are not at %d", key.Tags, row, s.TagsOffset())
		}
	})
}

func TestRowKey_TextReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSchema(t)
		row := rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "row")
		text := s.FormatRowKey(row)
		got, err := s.ParseFormattedRowKey(text)
		if err != nil || !bytes.Equal(got, row) {
			t.Fatalf("row key %x as %q: got %x, %v", row, text, got, err)
		}
	})
}

func TestTSUID_TextReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSchema(t)
		tsuid := rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "tsuid")
		text := s.FormatTSUID(tsuid)
		got, err := s.ParseFormattedTSUID(text)
		if err != nil || !bytes.Equal(got, tsuid) {
			t.Fatalf("TSUID %x as %q: got %x, %v", tsuid, text, got, err)
		}
	})
}

func TestFormatNamedRowKey_ShowsWhatNamesThereAre(t *testing.T) {
	s := mapping.DefaultSchema()
	names := map[mapping.Kind]map[mapping.UID]string{
		mapping.Metric: {1: "up", 2: mapping.NoMetric}, mapping.Tagk: {1: "instance", 3: mapping.NoTagk},
		mapping.Tagv: {1: `a "b"`},
	}
	name := func(kind mapping.Kind, uid mapping.UID) (string, bool) {
		text, ok := names[kind][uid]
		return text, ok
	}
	for _, c := range []struct {
		metric mapping.UID
		tags   []mapping.Tag
		want   string
	}{
		{1, []mapping.Tag{{Key: 1, Value: 1}, {Key: 2, Value: 13}}, `up{instance="a \"b\"", tagk:2="tagv:13"}`},
		{7, nil, "metrics:7{}"},
		{2, []mapping.Tag{{Key: 3, Value: 3}}, "{}"},
	} {
		row := s.AppendRowKey(nil, s.AppendTSUID(nil, c.metric, c.tags), 1356998400)
		if got := s.FormatNamedRowKey(row, name); got != c.want+" 2013-01-01T00:00:00Z" {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
	if got, want := s.FormatNamedRowKey([]byte{1, 2}, name), "bytes:0102"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestParseFormattedRowKey_NamesThePartThatIsWrong(t *testing.T) {
	s := mapping.DefaultSchema()
	for text, want := range map[string]string{
		"":                                   "word metric",
		"000001 2013-01-01T00:00:00Z":        "word metric",
		"metric":                             "metric UID",
		"metric 00000x 2013-01-01":           "metric UID",
		"metric 000001":                      "base time",
		"metric 000001 yesterday":            "base time",
		"metric 000001 tags yesterday":       "no tags",
		"metric 000001 2200-01-01T00:00:00Z": "base time",
		"metric 000001 2013-01-01T00:00:00Z salt 01":       "more than",
		"metric 000001 tags 1=000001 2013-01-01T00:00:00Z": "tagk UID",
		"metric 000001 tags 000001= 2013-01-01T00:00:00Z":  "tagv UID",
		"bytes:0": "odd length",
	} {
		row, err := s.ParseFormattedRowKey(text)
		if !errors.Is(err, mapping.ErrInvalid) || !strings.Contains(err.Error(), want) || row != nil {
			t.Errorf("%q: got %x, %v, want ErrInvalid about the %s", text, row, err, want)
		}
	}
}

func TestRowKeyAndTSUID_HalfATagIsCorrupt(t *testing.T) {
	s := mapping.DefaultSchema()
	tags := []mapping.Tag{{Key: 7, Value: 7}}
	for _, size := range []int{0, 2, 6, 8, 10, 12, 14, 100} {
		row := make([]byte, size)
		if _, err := s.ParseRowKey(row); !errors.Is(err, mapping.ErrCorrupt) {
			t.Errorf("row key of %d bytes: got %v, want ErrCorrupt", size, err)
		}
		got, _, err := s.AppendRowTSUID([]byte("x"), row)
		if !errors.Is(err, mapping.ErrCorrupt) || string(got) != "x" {
			t.Errorf("TSUID of a row key of %d bytes: got %x, %v, want ErrCorrupt", size, got, err)
		}
	}
	for _, size := range []int{0, 2, 4, 8, 10} {
		if _, got, err := s.ParseTSUID(make([]byte, size), tags); !errors.Is(err, mapping.ErrCorrupt) || len(got) != 1 {
			t.Errorf("TSUID of %d bytes: got %v, %v, want ErrCorrupt", size, got, err)
		}
	}
}

func TestBucket_IsBelowTheNumberOfBuckets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSchema(t)
		tsuid := rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "tsuid")
		if b := s.Bucket(tsuid); b < 0 || b >= s.SaltBuckets {
			t.Fatalf("bucket %d of %d", b, s.SaltBuckets)
		}
	})
}

func FuzzParseRowKey(f *testing.F) {
	f.Add([]byte("\x08\x00\x00\x01\x50\xe2\x27\x00\x00\x00\x01\x00\x00\x01"), uint8(1), uint8(3))
	f.Add([]byte("\x00\x00\x01\x50\xe2\x27\x00"), uint8(0), uint8(3))
	f.Add([]byte{}, uint8(8), uint8(8))
	f.Fuzz(func(t *testing.T, row []byte, saltWidth, width uint8) {
		s := fuzzSchema(saltWidth, width)
		text := s.FormatRowKey(row)
		if got, err := s.ParseFormattedRowKey(text); err != nil || !bytes.Equal(got, row) {
			t.Fatalf("row key %x as %q: got %x, %v", row, text, got, err)
		}
		key, err := s.ParseRowKey(row)
		tsuid, base, tsuidErr := s.AppendRowTSUID(nil, row)
		if (err == nil) != (tsuidErr == nil) {
			t.Fatalf("row key %x: ParseRowKey %v, AppendRowTSUID %v", row, err, tsuidErr)
		}
		if err != nil {
			return
		}
		if base != key.Base || !bytes.Equal(tsuid, slices.Concat(key.Metric, key.Tags)) {
			t.Fatalf("row key %x: got TSUID %x at %d, parts %+v", row, tsuid, base, key)
		}
		if got := s.AppendRowKey(nil, tsuid, base); !bytes.Equal(got[s.SaltWidth:], row[s.SaltWidth:]) {
			t.Fatalf("row key of TSUID %x: got %x, want %x", tsuid, got, row)
		}
	})
}

func FuzzParseTSUID(f *testing.F) {
	f.Add([]byte("\x00\x00\x01\x00\x00\x01\x00\x00\x01"), uint8(3))
	f.Add([]byte("\x00\x00\x01\x00\x00\x01\x00\x00"), uint8(3))
	f.Add([]byte{}, uint8(1))
	f.Fuzz(func(t *testing.T, tsuid []byte, width uint8) {
		s := fuzzSchema(0, width)
		metric, tags, err := s.ParseTSUID(tsuid, nil)
		if err != nil {
			return
		}
		if got := s.AppendTSUID(nil, metric, tags); !bytes.Equal(got, tsuid) {
			t.Fatalf("TSUID %x read as %d %v and written as %x", tsuid, metric, tags, got)
		}
	})
}

func fuzzSchema(saltWidth, width uint8) mapping.Schema {
	w := int(width)%8 + 1
	return mapping.Schema{
		MetricWidth: w, TagkWidth: w%3 + 1, TagvWidth: w, SaltWidth: int(saltWidth) % 9, SaltBuckets: 20,
	}
}
