package ingest_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/promtsd/promtsd/mapping/ingest"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

// slowRegion is a store of which one salt bucket of the data table does not answer until it is told to.
type slowRegion struct {
	store.Store
	salt   byte
	answer chan struct{}
}

func (s *slowRegion) Apply(ctx context.Context, b *store.Batch) error {
	for i := range b.Len() {
		if m := b.At(i); m.Table == "tsdb" && m.Row[0] == s.salt {
			select {
			case <-s.answer:
			case <-ctx.Done():
				return fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
			}
		}
	}
	return s.Store.Apply(ctx, b)
}

// A region that does not answer holds up the rows that it has, and nothing else: with fewer salt buckets than flush
// workers, and with more.
func TestFlush_SlowRegionDelaysOnlyItsRows(t *testing.T) {
	for _, saltBuckets := range []int{4, 40} {
		t.Run(fmt.Sprintf("%d_salt_buckets", saltBuckets), func(t *testing.T) {
			st := &slowRegion{storetest.NewMem(), 3, make(chan struct{})}
			db := open(t, st, map[string]string{"salt.width": "1", "salt.buckets": fmt.Sprint(saltBuckets)},
				func(c *ingest.Config) {
					buffered(c)
					c.Buffer.FlushInterval = 100 * time.Millisecond
				})
			if err := db.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			const workers = 16
			affected := func(salt int) bool { return salt%min(saltBuckets, workers) == int(st.salt) }
			want := map[string]map[int64]float64{}
			stored := func(also bool) (missing int) {
				got := read(t, st, db.settings.Schema)
				for tsuid, samples := range want {
					var key []byte
					if _, err := fmt.Sscanf(tsuid, "%x", &key); err != nil {
						t.Fatal(err)
					}
					if (also || !affected(db.settings.Schema.Bucket(key))) && len(got[tsuid]) < len(samples) {
						missing++
					}
				}
				return missing
			}
			await := func(what string, also bool) {
				t.Helper()
				for deadline := time.Now().Add(time.Minute); stored(also) > 0; time.Sleep(20 * time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatalf("%s: %d series are not in the data table after a minute", what, stored(also))
					}
				}
			}
			// Several rounds: what is stuck must not take up, one after the other, all that flushes.
			for round := range 4 {
				var req request.Write
				for i := range 500 {
					add(&req, raw("__name__", "m", "s", fmt.Sprint(i)), sample(now+int64(round), float64(i)))
				}
				if got, err := db.Append(t.Context(), &req); err != nil || got.Written != len(req.Samples) {
					t.Fatalf("append: %+v, %v", got, err)
				}
				want = db.all(t)
				await(fmt.Sprintf("round %d", round+1), false)
			}
			stuck := 0
			for tsuid, samples := range want {
				if len(read(t, st, db.settings.Schema)[tsuid]) < len(samples) {
					stuck++
				}
			}
			if stuck == 0 {
				t.Error("no series waits for the region that does not answer")
			}
			if got := db.all(t); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Error("samples that wait are not found")
			}
			if n := cellsOf(t, st, "promtsd-journal"); n == 0 {
				t.Error("the journal entries of samples that wait are gone")
			}
			close(st.answer)
			await("after the region answers", true)
			if err := db.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := cellsOf(t, st, "promtsd-journal"); n != 0 {
				t.Errorf("%d journal entries are left at the end", n)
			}
		})
	}
}

// sickStore is a store whose data table takes nothing while it is sick.
type sickStore struct {
	store.Store
	sick   atomic.Bool
	failed atomic.Int64 // batches
}

func (s *sickStore) Apply(ctx context.Context, b *store.Batch) error {
	if s.sick.Load() && b.Len() > 0 && b.At(0).Table == "tsdb" {
		s.failed.Add(1)
		return fmt.Errorf("%w: it is sick", store.ErrUnavailable)
	}
	return s.Store.Apply(ctx, b)
}

// A store that is away for an hour must not fill the log: flushes are tried many times a second.
func TestFlush_TellsRarelyThatItFails(t *testing.T) {
	st := &sickStore{Store: storetest.NewMem()}
	var log lines
	db := open(t, st, nil, func(c *ingest.Config) {
		buffered(c)
		c.Buffer.FlushInterval = 100 * time.Millisecond
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	if err := db.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	st.sick.Store(true)
	var req request.Write
	for i := range 500 {
		add(&req, raw("__name__", "m", "s", fmt.Sprint(i)), sample(now, float64(i)))
	}
	if _, err := db.Append(t.Context(), &req); err != nil {
		t.Fatal(err)
	}
	await := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: not within a minute; log:\n%s", what, log.String())
			}
		}
	}
	begin := time.Now()
	await("300 flushes fail", func() bool { return st.failed.Load() >= 300 })
	const workers = 4
	allowed := workers * (1 + int(time.Since(begin)/(10*time.Second)))
	if n := strings.Count(log.String(), "samples not flushed"); n == 0 || n > allowed {
		t.Errorf("it was told %d times, at most %d are allowed:\n%s", n, allowed, log.String())
	}
	st.sick.Store(false)
	await("it is told that the store is well", func() bool {
		return strings.Contains(log.String(),
			"samples are flushed again")
	})
}

// lines is a log.
type lines struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
