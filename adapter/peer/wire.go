// Package peer is how several promtsd on one store see the samples that each still holds in memory: each serves what it
// holds on an internal path, and asks the others when it answers a query.
package peer

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Path is where a Handler is served.
const Path = "/internal/v1/held"

// writerParam is the parameter of the address that names the writer whose samples are asked for. Without it a promtsd
// that was restarted would answer for the one that died before, at the same address, that it holds nothing.
const writerParam = "writer"

// A request is the hours and the TSUIDs that are asked for; the answer is a list of rows, in any order:
//
//	request:  | from, 4 | to, 4 | (uvarint length | TSUID) ... |
//	answer:   | 0x01 | uvarint position of the TSUID | base time, 4 | uvarint length | point list | ... | 0x00 |
//
// The zero byte at the end says that the answer is whole.
const (
	moreRows = 1
	endRows  = 0

	maxRequest = 64 << 20 // bytes of a request; a block of a query asks for 16,384 rows at most
	maxTSUID   = 32767
	maxPoints  = 1 << 28 // bytes of one point list
)

func appendRequest(dst []byte, tsuids [][]byte, from, to uint32) []byte {
	dst = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(dst, from), to)
	for _, tsuid := range tsuids {
		dst = append(binary.AppendUvarint(dst, uint64(len(tsuid))), tsuid...)
	}
	return dst
}

// parseRequest takes a request apart; the TSUIDs point into b.
func parseRequest(b []byte) (tsuids [][]byte, from, to uint32, err error) {
	if len(b) < 8 {
		return nil, 0, 0, errors.New("the request is cut")
	}
	from, to = binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
	for b = b[8:]; len(b) > 0; {
		length, n := binary.Uvarint(b)
		if n <= 0 || length == 0 || length > maxTSUID || length > uint64(len(b)-n) {
			return nil, 0, 0, errors.New("the request is cut, or names a TSUID of an impossible length")
		}
		end := n + int(length)
		tsuids = append(tsuids, b[n:end:end])
		b = b[end:]
	}
	return tsuids, from, to, nil
}

func appendRow(dst []byte, i int, base uint32, points []byte) []byte {
	dst = binary.AppendUvarint(append(dst, moreRows), uint64(i))
	dst = binary.BigEndian.AppendUint32(dst, base)
	return append(binary.AppendUvarint(dst, uint64(len(points))), points...)
}

// row is one of an answer.
type row struct {
	i      int
	base   uint32
	points []byte
}

// readRow reads the next row; io.EOF is the end of a whole answer. asked is how many TSUIDs there were.
func readRow(r *bufio.Reader, asked int) (row, error) {
	kind, err := r.ReadByte()
	if err != nil {
		return row{}, cut(err)
	}
	if kind == endRows {
		return row{}, io.EOF
	}
	if kind != moreRows {
		return row{}, fmt.Errorf("a row begins with %#x", kind)
	}
	i, err := binary.ReadUvarint(r)
	if err != nil {
		return row{}, cut(err)
	}
	var base [4]byte
	if _, err := io.ReadFull(r, base[:]); err != nil {
		return row{}, cut(err)
	}
	length, err := binary.ReadUvarint(r)
	if err != nil {
		return row{}, cut(err)
	}
	if i >= uint64(asked) || length > maxPoints {
		return row{}, fmt.Errorf("a row for TSUID %d of %d with %d bytes", i, asked, length)
	}
	points, err := io.ReadAll(io.LimitReader(r, int64(length)))
	if err == nil && uint64(len(points)) < length {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return row{}, cut(err)
	}
	return row{int(i), binary.BigEndian.Uint32(base[:]), points}, nil
}

func cut(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("the answer is cut: %w", err)
}
