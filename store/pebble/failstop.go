package pebble

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// walCategory is what the tree calls its write-ahead log where it makes a file.
const walCategory = "pebble-wal"

// failStopFS stands between the tree and the disk. An error in writing the write-ahead log or in syncing a directory
// stops the store (see health.stop); one in writing another file is passed on after a while.
type failStopFS struct {
	vfs.FS
	health *health
}

func (f *failStopFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, category)
	return f.wrap(name, file, category, err)
}

func (f *failStopFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(oldname, newname, category)
	return f.wrap(newname, file, category, err)
}

func (f *failStopFS) wrap(name string, file vfs.File, category vfs.DiskWriteCategory, err error) (vfs.File, error) {
	made := &failStopFile{File: file, name: name, health: f.health, wal: category == walCategory}
	if err != nil {
		return nil, made.check("create", err)
	}
	return made, nil
}

func (f *failStopFS) OpenDir(name string) (vfs.File, error) {
	file, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &failStopFile{File: file, name: name, health: f.health, wal: true}, nil
}

func (f *failStopFS) Unwrap() vfs.FS { return f.FS }

// failStopFile is a file that the tree writes.
type failStopFile struct {
	vfs.File
	name   string
	health *health
	wal    bool // the write-ahead log or a directory
}

func (f *failStopFile) check(verb string, err error) error {
	if err == nil {
		return nil
	}
	if f.wal {
		f.health.stop(fmt.Errorf("%s %s: %w", verb, f.name, err))
	} else {
		f.health.retryLater()
	}
	return err
}

func (f *failStopFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, f.check("write", err)
}

func (f *failStopFile) Sync() error     { return f.check("sync", f.File.Sync()) }
func (f *failStopFile) SyncData() error { return f.check("sync", f.File.SyncData()) }
func (f *failStopFile) Close() error    { return f.check("close", f.File.Close()) }

func (f *failStopFile) SyncTo(length int64) (fullSync bool, err error) {
	fullSync, err = f.File.SyncTo(length)
	return fullSync, f.check("sync", err)
}
