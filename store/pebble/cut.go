package pebble

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/promtsd/promtsd/store"
)

// damagedLog finds in an error of the tree which log is damaged, and from where on.
var damagedLog = regexp.MustCompile(`([0-9]+\.log): ([0-9]+)\)`)

// cutLog cuts the log off that a store without syncs (Config.NoSync) wrote last, where err says that it is damaged. A
// log tells damage from the end that a crash left by what it says of its own syncs, and those have not all been made: a
// part of the end may be missing before another that is there. Other logs were synced when they were closed. It returns
// err if it is about something else.
func cutLog(fs vfs.FS, dir string, err error) (place string, _ error) {
	found := damagedLog.FindStringSubmatch(err.Error())
	if !errors.Is(classify(err), store.ErrCorrupt) || found == nil {
		return "", err
	}
	number, numberErr := strconv.ParseUint(strings.TrimSuffix(found[1], ".log"), 10, 64)
	size, sizeErr := strconv.ParseInt(found[2], 10, 64)
	names, listErr := fs.List(dir)
	if why := errors.Join(numberErr, sizeErr, listErr); why != nil {
		return "", errors.Join(err, why)
	}
	for _, other := range names {
		if n, notALog := strconv.ParseUint(strings.TrimSuffix(other, ".log"), 10, 64); notALog == nil && n > number {
			return "", err
		}
	}
	name := fs.PathJoin(dir, found[1])
	if why := cutFile(fs, dir, name, size); why != nil {
		return "", errors.Join(err, fmt.Errorf("cut %s off at %d: %w", name, size, why))
	}
	return fmt.Sprintf("%s at %d", name, size), nil
}

// cutFile makes a file of a directory shorter, at once and for good.
func cutFile(fs vfs.FS, dir, name string, size int64) error {
	from, err := fs.Open(name)
	if err != nil {
		return err
	}
	to, err := fs.Create(name+".cut", vfs.WriteCategoryUnspecified)
	if err != nil {
		return errors.Join(err, from.Close())
	}
	_, err = io.CopyN(to, from, size)
	if err = errors.Join(err, to.Sync(), to.Close(), from.Close()); err != nil {
		return err
	}
	if err := fs.Rename(name+".cut", name); err != nil {
		return err
	}
	parent, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(parent.Sync(), parent.Close())
}
