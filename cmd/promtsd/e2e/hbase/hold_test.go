package hbase_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"

	"github.com/promtsd/promtsd/cmd/promtsd/e2e/crowd"
	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/mapping/request"
)

// shortLease is for tests that wait until a lease has run out.
const shortLease = "--write.lease-ttl=2s"

const (
	// maybeMissing is what promtsd logs when samples may be missing.
	maybeMissing   = "samples may be missing in the answer to a remote read"
	frozenPatience = 3 * time.Second // of senders, where a promtsd is frozen
)

// TestHBaseHold_NothingIsMissingWhileOneEnds asks one promtsd, again and again, for what another holds, which ends and
// so stores it, with much else.
func TestHBaseHold_NothingIsMissingWhileOneEnds(t *testing.T) {
	h := promtest.NewTables(t, "hold_end")
	h.Init(t, "--salt.width=1", "--salt.buckets=4")
	holding, other := h.Serve(t), h.Serve(t)
	h.AwaitWriters(t, holding, other)
	want := remotetest.Model{}
	start := time.Now().Add(-2 * time.Hour).Truncate(time.Hour).UnixMilli()
	var series []remotetest.Series
	for n := range 3000 {
		name := "much_else"
		if n%100 == 0 {
			name = "held"
		}
		series = append(series, remotetest.Series{
			Labels: []prompb.Label{
				{Name: "__name__", Value: name}, {Name: "n", Value: fmt.Sprint(n / 100)}, {Name: "m", Value: fmt.Sprint(n % 100)},
			},
			Samples: []request.Sample{{T: start, V: float64(n) / 3}},
		})
	}
	if err := remotetest.WriteInTurn(t.Context(), holding.URL(), 1, series); err != nil {
		t.Fatal(err)
	}
	want.Write(series)
	remotetest.AssertReads(t, other.URL(), "held", want)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		holding.Stop()
	}()
	asked := 0
	for done := false; !done; asked++ {
		select {
		case <-ended:
			done = true
		default:
		}
		remotetest.AssertReads(t, other.URL(), "held", want)
	}
	t.Logf("asked %d times", asked)
	if n, err := promtest.ReadWarnings(t.Context(), other.URL()); err != nil || n != 0 {
		t.Errorf("%v answers have warnings (%v), want none", n, err)
	}
	if cells := len(h.Cluster.Scan(h.DataTable())); cells != len(series) {
		t.Errorf("the data table has %d cells, want %d", cells, len(series))
	}
}

// TestHBaseHold_EachSeesWhatTheOtherHolds follows samples that one promtsd has acknowledged and only holds: another
// one sees them, until the first is frozen, and again when it has taken over the journal.
func TestHBaseHold_EachSeesWhatTheOtherHolds(t *testing.T) {
	h := promtest.NewTables(t, "hold_see")
	h.Init(t)
	// Longer than a query waits for a promtsd that is frozen: one whose lease is gone by then is missed no more.
	const lease = "--write.lease-ttl=12s"
	holding, other := h.Serve(t, lease), h.Serve(t, lease)
	both := []*promtest.Process{holding, other}
	before := h.AwaitWriters(t, both...)

	want := remotetest.Model{}
	start := time.Now().Add(-2 * time.Hour).Truncate(time.Hour).UnixMilli()
	for turn := range 4 {
		var series []remotetest.Series
		for n := range 50 {
			series = append(series, remotetest.Series{
				Labels:  []prompb.Label{{Name: "__name__", Value: "held"}, {Name: "n", Value: fmt.Sprint(n)}},
				Samples: []request.Sample{{T: start + int64(turn)*15_000, V: float64(turn*n) / 3}},
			})
		}
		if err := remotetest.WriteInTurn(t.Context(), holding.URL(), turn, series); err != nil {
			t.Fatal(err)
		}
		want.Write(series)
		remotetest.AssertReads(t, other.URL(), "held", want)
	}
	// Some series have their turn to be flushed in any moment.
	if cells := h.Cluster.Scan(h.DataTable()); len(cells) > 20 {
		t.Fatalf("the data table has %d cells already: this test is about samples that are held", len(cells))
	}
	if n, err := promtest.ReadWarnings(t.Context(), other.URL()); err != nil || n != 0 {
		t.Errorf("while all promtsd run there are %v warnings (%v), want none", n, err)
	}

	waiting := crowd.WaitingSeries(t, holding)
	want.Write(waiting)
	holding.Pause()
	answer, err := remotetest.Read(t.Context(), http.DefaultClient, other.URL(),
		remotetest.ResponseTypes[0], []*prompb.Query{{
			EndTimestampMs: time.Now().UnixMilli(),
			Matchers:       []*prompb.LabelMatcher{{Type: prompb.LabelMatcher_EQ, Name: "__name__", Value: "held"}},
		}})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := promtest.ReadWarnings(t.Context(), other.URL()); err != nil || n == 0 ||
		!strings.Contains(other.Log(), maybeMissing) {
		t.Errorf("while a promtsd is frozen there are %v warnings (%v), and in the log %t; an answer has %d samples",
			n, err, strings.Contains(other.Log(), maybeMissing), remotetest.SamplesIn(answer[0]))
	}
	h.AwaitWriters(t, other)
	crowd.AssertTakenOver(t, both, before[0])
	warned, err := promtest.ReadWarnings(t.Context(), other.URL())
	if err != nil {
		t.Fatal(err)
	}
	remotetest.AssertReads(t, other.URL(), "held", want)
	if n, err := promtest.ReadWarnings(t.Context(), other.URL()); err != nil || n != warned {
		t.Errorf("after the journal was taken over there are %v more warnings (%v), want none", n-warned, err)
	}
	if cells := h.Cluster.Scan(h.DataTable()); len(cells) < 51 {
		t.Errorf("the data table has %d cells, want one or more of each of 51 rows", len(cells))
	}

	crowd.RefusedWhenResumed(t, holding, waiting)
	after := h.AwaitWriters(t, both...)
	if after[0] == before[0] || after[1] != before[1] {
		t.Errorf("the writers are %v, and were %v: want another one in the first place only", after, before)
	}
	promtest.Until(t, "the new journal is written", func(ctx context.Context) error {
		return remotetest.WriteInTurn(ctx, holding.URL(), 0, []remotetest.Series{{
			Labels: []prompb.Label{{Name: "__name__", Value: "later"}}, Samples: []request.Sample{{T: start, V: 1}},
		}})
	})
	for _, p := range both {
		remotetest.AssertReads(t, p.URL(), "held", want)
	}
	holding.Flush() // writes the points once more
	other.Flush()
	for _, p := range both {
		remotetest.AssertReads(t, p.URL(), "held", want)
	}
	crowd.AssertTakenOver(t, both, before[0])
}

// TestHBaseHold_LeasesHaveTheirOwnTTL runs two promtsd with very different leases: the one with the long lease
// shows a sign of life every few seconds only, and is not taken for dead by the other. When both have ended no lease is
// left, nor an entry.
func TestHBaseHold_LeasesHaveTheirOwnTTL(t *testing.T) {
	h := promtest.NewTables(t, "hold_unequal")
	h.Init(t)
	long, short := h.Serve(t, "--write.lease-ttl=20s"), h.Serve(t, "--write.lease-ttl=1s")
	both := []*promtest.Process{long, short}
	before := h.AwaitWriters(t, both...)
	want := remotetest.Model{}
	for begin, turn := time.Now(), 0; time.Since(begin) < 4*time.Second; turn++ {
		series := []remotetest.Series{{
			Labels:  []prompb.Label{{Name: "__name__", Value: "unequal"}},
			Samples: []request.Sample{{T: time.Now().UnixMilli(), V: float64(turn)}},
		}}
		if err := remotetest.WriteInTurn(t.Context(), both[turn%2].URL(), turn, series); err != nil {
			t.Fatal(err)
		}
		want.Write(series)
		promtest.Sleep(t.Context(), 50*time.Millisecond)
	}
	if after := h.AwaitWriters(t, both...); after[0] != before[0] {
		t.Errorf("the writer with the long lease is %s, and was %s", after[0], before[0])
	}
	if times := crowd.TakenOver(both...); times[before[0]] > 0 {
		t.Errorf("the journal of the writer with the long lease was taken over while it lived")
	}
	remotetest.AssertReads(t, short.URL(), "unequal", want)
	long.Stop()
	remotetest.AssertReads(t, short.URL(), "unequal", want)
	short.Stop()
	if left := h.Leases(t); len(left) > 0 {
		t.Errorf("after a clean stop the leases %v are left", left)
	}
	if entries := h.Cluster.Scan(h.JournalTable()); len(entries) > 0 {
		t.Errorf("after a clean stop %d cells are left in the journal", len(entries))
	}
}

// TestHBaseHold_NothingAcknowledgedIsLost kills and freezes two promtsd on one HBase while senders go on. Whatever was
// acknowledged is read back from the one that is left, and from both afterwards, none twice; the journal of each writer
// that dies is taken over exactly once.
func TestHBaseHold_NothingAcknowledgedIsLost(t *testing.T) {
	for _, hold := range []string{"1s", "5m"} {
		t.Run(hold, func(t *testing.T) {
			h := promtest.NewTables(t, "hold_"+hold)
			h.Init(t, "--salt.width=1", "--salt.buckets=4")
			flags := []string{shortLease, "--write.flush-interval=" + hold}
			d := &duel{Tables: h, both: []*promtest.Process{h.Serve(t, flags...), h.Serve(t, flags...)}}
			d.Crowd, d.stop = crowd.Start(t, crowd.Config{Patience: frozenPatience}, d.both[0].URL(), d.both[1].URL())
			d.GoesOn(t)
			for _, victim := range []int{0, 1} {
				d.step(t, "killed", victim, d.kill)
				d.step(t, "killed and restarted at once", victim, d.killAndRestart)
				d.step(t, "frozen", victim, d.freeze)
				d.step(t, "killed when it runs on", victim, d.freezeAndKill)
			}
			d.stop()
			d.Check(t, remotetest.ResponseTypes...)
			for _, p := range d.both {
				p.Flush()
			}
			d.Check(t, remotetest.ResponseTypes...)
			crowd.AssertTakenOver(t, d.both, d.dead...)
		})
	}
}

// duel is two promtsd under load, of which one has no luck.
type duel struct {
	promtest.Tables
	*crowd.Crowd
	stop func()
	both []*promtest.Process
	dead []string // writers that have died so far
}

func (d *duel) step(t *testing.T, name string, victim int, strike func(t *testing.T, victim int)) {
	passed := t.Run(fmt.Sprintf("%s %d", name, victim), func(t *testing.T) {
		d.dead = append(d.dead, d.AwaitWriters(t, d.both...)[victim])
		strike(t, victim)
		d.AwaitWriters(t, d.both...)
		d.GoesOn(t)
		d.Check(t, remotetest.ResponseTypes[rand.IntN(len(remotetest.ResponseTypes))])
		crowd.AssertTakenOver(t, d.both, d.dead...)
		d.Report(t, true)
	})
	if !passed {
		t.FailNow() // what follows would say nothing
	}
}

// survived checks that the other one has taken over the journal, and answers all.
func (d *duel) survived(t *testing.T, victim int) {
	t.Helper()
	survivor := 1 - victim
	d.AwaitWriters(t, d.both[survivor])
	d.CheckOne(t, survivor, remotetest.ResponseTypes...)
	crowd.AssertTakenOver(t, d.both, d.dead...)
}

func (d *duel) kill(t *testing.T, victim int) {
	d.both[victim].Kill()
	d.survived(t, victim)
	d.both[victim].Restart()
}

// killAndRestart has the two wait for the same lease to run out.
func (d *duel) killAndRestart(t *testing.T, victim int) {
	d.both[victim].Kill()
	d.both[victim].Restart()
}

func (d *duel) freeze(t *testing.T, victim int) {
	waiting := crowd.WaitingSeries(t, d.both[victim])
	d.both[victim].Pause()
	d.survived(t, victim)
	crowd.RefusedWhenResumed(t, d.both[victim], waiting)
}

// freezeAndKill leaves a promtsd that has lost its lease a moment for mistakes.
func (d *duel) freezeAndKill(t *testing.T, victim int) {
	p := d.both[victim]
	p.Pause()
	d.survived(t, victim)
	p.Resume()
	promtest.Sleep(t.Context(), rand.N(300*time.Millisecond))
	p.Kill()
	d.dead = append(d.dead, d.Leases(t)[p.Peer()]...) // if it has begun a new journal
	p.Restart()
}

// TestHBaseHold_IndexInMemoryHearsOfOthers has two promtsd with an index in memory: what one stores of new series the
// other finds within --index.refresh-interval.
func TestHBaseHold_IndexInMemoryHearsOfOthers(t *testing.T) {
	h := promtest.NewTables(t, "hold_news")
	h.Init(t)
	one, other := h.Serve(t, "--index.refresh-interval=1s"), h.Serve(t, "--index.refresh-interval=1s")
	start := time.Now().Add(-2 * time.Hour).Truncate(time.Hour).UnixMilli()
	for turn := range 3 {
		writer, reader := one, other
		if turn%2 == 1 {
			writer, reader = other, one
		}
		metric := fmt.Sprintf("news_%d", turn)
		series := []remotetest.Series{{Labels: []prompb.Label{{Name: "__name__", Value: metric}},
			Samples: []request.Sample{{T: start, V: 1}}}}
		if err := remotetest.WriteInTurn(t.Context(), writer.URL(), turn, series); err != nil {
			t.Fatal(err)
		}
		want := remotetest.Model{}
		want.Write(series)
		remotetest.AssertReads(t, writer.URL(), metric, want) // its own at once
		promtest.Until(t, metric+" is found by the other", func(ctx context.Context) error {
			answer, err := remotetest.Read(ctx, http.DefaultClient, reader.URL(), remotetest.ResponseTypes[0], []*prompb.Query{{
				EndTimestampMs: time.Now().UnixMilli(),
				Matchers:       []*prompb.LabelMatcher{{Type: prompb.LabelMatcher_EQ, Name: "__name__", Value: metric}},
			}})
			if err == nil && remotetest.SamplesIn(answer[0]) != 1 {
				err = fmt.Errorf("it has %d samples", remotetest.SamplesIn(answer[0]))
			}
			return err
		})
		remotetest.AssertReads(t, reader.URL(), metric, want)
	}
}
