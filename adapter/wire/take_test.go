package wire_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/promtsd/promtsd/adapter/wire"
	"github.com/promtsd/promtsd/mapping/request"
)

// Bodies that are mostly elements of two bytes or a few become lists of many times their size. The memory is taken
// while the lists grow, and the decoding ends when there is no more.
func TestDecoder_TakesMemoryWhileListsGrow(t *testing.T) {
	const allowed = 128 << 10
	many := func(element string) []byte { return bytes.Repeat([]byte(element), 1<<15) }
	// in puts a message into a field; its length takes four bytes.
	in := func(tag byte, content []byte) []byte {
		n := len(content)
		return append([]byte{tag, byte(n) | 0x80, byte(n>>7) | 0x80, byte(n>>14) | 0x80, byte(n >> 21)}, content...)
	}
	for name, c := range map[string]struct {
		version2 bool
		body     []byte
	}{
		"series with an empty sample":         {false, many("\x0a\x02\x12\x00")},
		"samples of a series":                 {false, in(0x0a, many("\x12\x00"))},
		"histograms of a series":              {false, in(0x0a, many("\x22\x00"))},
		"exemplars of a series":               {false, in(0x0a, many("\x1a\x00"))},
		"metadata":                            {false, many("\x1a\x00")},
		"symbols":                             {true, many("\x22\x00")},
		"references":                          {true, in(0x2a, in(0x0a, bytes.Repeat(many("\x00"), 4)))},
		"references one by one":               {true, in(0x2a, bytes.Repeat(many("\x08\x00"), 2))},
		"series with an empty sample, of 2.0": {true, many("\x2a\x02\x12\x00")},
		"labels of exemplars, of a long symbol": {true, append(append([]byte("\x22\x00"),
			in(0x22, []byte(strings.Repeat("x", 1000)))...), in(0x2a, many("\x22\x04\x0a\x02\x01\x01"))...)},
	} {
		t.Run(name, func(t *testing.T) {
			taken := 0
			var req request.Write
			d := wire.Decoder{Take: func(n int) bool {
				taken += n
				return taken <= allowed
			}}
			decode := d.DecodeV1
			if c.version2 {
				decode = d.DecodeV2
			}
			if _, err := decode(c.body, &req); !errors.Is(err, wire.ErrNoMemory) {
				t.Fatalf("got %v, want ErrNoMemory", err)
			}
			if taken != wire.Memory(&req) && !c.version2 || taken > 5*allowed {
				t.Errorf("%d bytes are taken for lists of %d", taken, wire.Memory(&req))
			}
			d.Take, taken = nil, 0
			if _, err := decode(c.body, &req); err != nil {
				t.Errorf("with memory enough: %v", err)
			}
		})
	}
}
