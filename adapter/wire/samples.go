package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/klauspost/compress/s2"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/request"
)

// SamplesResponse builds a prometheus.ReadResponse:
//
//	ReadResponse  1 results     (one for each query, in order)
//	QueryResult   1 timeseries
//	TimeSeries    1 labels      2 samples   4 histograms
//	Sample        1 value       2 timestamp
//
// as a snappy block, which it deflates while it builds it: so it never has the whole message. A block is the length of
// its content and then elements, literals and copies of what came up to 64 KiB before: those of two blocks, one after
// the other, are those of their contents together. The length of a message comes before it, and may not be known when
// its begin is deflated: then it takes five bytes, of a literal of its own, and is put there when the message ends.
//
// The message is written by hand because the generated encoder takes -0 for the default value and leaves it out, and
// with it the sign. The order of calls is that of the message: Query, then for each series Series and any number of
// Points.
type SamplesResponse struct {
	// MaxBytes bounds the message. 0 means no bound but that of the format, 2 GiB.
	MaxBytes int
	// Take is asked before memory is taken for the deflated message; its error ends the response. nil: it is not asked.
	Take func(bytes int64) error

	buf           []byte // what is not deflated yet
	query, series message
	size          int      // of what is deflated
	deflated      [][]byte // one after the other; the last has room
	held          int      // bytes of them
	block         []byte
	err           error // of Take
}

// message is one whose length is not known yet.
type message struct {
	begin  int    // where it begins in buf; 0 if it does not
	length []byte // where its length belongs, if a part of it is deflated
	size   int    // of that part
}

const (
	// gap is left before a message until its length is known: a tag of one byte and a length of up to five.
	gap = 6

	pieceBytes = 64 << 10 // are deflated at a time
	firstSlab  = 4 << 10  // bytes of deflated message; the next slabs are as large as all before, up to
	maxSlab    = 1 << 20
)

// Reset makes the response empty and keeps a little of its memory.
func (r *SamplesResponse) Reset() {
	if cap(r.buf) > maxSlab {
		r.buf = nil
	}
	*r = SamplesResponse{MaxBytes: r.MaxBytes, Take: r.Take, buf: r.buf[:0], block: r.block}
}

// Query begins the result of the next query.
func (r *SamplesResponse) Query() {
	r.endQuery()
	r.buf = append(r.buf, make([]byte, gap)...)
	r.query.begin = len(r.buf)
}

// Series begins the next series of the current query. More than MaxBytes is ErrTooLarge.
func (r *SamplesResponse) Series(ls labels.Labels) error {
	r.end(&r.series)
	r.buf = append(r.buf, make([]byte, gap)...)
	r.series.begin = len(r.buf)
	ls.Range(func(l labels.Label) { r.buf = request.AppendLabel(r.buf, l.Name, l.Value) })
	return r.deflate()
}

// Points adds samples to the current series. More than MaxBytes is ErrTooLarge.
func (r *SamplesResponse) Points(p *mapping.Points) error {
	dst := r.buf
	for i, t := range p.T {
		if h := p.Histogram(i); !h.IsZero() {
			var err error
			if dst, err = appendHistogram(dst, t, h); err != nil {
				return err
			}
			continue
		}
		at := len(dst)
		dst = append(dst, 2<<3|typeBytes, 0)
		if bits := math.Float64bits(p.V[i]); bits != 0 {
			dst = append(dst, 1<<3|typeFixed64)
			dst = binary.LittleEndian.AppendUint64(dst, bits)
		}
		if t != 0 {
			dst = append(dst, 2<<3|typeVarint)
			dst = binary.AppendUvarint(dst, uint64(t))
		}
		dst[at+1] = byte(len(dst) - at - 2)
	}
	r.buf = dst
	return r.deflate()
}

// appendHistogram appends a native histogram as a field of a series.
func appendHistogram(dst []byte, t int64, h mapping.Histogram) ([]byte, error) {
	m := h.Message(t)
	size := m.Size()
	dst = binary.AppendUvarint(append(dst, 4<<3|typeBytes), uint64(size))
	at := len(dst)
	dst = slices.Grow(dst, size)[:at+size]
	_, err := m.MarshalToSizedBuffer(dst[at:])
	return dst, err
}

// Finish ends the response and returns the block, in parts. They are valid until Reset.
func (r *SamplesResponse) Finish() ([][]byte, error) {
	r.endQuery()
	r.spill()
	head := binary.AppendUvarint(nil, uint64(r.size))
	return slices.Insert(slices.Clone(r.deflated), 0, head), r.err
}

// deflate deflates what there is if it is enough.
func (r *SamplesResponse) deflate() error {
	limit := r.MaxBytes
	if limit <= 0 || limit > math.MaxInt32 {
		limit = math.MaxInt32
	}
	if r.size+len(r.buf) > limit {
		return fmt.Errorf("%w: the answer needs more than the %d bytes allowed", ErrTooLarge, limit)
	}
	if len(r.buf) >= pieceBytes {
		r.spill()
	}
	return r.err
}

// spill deflates what is in buf.
func (r *SamplesResponse) spill() {
	from := 0
	for _, m := range []*message{&r.query, &r.series} {
		if m.begin > 0 {
			r.emit(r.buf[from : m.begin-gap])
			m.length = r.emitLength()
			from, m.begin = m.begin, 0
		}
	}
	r.emit(r.buf[from:])
	r.buf = r.buf[:0]
}

// emit deflates a part of the message.
func (r *SamplesResponse) emit(content []byte) {
	r.count(len(content))
	for piece := range slices.Chunk(content, pieceBytes) {
		r.block = s2.EncodeSnappy(r.block[:cap(r.block)], piece)
		_, head := binary.Uvarint(r.block)
		for rest := r.block[head:]; len(rest) > 0; {
			slab := r.slab(1)
			n := min(len(rest), cap(*slab)-len(*slab))
			*slab = append(*slab, rest[:n]...)
			rest = rest[n:]
		}
	}
}

// emitLength writes the tag of field 1, and returns where the length of its message belongs.
func (r *SamplesResponse) emitLength() []byte {
	r.count(gap)
	slab := r.slab(1 + gap)
	*slab = append(*slab, (gap-1)<<2, 1<<3|typeBytes, 0, 0, 0, 0, 0)
	return (*slab)[len(*slab)-gap+1:]
}

// count counts bytes of the message, and of those messages in it whose begin is deflated.
func (r *SamplesResponse) count(n int) {
	r.size += n
	for _, m := range []*message{&r.query, &r.series} {
		if m.length != nil {
			m.size += n
		}
	}
}

// slab returns one with room for n bytes.
func (r *SamplesResponse) slab(n int) *[]byte {
	if last := len(r.deflated) - 1; last >= 0 && cap(r.deflated[last])-len(r.deflated[last]) >= n {
		return &r.deflated[last]
	}
	size := min(max(firstSlab, r.held), maxSlab)
	if r.Take != nil && r.err == nil {
		r.err = r.Take(int64(size))
	}
	if r.err != nil { // nobody will have it
		r.deflated, size = r.deflated[:0], firstSlab
	}
	r.held += size
	r.deflated = append(r.deflated, make([]byte, 0, size))
	return &r.deflated[len(r.deflated)-1]
}

func (r *SamplesResponse) endQuery() {
	r.end(&r.series)
	r.end(&r.query)
}

// end writes the length of a message, if there is any, which ends where buf does.
func (r *SamplesResponse) end(m *message) {
	switch {
	case m.length != nil:
		size := m.size + len(r.buf)
		for i := range m.length {
			m.length[i] = byte(size>>(7*i)) | 0x80
		}
		m.length[len(m.length)-1] &^= 0x80
	case m.begin > 0:
		r.buf = closeGap(r.buf, m.begin)
	}
	*m = message{}
}

// closeGap writes field 1 with its length before the message that begins at begin and moves that up to it.
func closeGap(b []byte, begin int) []byte {
	size := len(b) - begin
	head := append(b[:begin-gap], 1<<3|typeBytes)
	head = binary.AppendUvarint(head, uint64(size))
	return append(head, b[begin:begin+size]...)
}
