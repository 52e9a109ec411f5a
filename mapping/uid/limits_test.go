package uid_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/uid"
)

// refused counts the results that are errors, each of which must wrap want.
func refused(t *testing.T, results []uid.Result, want error) (n int) {
	t.Helper()
	for _, r := range results {
		switch {
		case r.Err == nil && r.UID == 0, r.Err != nil && !errors.Is(r.Err, want):
			t.Fatalf("got UID %d and error %v, want a UID or %v", r.UID, r.Err, want)
		case r.Err != nil:
			n++
		}
	}
	return n
}

// A flood of new names is refused beyond the limits, and stops neither names that are known nor senders that were there
// before.
func TestLimits_OfNewNames(t *testing.T) {
	clock := time.Unix(1_795_000_000, 0)
	c := config(newFake())
	c.Limits = uid.Limits{PerSecond: 100, PerHour: 250, Now: func() time.Time { return clock }}
	r := newRegistry(t, c)
	known := numbered(tagv, 50)
	assign(t, r, known...)

	flood := numbered(tagv, 10_000)[1000:]
	from, most := 0, []int{100, 100, 50, 0} // in each second; the hour has no more
	for second, want := range most {
		results, err := r.AssignNewcomer(t.Context(), flood[from:from+500])
		if err != nil {
			t.Fatal(err)
		}
		if n := 500 - refused(t, results, uid.ErrLimited); n != want {
			t.Errorf("second %d: %d of 500 new names got UIDs, want %d", second, n, want)
		}
		from += 500
		clock = clock.Add(time.Second)
	}
	results, err := r.AssignNewcomer(t.Context(), append(flood[from:from+1], known...))
	if err != nil || refused(t, results, uid.ErrLimited) != 1 {
		t.Errorf("known names among new ones: got %v, want all but the first", err)
	}
	if text := results[0].Err.Error(); !strings.Contains(text, "tagv") ||
		!strings.Contains(text, "--write.max-new-names-per-hour") {
		t.Errorf("the error %q does not name the kind and the flag", text)
	}
	assign(t, r, numbered(tagv, 150)...) // 100 of them are new, of a sender that was there before

	clock = clock.Add(time.Hour)
	if results, err = r.AssignNewcomer(t.Context(), flood[:100]); err != nil || refused(t, results, uid.ErrLimited) > 0 {
		t.Errorf("after an hour new names are still refused (%v)", err)
	}
	if st := c.Store.(*fake); st.counter("tagv") > 50+250+100+100 {
		t.Errorf("the counter is at %d: names that were refused used UIDs up", st.counter("tagv"))
	}
}

// The last UIDs are kept for senders that were there before, and the log tells in time.
// Who only looks takes nothing of the limits.
func TestFind_MakesNoUIDs(t *testing.T) {
	r := newRegistry(t, config(newFake()))
	names := numbered(tagv, 2)
	assign(t, r, names[0])
	results, err := r.Find(t.Context(), names)
	if err != nil || results[0].UID != 1 || !errors.Is(results[1].Err, uid.ErrUnassigned) {
		t.Errorf("got %v, %v, want a UID for the name that has one alone", results, err)
	}
}

func TestLimits_TheLastUIDsAreNotForNewcomers(t *testing.T) {
	var log bytes.Buffer
	c := config(newFake())
	c.Schema.TagkWidth, c.Logger = 1, slog.New(slog.NewTextHandler(&log, nil))
	r := newRegistry(t, c)
	names := numbered(tagk, 300)
	next := 0
	give := func(n int) {
		assign(t, r, names[next:next+n]...)
		next += n
	}
	for _, step := range []struct {
		names int
		told  int // levels
	}{{120, 0}, {8, 1}, {75, 1}, {2, 2}, {38, 3}} { // 50 % of 255 are 127.5, 80 % are 204, 95 % are 242.25
		give(step.names)
		if n := strings.Count(log.String(), "many UIDs are given away"); n != step.told {
			t.Errorf("at %d of 255 UIDs the log has told %d times, want %d", next, n, step.told)
		}
	}
	results, err := r.AssignNewcomer(t.Context(), []uid.Name{tagk("new"), names[0], metric("m")})
	if err != nil || !errors.Is(results[0].Err, uid.ErrLimited) || results[1].UID != 1 || results[2].Err != nil {
		t.Errorf("a newcomer got %v and %v, want a refusal for its new tagk alone", results, err)
	}
	if results[0].Err != nil && !strings.Contains(results[0].Err.Error(), mapping.Tagk.String()) {
		t.Errorf("the error %q does not name the kind", results[0].Err)
	}
	give(12) // the very last
	if results, err = r.Assign(t.Context(), []uid.Name{tagk("more")}); err != nil ||
		!errors.Is(results[0].Err, uid.ErrExhausted) {
		t.Errorf("then: %v, %v, want ErrExhausted", results, err)
	}
}
