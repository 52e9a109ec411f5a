package pebble

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	lazyEvery = time.Second / 2 // how often logs are synced without syncs
	lazyMost  = time.Second     // for how long written bytes may wait for that, before writes do
)

// lazyFS is the disk of a tree in a store without syncs (Config.NoSync). The tree writes its log and syncs it as ever
// before it acknowledges anything, so that all is in the hands of the system, and survives the end of the process. But
// the sync only notes that one is due, and a goroutine makes up for it: what a crash of the machine can take is what
// was written in about the last second, and always the end of the log. A log is synced when it is closed, so that the
// one that follows it never holds what is later than something lost.
type lazyFS struct {
	vfs.FS
	health *health

	mu   sync.Mutex
	logs map[*lazyFile]struct{} // guarded by mu: the open ones
}

func (l *lazyFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := l.FS.Create(name, category)
	return l.wrap(name, file, category, err)
}

func (l *lazyFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := l.FS.ReuseForWrite(oldname, newname, category)
	return l.wrap(newname, file, category, err)
}

func (l *lazyFS) wrap(name string, file vfs.File, category vfs.DiskWriteCategory, err error) (vfs.File, error) {
	if err != nil || category != walCategory {
		return file, err
	}
	made := &lazyFile{File: file, fs: l, name: name}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.logs[made] = struct{}{}
	return made, nil
}

func (l *lazyFS) Unwrap() vfs.FS { return l.FS }

// syncDue syncs what is due. What was written before the call is on the disk when it returns.
func (l *lazyFS) syncDue() error {
	l.mu.Lock()
	logs := slices.Collect(maps.Keys(l.logs))
	l.mu.Unlock()
	for _, f := range logs {
		if err := f.syncDue(); err != nil {
			return err
		}
	}
	return nil
}

// run does so now and then, until ctx ends. A failure ends the store.
func (l *lazyFS) run(ctx context.Context) {
	for every(ctx, lazyEvery) {
		if err := l.syncDue(); err != nil {
			l.health.fail(err)
			return
		}
	}
}

// lazyFile is a log.
type lazyFile struct {
	vfs.File
	fs   *lazyFS
	name string

	syncing sync.Mutex // held while it is synced

	mu  sync.Mutex
	due time.Time // guarded by mu: since when bytes wait for a sync; zero: none do
}

func (f *lazyFile) Sync() error { return f.SyncData() }

// SyncData notes that a sync is due. If it was for too long, the file is synced now.
func (f *lazyFile) SyncData() error {
	f.mu.Lock()
	if f.due.IsZero() {
		f.due = time.Now()
	}
	late := time.Since(f.due) > lazyMost
	f.mu.Unlock()
	if late {
		return f.syncDue()
	}
	return nil
}

func (f *lazyFile) syncDue() error {
	f.syncing.Lock()
	defer f.syncing.Unlock()
	f.mu.Lock()
	due := !f.due.IsZero()
	f.due = time.Time{}
	f.mu.Unlock()
	if !due {
		return nil
	}
	if err := f.File.SyncData(); err != nil {
		return fmt.Errorf("sync %s: %w", f.name, err)
	}
	return nil
}

func (f *lazyFile) Close() error {
	f.fs.mu.Lock()
	delete(f.fs.logs, f)
	f.fs.mu.Unlock()
	if err := f.syncDue(); err != nil {
		return err
	}
	return f.File.Close()
}
