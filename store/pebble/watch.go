package pebble

import (
	"context"
	"fmt"
	"time"

	"github.com/promtsd/promtsd/store"
)

const (
	watchEvery = time.Second
	hungAfter  = 10 * time.Second // without an end of any of the writes under way

	// The room that is left to what the store has taken already, for flushes, compactions and deletes: this, or a part of
	// a small disk.
	reserveBytes = 256 << 20
	reserveParts = 20
)

// watchProgress notes when the disk does not answer, so that writes are refused rather than gathered.
func (s *Store) watchProgress(ctx context.Context) {
	var last uint64
	since := time.Now()
	for every(ctx, watchEvery) {
		underWay, ended := s.pending.progress()
		if underWay == 0 || ended != last {
			last, since = ended, time.Now()
		}
		if waited := time.Since(since); waited >= s.cfg.hungAfter {
			s.health.setHung(fmt.Errorf("%w: the disk has not taken any of %d writes for %v", store.ErrUnavailable, underWay,
				waited.Round(time.Second)))
		} else if s.health.clearHung() {
			s.logger.Info("the disk takes writes again")
		}
	}
}

// watchRoom notes when there is little room left on the disk.
func (s *Store) watchRoom(ctx context.Context) {
	low := false
	for s.lookForRoom(&low); every(ctx, watchEvery); {
		s.lookForRoom(&low)
	}
}

func (s *Store) lookForRoom(low *bool) {
	disk, err := s.disk.GetDiskUsage(s.cfg.Dir)
	if err != nil {
		s.logger.Debug("not known how much room there is on the disk", "err", err)
		return
	}
	reserve := min(disk.TotalBytes/reserveParts, reserveBytes)
	if *low {
		reserve += reserve / 4 // so that it does not go to and fro
	}
	var why error
	if disk.AvailBytes < reserve {
		why = fmt.Errorf(
			"%w: the disk is nearly full: %d MiB of %d MiB are free, and %d MiB are kept for what is stored already",
			store.ErrUnavailable, disk.AvailBytes>>20, disk.TotalBytes>>20, reserve>>20)
	}
	switch was := *low; {
	case why != nil && !was:
		s.logger.Error("new samples are refused; make room on the disk, or lower --retention", "err", why)
	case why == nil && was:
		s.logger.Info("there is room on the disk again")
	}
	*low = why != nil
	s.health.setLow(why)
}

// every waits, and reports whether ctx has not ended.
func every(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
