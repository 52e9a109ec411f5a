package index

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
)

func TestLabelCache_IsEmptiedWhenItIsFull(t *testing.T) {
	var c labelCache
	value := strings.Repeat("v", maxLabelBytes/16)
	for i := range 100 {
		s := []Series{{TSUID: []byte(fmt.Sprint(i)), Labels: labels.FromStrings("a", fmt.Sprint(i), "b", value)}}
		c.add(s, []int{0})
		again := []Series{{TSUID: s[0].TSUID}, {TSUID: []byte("other")}}
		if unknown := c.fill(again); len(unknown) != 1 || unknown[0] != 1 || !labels.Equal(again[0].Labels, s[0].Labels) {
			t.Fatalf("after %d: labels %.20s, and %v are unknown", i, again[0].Labels, unknown)
		}
		size := 0
		for _, ls := range c.labels {
			size += int(ls.ByteSize())
		}
		if most := maxLabelBytes + maxLabelBytes/8; size > most || i < 10 && len(c.labels) != i+1 {
			t.Fatalf("after %d there are %d entries of %d bytes, want at most %d", i, len(c.labels), size, most)
		}
	}
}
