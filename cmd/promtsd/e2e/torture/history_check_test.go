package torture_test

import (
	"strings"
	"testing"

	"github.com/prometheus/prometheus/prompb"
)

// TestTortureHistory_FindsWhatIsWrong plants each kind of fault in an answer.
func TestTortureHistory_FindsWhatIsWrong(t *testing.T) {
	h := newTortureHistory()
	labels := func(name string) []prompb.Label { return []prompb.Label{{Name: "__name__", Value: name}} }
	g := group{sender: 1, era: 2}
	a, b := h.add(g, labels("a")), h.add(g, labels("b"))
	h.add(group{sender: 1, era: 3}, labels("other"))
	exemplars := h.add(group{sender: 1, era: 2, content: ofExemplars}, labels("a"))
	send := func(acknowledged bool, writes ...write) {
		h.sending(writes)
		if acknowledged {
			h.acknowledged(writes)
		}
	}
	send(true, write{a, 10, 1}, write{a, 20, 1}, write{b, 10, 7})
	send(true, write{a, 20, 2})
	send(false, write{a, 30, 3}) // no answer
	send(true, write{exemplars, 10, 8})
	begun := h.now()
	send(true, write{a, 20, 4}, write{a, 40, 4}) // while the reader waits
	ended := h.now()
	send(true, write{a, 20, 5}, write{a, 50, 5})

	good := map[string][]reported{`{__name__="a"}`: {{10, 1}, {20, 2}}, `{__name__="b"}`: {{10, 7}}}
	for _, c := range []struct {
		name  string
		spoil func(r *reading)
		want  string // the beginning or end of the only problem; none if empty
	}{
		{"what was acknowledged before", func(*reading) {}, ""},
		{"what was sent meanwhile, too", func(r *reading) {
			r.series[`{__name__="a"}`] = []reported{{10, 1}, {20, 4}, {30, 3}, {40, 4}}
		}, ""},
		{"loss", func(r *reading) { r.series[`{__name__="a"}`] = []reported{{20, 2}} }, `loss: {__name__="a"} at 10`},
		{"loss of a series", func(r *reading) { delete(r.series, `{__name__="b"}`) }, `loss: {__name__="b"} at 10`},
		{"loss with a warning", func(r *reading) { delete(r.series, `{__name__="b"}`); r.whole = false }, ""},
		{"loss out of range", func(r *reading) { r.mint = 20; r.series = map[string][]reported{`{__name__="a"}`: {{20, 2}}} },
			""},
		{"stale", func(r *reading) { r.series[`{__name__="a"}`][1].value = 1 }, "at 20: stale: 1, want"},
		{"stale with a warning", func(r *reading) { r.series[`{__name__="a"}`][1].value = 1; r.whole = false }, ""},
		{"never sent", func(r *reading) { r.series[`{__name__="a"}`][0].value = 9 }, "at 10: ghost: 9, which was never sent"},
		{"of another time", func(r *reading) { r.series[`{__name__="a"}`][0].t = 11 }, "two"},
		{"not sent yet", func(r *reading) { r.series[`{__name__="a"}`][1].value = 5 },
			"at 20: ghost: 5, which was not sent yet"},
		{"twice", func(r *reading) {
			r.series[`{__name__="a"}`] = []reported{{10, 1}, {10, 1}, {20, 2}}
		}, `order: {__name__="a"} has 10 after 10`},
		{"unknown series", func(r *reading) { r.series[`{__name__="c"}`] = nil },
			`ghost: a series that was not sent: {__name__="c"}`},
		{"of another group", func(r *reading) { r.series[`{__name__="other"}`] = nil }, "ghost: a series that was not sent"},
	} {
		r := reading{group: g, mint: 0, maxt: 100, begun: begun, ended: ended, whole: true, series: map[string][]reported{}}
		for name, points := range good {
			r.series[name] = append([]reported(nil), points...)
		}
		c.spoil(&r)
		got := h.check(r)
		switch {
		case c.want == "" && len(got) == 0, c.want == "two" && len(got) == 2:
		case c.want == "", len(got) != 1, !strings.Contains(got[0], c.want):
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}

	for want, points := range map[string][]reported{
		"": {{10, 8}}, "loss: ": {}, "at 10: ghost: 1, ": {{10, 1}}, // which is a sample
	} {
		r := reading{group: exemplars.group, maxt: 100, begun: begun, ended: ended, whole: true}
		r.series = map[string][]reported{`{__name__="a"}`: points}
		got := h.check(r)
		if len(got) != min(len(want), 1) || len(got) == 1 && !strings.Contains(got[0], want) {
			t.Errorf("exemplars %v: got %q, want %q", points, got, want)
		}
	}

	h.forget(2)
	if got := h.check(reading{group: g, maxt: 100, begun: begun, ended: ended, whole: true, series: good}); len(got) != 2 {
		t.Errorf("of an era that is forgotten: got %q, want two series that are not known", got)
	}
}
