package pebble

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// walCategory is what the tree calls its write-ahead log where it makes a file.
const walCategory = "pebble-wal"

// tableCategories are what it calls table files.
var tableCategories = map[vfs.DiskWriteCategory]bool{
	"pebble-memtable-flush": true, "pebble-compaction": true, "pebble-blob-file-rewrite": true,
}

// diskFS stands between a tree and the disk, and decides what becomes of errors in writing:
//
//	no room for a table        passed on after a while; the tree deletes what it wrote of it, and tries again
//	no room for another file   waited for, since the tree could not go on; nothing is lost meanwhile
//	the log                    the store stops, see health.stop
//	a directory                the same, also while the store is opened or closed: the tree panics, on any goroutine
//	a table                    passed on after a while; the tree tries again
//	any other                  passed on; the tree stops, see health.Fatalf
type diskFS struct {
	vfs.FS
	health *health
}

// isFull says whether an error means that there is no room.
func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// insist calls op again and again while there is no room for what it does. Such an error of a write comes before the
// system has taken the bytes, so that there is nothing to lose, other than when a sync fails.
func (f *diskFS) insist(verb, name string, op func() error) error {
	err := op()
	if !isFull(err) {
		return err
	}
	leave := f.health.beginFull(fmt.Errorf("%s %s: %w", verb, name, err))
	defer leave()
	for isFull(err) && f.health.pause() {
		err = op()
	}
	return err
}

func (f *diskFS) Create(name string, category vfs.DiskWriteCategory) (file vfs.File, err error) {
	return f.open("create", name, category, func() (vfs.File, error) { return f.FS.Create(name, category) })
}

func (f *diskFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return f.open("create", newname, category, func() (vfs.File, error) {
		return f.FS.ReuseForWrite(oldname, newname, category)
	})
}

// open makes a file that the tree writes.
func (f *diskFS) open(
	verb, name string, category vfs.DiskWriteCategory, op func() (vfs.File, error),
) (file vfs.File, err error) {
	made := &diskFile{fs: f, name: name, table: tableCategories[category], wal: category == walCategory}
	err = made.write(verb, func() error {
		made.File, err = op()
		return err
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

func (f *diskFS) OpenDir(name string) (vfs.File, error) {
	file, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &diskFile{File: file, fs: f, name: name, dir: true}, nil
}

func (f *diskFS) MkdirAll(dir string, perm os.FileMode) error {
	return f.insist("make directory", dir, func() error { return f.FS.MkdirAll(dir, perm) })
}

func (f *diskFS) Rename(oldname, newname string) error {
	return f.insist("rename", oldname, func() error { return f.FS.Rename(oldname, newname) })
}

func (f *diskFS) Link(oldname, newname string) error {
	return f.insist("link", oldname, func() error { return f.FS.Link(oldname, newname) })
}

func (f *diskFS) Lock(name string) (lock io.Closer, err error) {
	err = f.insist("lock", name, func() error {
		lock, err = f.FS.Lock(name)
		return err
	})
	return lock, err
}

func (f *diskFS) Unwrap() vfs.FS { return f.FS }

// diskFile is a file that the tree writes, or a directory.
type diskFile struct {
	vfs.File
	fs              *diskFS
	name            string
	table, wal, dir bool
}

// write does what takes room.
func (f *diskFile) write(verb string, op func() error) error {
	if f.table {
		return f.check(verb, op())
	}
	return f.check(verb, f.fs.insist(verb, f.name, op))
}

func (f *diskFile) check(verb string, err error) error {
	if err == nil {
		return nil
	}
	switch {
	case f.dir:
		f.fs.health.halt(fmt.Errorf("%s %s: %w", verb, f.name, err))
	case f.wal:
		f.fs.health.stop(fmt.Errorf("%s %s: %w", verb, f.name, err))
	case f.table:
		f.fs.health.pause()
	}
	return err
}

func (f *diskFile) Write(p []byte) (n int, err error) {
	err = f.write("write", func() error {
		more, err := f.File.Write(p[n:])
		n += more
		return err
	})
	return n, err
}

func (f *diskFile) Sync() error     { return f.check("sync", f.File.Sync()) }
func (f *diskFile) SyncData() error { return f.check("sync", f.File.SyncData()) }
func (f *diskFile) Close() error    { return f.check("close", f.File.Close()) }

func (f *diskFile) SyncTo(length int64) (fullSync bool, err error) {
	fullSync, err = f.File.SyncTo(length)
	return fullSync, f.check("sync", err)
}
