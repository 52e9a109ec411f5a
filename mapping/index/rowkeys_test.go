package index

import (
	"fmt"
	"regexp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
)

func TestRowRegexp_IsAsDrawn(t *testing.T) {
	plain := mapping.DefaultSchema()
	salted := mapping.Schema{MetricWidth: 2, TagkWidth: 1, TagvWidth: 4, SaltWidth: 1, SaltBuckets: 6}
	test := func(key mapping.UID, values ...mapping.UID) *tagTest {
		t := &tagTest{keys: []mapping.UID{key}, matched: map[mapping.UID]bool{}, closed: values != nil}
		for _, v := range values {
			t.matched[v] = true
		}
		return t
	}
	absent, two, many := test(1, 1), test(1, 1), test(1)
	absent.absent, two.keys, many.closed = true, []mapping.UID{1, 2}, true
	for v := range mapping.UID(maxRegexpValues + 1) {
		many.matched[v] = true
	}
	for _, c := range []struct {
		schema mapping.Schema
		tags   []*tagTest
		want   string
	}{
		{plain, nil, ``},
		{plain, []*tagTest{absent, two, many}, ``},
		{plain, []*tagTest{test(1, 2, 1)}, `^.{7}(?:.{6})*\x00\x00\x01(?:\x00\x00\x01|\x00\x00\x02)(?:.{6})*$`},
		{plain, []*tagTest{test(0x5c28, 0x0a), absent, test(1)},
			`^.{7}(?:.{6})*\x00\x00\x01.{3}(?:.{6})*\x00\x5c\x28(?:\x00\x00\x0a)(?:.{6})*$`},
		{salted, []*tagTest{test(255, 1<<32-1)}, `^.{7}(?:.{5})*\xff(?:\xff\xff\xff\xff)(?:.{5})*$`},
	} {
		p := &predicate{schema: c.schema, tags: c.tags}
		if got := p.rowRegexp(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// genUID draws UIDs of a kind, few enough to meet again, and with bytes that mean something in regular expressions.
func genUID(s mapping.Schema, k mapping.Kind) *rapid.Generator[mapping.UID] {
	uids := []mapping.UID{1, 2, '\n', '\r', '(', '\\', '$', 0x85, 0xff, 0x0a0a, s.MaxUID(k)}
	return rapid.Map(rapid.SampledFrom(uids), func(u mapping.UID) mapping.UID { return min(u, s.MaxUID(k)) })
}

func latin1(b []byte) string {
	runes := make([]rune, len(b))
	for i, c := range b {
		runes[i] = rune(c)
	}
	return string(runes)
}

// A store that runs elsewhere evaluates the expression in place of Match: it must not lose a row that Match keeps.
func TestRowRegexp_MatchesWhatMatchKeeps(t *testing.T) {
	kept, said := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.SampledFrom([]int{1, 2, 3, 4, 8})
		s := mapping.Schema{MetricWidth: width.Draw(t, "metric width"), TagkWidth: width.Draw(t, "tagk width"),
			TagvWidth: width.Draw(t, "tagv width"), SaltWidth: rapid.IntRange(0, 2).Draw(t, "salt"), SaltBuckets: 20}
		p := &predicate{schema: s}
		taken := map[mapping.UID]bool{} // a tagk belongs to one label
		for range rapid.IntRange(1, 3).Draw(t, "tests") {
			test := &tagTest{
				absent: rapid.IntRange(0, 3).Draw(t, "absent") == 0, closed: rapid.Bool().Draw(t, "closed"),
				matched: map[mapping.UID]bool{},
			}
			for range rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "keys") {
				if key := genUID(s, mapping.Tagk).Draw(t, "key"); !taken[key] {
					taken[key], test.keys = true, append(test.keys, key)
				}
			}
			if test.closed {
				for _, v := range rapid.SliceOfN(genUID(s, mapping.Tagv), 1, 4).Draw(t, "values") {
					test.matched[v] = true
				}
			}
			if len(test.keys) > 0 {
				p.tags = append(p.tags, test)
			}
		}
		expression := p.rowRegexp()
		re := regexp.MustCompile("(?s)" + expression)
		for range 10 {
			var tags []mapping.Tag // sorted, and a tagk may repeat
			for range rapid.IntRange(0, 5).Draw(t, "tags") {
				key, value := genUID(s, mapping.Tagk).Draw(t, "k"), genUID(s, mapping.Tagv).Draw(t, "v")
				tags = append(tags, mapping.Tag{Key: key, Value: value})
			}
			s.SortTags(tags)
			tsuid := s.AppendTSUID(nil, genUID(s, mapping.Metric).Draw(t, "metric"), tags)
			row := s.AppendRowKey(nil, tsuid, rapid.Uint32().Draw(t, "base"))
			found := re.FindStringIndex(latin1(row)) != nil
			if p.mayPass(tsuid) {
				kept++
				if !found {
					t.Fatalf("Match keeps row %x, and the expression %s loses it", row, expression)
				}
			} else if !found {
				said++
			}
		}
	})
	if kept == 0 || said == 0 {
		t.Errorf("%d rows were kept, %d lost by the expression: the test is about nothing", kept, said)
	}
}

func TestRowRanges_AreAscendingAndHoldTheHoursAskedFor(t *testing.T) {
	s := mapping.Schema{MetricWidth: 1, TagkWidth: 1, TagvWidth: 1, SaltWidth: 1, SaltBuckets: 2}
	var got []string
	for _, r := range rowRanges(s, []mapping.UID{7, 255}, 3600, 7200) {
		got = append(got, fmt.Sprintf("%x-%x", r.Start, r.Stop))
	}
	want := []string{
		"000700000e10-000700001c21", "00ff00000e10-00ff00001c21", "010700000e10-010700001c21", "01ff00000e10-01ff00001c21",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
	last := rowRanges(s, []mapping.UID{255}, 0, 1<<32-1)
	if stop := fmt.Sprintf("%x", last[0].Stop); stop != "01" {
		t.Errorf("the stop after the last of all hours is %s, want 01", stop)
	}
}
