package wire

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtsd/promtsd/mapping/request"
)

// FrameWriter writes the streamed encoding of a remote-read answer, frame by frame:
//
//	uvarint length of the message | CRC-32C of the message, 4 bytes big-endian | message
//
//	ChunkedReadResponse  1 chunked_series (one)  2 query_index
//	ChunkedSeries        1 labels                2 chunks
//	Chunk                1 min_time_ms           2 max_time_ms   3 type            4 data
//
// A series is one frame, or several if it is large. The order of calls is Series, then any number of Chunk, for each
// series, and Finish at the end.
type FrameWriter struct {
	w        io.Writer
	maxBytes int

	query   int
	open    bool // there is a series that has not got its last frame
	sent    bool // it has got one already
	labels  []byte
	chunks  []byte
	head    []byte
	scratch []byte
	frames  int
}

// DefaultFrameBytes is the frame size that Prometheus aims at. Readers refuse frames above 50 MB.
const DefaultFrameBytes = 1 << 20

// NewFrameWriter makes a writer that ends a frame as soon as it has maxBytes; it can be longer by one chunk, and by the
// labels of a series that has longer ones.
func NewFrameWriter(w io.Writer, maxBytes int) *FrameWriter {
	return &FrameWriter{w: w, maxBytes: maxBytes}
}

// Series begins the next series, after writing what is left of the one before. It belongs to the query of that index,
// and must follow the one before in the order of queries and labels.
func (f *FrameWriter) Series(query int, ls labels.Labels) error {
	if err := f.Finish(); err != nil {
		return err
	}
	f.query, f.open, f.sent, f.labels = query, true, false, f.labels[:0]
	ls.Range(func(l labels.Label) { f.labels = request.AppendLabel(f.labels, l.Name, l.Value) })
	return nil
}

// Chunk adds a chunk to the current series; its bounds are true and its data is copied. The protocol's number of an
// encoding is chunkenc's.
func (f *FrameWriter) Chunk(minT, maxT int64, encoding chunkenc.Encoding, data []byte) error {
	c := f.scratch[:0]
	c = appendVarintField(c, 1, minT)
	c = appendVarintField(c, 2, maxT)
	c = append(c, 3<<3|typeVarint, byte(encoding), 4<<3|typeBytes)
	c = binary.AppendUvarint(c, uint64(len(data)))
	f.scratch = c

	f.chunks = append(f.chunks, 2<<3|typeBytes)
	f.chunks = binary.AppendUvarint(f.chunks, uint64(len(c)+len(data)))
	f.chunks = append(f.chunks, c...)
	f.chunks = append(f.chunks, data...)
	if len(f.labels)+len(f.chunks) >= f.maxBytes {
		return f.writeFrame()
	}
	return nil
}

// Finish writes what is left of the current series. A series without chunks becomes a frame with its labels alone.
func (f *FrameWriter) Finish() error {
	if !f.open {
		return nil
	}
	f.open = false
	if f.sent && len(f.chunks) == 0 {
		return nil
	}
	return f.writeFrame()
}

// Frames is how many frames have been written.
func (f *FrameWriter) Frames() int { return f.frames }

func (f *FrameWriter) writeFrame() error {
	series := len(f.labels) + len(f.chunks)
	message := append(f.scratch[:0], 1<<3|typeBytes)
	message = binary.AppendUvarint(message, uint64(series))
	tail := appendVarintField(message, 2, int64(f.query))[len(message):]
	size := len(message) + series + len(tail)

	crc := crc32.Update(0, castagnoli, message)
	crc = crc32.Update(crc, castagnoli, f.labels)
	crc = crc32.Update(crc, castagnoli, f.chunks)
	crc = crc32.Update(crc, castagnoli, tail)

	f.head = binary.AppendUvarint(f.head[:0], uint64(size))
	f.head = binary.BigEndian.AppendUint32(f.head, crc)
	f.head = append(f.head, message...)
	f.head = append(f.head, f.labels...)
	f.chunks = append(f.chunks, tail...)
	f.scratch = message[:0]
	for _, part := range [][]byte{f.head, f.chunks} {
		if _, err := f.w.Write(part); err != nil {
			return fmt.Errorf("write frame of %d bytes: %w", size, err)
		}
	}
	f.chunks = f.chunks[:0]
	f.sent = true
	f.frames++
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendVarintField appends a field of a number, which 0, the default, is not.
func appendVarintField(dst []byte, num byte, v int64) []byte {
	if v == 0 {
		return dst
	}
	return binary.AppendUvarint(append(dst, num<<3|typeVarint), uint64(v))
}
