// Package peer is how several promtsd on one store see the samples that each still holds in memory: each serves what it
// holds on a listener for the others, and asks them when it answers a query.
package peer

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Path is where a Handler is served.
const Path = "/internal/v2/held"

// writerParam is the parameter of the address that names the writer whose samples are asked for. Without it a promtsd
// that was restarted would answer for the one that died before, at the same address, that it holds nothing.
const writerParam = "writer"

// A request is the hours and the TSUIDs that are asked for, in ascending order. The hours of the first TSUID may begin
// later than those of the others: what came before was in an earlier answer. An answer says below which base time
// nothing is held, and lists rows in the order of TSUIDs and base times:
//
//	request:  | from, 4 | to, 4 | from for the first, 4 | (uvarint length | TSUID) ... |
//	answer:   | oldest, 4 | row ... | end |
//	row:      | 0x01 | uvarint position of the TSUID | base time, 4 | uvarint length | point list |
//	end:      | 0x00 |   or, to be asked for again from here on   | 0x02 | uvarint position | base time, 4 |
//
// Without an end an answer is cut.
const (
	endRows  = 0
	rowNext  = 1
	restLeft = 2

	headBytes  = 12   // of a request, before its TSUIDs
	rowSeconds = 3600 // between two base times

	maxRequest = 2 << 20 // bytes of a request
	maxTSUIDs  = 16384   // of a request; a block of a query has as many rows at most
	maxTSUID   = 32767   // bytes of one
	maxPage    = 4 << 20 // bytes of an answer, but for its last row
	maxPoints  = 1 << 28 // bytes of one point list
)

// question is what is asked for.
type question struct {
	from, to uint32 // base times, both included
	first    uint32 // from for the first TSUID
	tsuids   [][]byte
}

// fitting is how many of the TSUIDs fit into one request.
func fitting(tsuids [][]byte) (n int) {
	for size := headBytes; n < min(len(tsuids), maxTSUIDs); n++ {
		if size += binary.MaxVarintLen32 + len(tsuids[n]); size > maxRequest {
			break
		}
	}
	return n
}

func (q question) append(dst []byte) []byte {
	for _, base := range []uint32{q.from, q.to, q.first} {
		dst = binary.BigEndian.AppendUint32(dst, base)
	}
	for _, tsuid := range q.tsuids {
		dst = append(binary.AppendUvarint(dst, uint64(len(tsuid))), tsuid...)
	}
	return dst
}

// parseQuestion takes a request apart; the TSUIDs point into b.
func parseQuestion(b []byte) (q question, err error) {
	if len(b) < headBytes {
		return q, errors.New("the request is cut")
	}
	q = question{from: binary.BigEndian.Uint32(b), to: binary.BigEndian.Uint32(b[4:]),
		first: binary.BigEndian.Uint32(b[8:])}
	for b = b[headBytes:]; len(b) > 0; {
		length, n := binary.Uvarint(b)
		if n <= 0 || length == 0 || length > maxTSUID || length > uint64(len(b)-n) {
			return q, errors.New("the request is cut, or names a TSUID of an impossible length")
		}
		end := n + int(length)
		if len(q.tsuids) == maxTSUIDs {
			return q, fmt.Errorf("the request names more than %d TSUIDs", maxTSUIDs)
		}
		if i := len(q.tsuids); i > 0 && bytes.Compare(q.tsuids[i-1], b[n:end]) >= 0 {
			return q, fmt.Errorf("TSUID %d of the request is not above the one before", i)
		}
		q.tsuids = append(q.tsuids, b[n:end:end])
		b = b[end:]
	}
	return q, nil
}

// place is a row's in an answer.
type place struct {
	i    int // position of the TSUID
	base uint32
}

func (p place) after(o place) bool { return p.i > o.i || p.i == o.i && p.base > o.base }

func (p place) append(dst []byte, kind byte) []byte {
	return binary.BigEndian.AppendUint32(binary.AppendUvarint(append(dst, kind), uint64(p.i)), p.base)
}

func appendRow(dst []byte, p place, points []byte) []byte {
	return append(binary.AppendUvarint(p.append(dst, rowNext), uint64(len(points))), points...)
}

// answer reads the rows of an answer to a question.
type answer struct {
	in     *bufio.Reader
	q      question
	oldest uint32 // nothing is held below this base time
	next   place  // no row to come is below it
}

func readAnswer(in *bufio.Reader, q question) (*answer, error) {
	a := &answer{in: in, q: q, next: place{0, q.first}}
	var err error
	a.oldest, err = a.readBase()
	return a, err
}

// row reads the next row. At the end of the answer points are nil, and p is what has to be asked for next: it is behind
// the last TSUID if that is nothing.
func (a *answer) row() (p place, points []byte, err error) {
	kind, err := a.in.ReadByte()
	switch {
	case err != nil:
		return p, nil, cut(err)
	case kind == endRows:
		return place{len(a.q.tsuids), a.q.from}, nil, nil
	case kind != rowNext && kind != restLeft:
		return p, nil, fmt.Errorf("a row begins with %#x", kind)
	}
	if p, err = a.readPlace(); err != nil {
		return p, nil, err
	}
	if kind == restLeft {
		if p == (place{0, a.q.first}) {
			return p, nil, errors.New("an answer without a row is to be asked for again")
		}
		return p, nil, nil
	}
	length, err := binary.ReadUvarint(a.in)
	if err != nil {
		return p, nil, cut(err)
	}
	if length > maxPoints {
		return p, nil, fmt.Errorf("a row for TSUID %d has %d bytes", p.i, length)
	}
	// Memory is taken as bytes come, not as they are announced.
	points, err = io.ReadAll(io.LimitReader(a.in, int64(length)))
	if err == nil && uint64(len(points)) < length {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return p, nil, cut(err)
	}
	a.next = place{p.i, p.base + rowSeconds}
	return p, points, nil
}

// readPlace reads a place that was asked for, and that is not before the next.
func (a *answer) readPlace() (p place, err error) {
	i, err := binary.ReadUvarint(a.in)
	if err != nil {
		return p, cut(err)
	}
	if p.base, err = a.readBase(); err != nil {
		return p, err
	}
	if i >= uint64(len(a.q.tsuids)) {
		return p, fmt.Errorf("a row for TSUID %d of %d", i, len(a.q.tsuids))
	}
	if p.i = int(i); a.next.after(p) || p.base < a.q.from || p.base > a.q.to {
		return p, fmt.Errorf("a row for TSUID %d and hour %d, which was not asked for, or comes out of order", i, p.base)
	}
	return p, nil
}

func (a *answer) readBase() (uint32, error) {
	var base [4]byte
	if _, err := io.ReadFull(a.in, base[:]); err != nil {
		return 0, cut(err)
	}
	return binary.BigEndian.Uint32(base[:]), nil
}

func cut(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("the answer is cut: %w", err)
}
