package uid_test

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/uid"
)

func TestKey_TextReadsBack(t *testing.T) {
	schema := mapping.DefaultSchema()
	schema.MetricWidth = 2
	rapid.Check(t, func(t *rapid.T) {
		row := rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "row")
		family := rapid.SampledFrom([]string{"id", "name"}).Draw(t, "family")
		qualifier := []byte(rapid.SampledFrom([]string{"metrics", "tagk", "tagv"}).Draw(t, "qualifier"))
		text, ok := uid.FormatKey(schema, row, family, qualifier)
		if !ok {
			return
		}
		gotRow, gotFamily, gotQualifier, err := uid.ParseKey(schema, text)
		if err != nil || !bytes.Equal(gotRow, row) || gotFamily != family || !bytes.Equal(gotQualifier, qualifier) {
			t.Fatalf("%x %s %s as %q: got %x %s %s, %v", row, family, qualifier, text, gotRow, gotFamily, gotQualifier, err)
		}
	})
}

func TestParseKey_RefusesOtherTexts(t *testing.T) {
	for _, text := range []string{"", "metrics", "metrics up", "metrics 0001", "series 000001", `tagk "a`} {
		if _, _, _, err := uid.ParseKey(mapping.DefaultSchema(), text); !errors.Is(err, mapping.ErrInvalid) {
			t.Errorf("%q: got %v, want ErrInvalid", text, err)
		}
	}
}

func TestFormatRowKey_ShowsTheNamesThatAreCached(t *testing.T) {
	r := newRegistry(t, config(newFake()))
	uids := assign(t, r, metric("up"), tagk("instance"), tagv("a"))
	schema := mapping.DefaultSchema()
	tsuid := schema.AppendTSUID(nil, uids[0], []mapping.Tag{{Key: uids[1], Value: uids[2]}, {Key: 9, Value: 7}})
	if got, want := r.FormatTSUID(tsuid), `up{instance="a", tagk:9="tagv:7"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	want := `up{instance="a", tagk:9="tagv:7"} 2013-01-01T00:00:00Z`
	if got := r.FormatRowKey(schema.AppendRowKey(nil, tsuid, 1356998400)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
