package main

import (
	"fmt"
	"math"
	"strconv"

	"github.com/alecthomas/kingpin/v2"
	"github.com/alecthomas/units"
)

// share is a flag whose value stands for memory, and the part of the memory limit that it has at most by default:
// caches and buffers have defaults for a machine of some gigabytes. Queries have a quarter besides (queryShare), and
// the rest is left for what has no flag, such as memtables, and for garbage.
type share struct {
	flag    string
	percent int64
	each    int64 // bytes that a unit of the value takes
}

// memoryShares lists them.
func memoryShares() []share {
	return []share{
		{"store.cache-bytes", 8, 1},
		{"write.max-in-flight-bytes", 8, 1},
		{"write.max-buffered-bytes", 14, 1},
		{"write.cache-series", 14, 1 << 10},
		{"write.max-active-series", 2, 72},
		{"uid.cache-entries", 5, 300},
		{"index.max-series", 14, 400},
	}
}

// fitMemory returns a function that lowers the defaults of a command's flags for a memory limit, math.MaxInt64 for
// none. What was given on the command line stays.
func fitMemory(cmd *kingpin.CmdClause) func(limit int64) error {
	shares := memoryShares()
	given := make([]bool, len(shares))
	for i, s := range shares {
		cmd.GetFlag(s.flag).IsSetByUser(&given[i])
	}
	return func(limit int64) error {
		for i, s := range shares {
			if given[i] || limit == math.MaxInt64 {
				continue
			}
			if err := s.lower(cmd.GetFlag(s.flag).Model().Value, limit); err != nil {
				return fmt.Errorf("--%s: %w", s.flag, err)
			}
		}
		return nil
	}
}

// lower makes a value fit into the share's part of a limit.
func (s share) lower(value kingpin.Value, limit int64) error {
	most := max(1, limit/100*s.percent/s.each)
	if n, err := strconv.ParseInt(value.String(), 10, 64); err == nil {
		return value.Set(strconv.FormatInt(min(n, most), 10))
	}
	bytes, err := units.ParseBase2Bytes(value.String())
	if err != nil {
		return err
	}
	return value.Set(strconv.FormatInt(min(int64(bytes), most), 10) + "B")
}

// goLimit is what of a memory limit Go's runtime may have where a store takes some that it does not know of. A quarter
// of the limit at most is left to that: with too little the collector would run all the time.
func goLimit(limit, outside int64) int64 {
	if limit == math.MaxInt64 {
		return limit
	}
	return limit - min(outside, limit/4)
}
