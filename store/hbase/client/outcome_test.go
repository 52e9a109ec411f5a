package client

import (
	"errors"
	"testing"

	"github.com/promtsd/promtsd/store/hbase/wire"
)

// An answer that is said to be to another action than it is leaves one without any, which must not count as done.
func TestOutcome_BelievesNoActionAnsweredTwice(t *testing.T) {
	failed := &wire.Exception{Class: "org.apache.hadoop.hbase.RegionTooBusyException"}
	var blk block
	for _, row := range []string{"a", "b", "c"} {
		blk.Put([]byte(row), "f", nil, 1, nil)
	}
	var c Client
	for name, test := range map[string]struct {
		indexes   [3]int
		failed    int
		malformed bool
		left      int
	}{
		"all done":          {[3]int{2, 0, 1}, -1, false, 0},
		"one failed":        {[3]int{2, 0, 1}, 1, false, 1},
		"done twice":        {[3]int{2, 2, 0}, 0, true, 0},
		"failed twice":      {[3]int{1, 1, 0}, 1, true, 0},
		"none of the three": {[3]int{0, 1, 3}, 3, true, 0},
	} {
		answer, mark := wire.BeginMessage(nil, 1)
		for _, index := range test.indexes {
			if index == test.failed {
				answer = wire.AppendMultiResult(answer, index, nil, failed)
			} else {
				answer = wire.AppendMultiResult(answer, index, new(wire.Result), nil)
			}
		}
		left, err := c.failures(&blk, wire.EndMessage(answer, mark))
		n := 0
		if left != nil {
			n = left.Actions()
		}
		if errors.Is(err, wire.ErrMalformed) != test.malformed || n != test.left || (err == nil) != (test.failed < 0) {
			t.Errorf("%s: got %d left and error %v", name, n, err)
		}
	}
}
