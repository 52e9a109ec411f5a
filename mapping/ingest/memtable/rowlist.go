package memtable

import (
	"cmp"
	"iter"
	"slices"
	"unsafe"
)

// rowList is the rows of one series, ascending by base time. It consists of pieces, so that an insert anywhere is cheap
// however many rows there are: a sender of years of one series, newest first, opens a row for each hour.
type rowList struct {
	pieces [][]*row // none is empty
}

const pieceRows = 256 // in a piece, at most

// The memory of a row without its points, if it is not the current one, and of a list without its rows.
const (
	rowBytes  = int(unsafe.Sizeof(row{}) + 2*unsafe.Sizeof((*row)(nil)))
	listBytes = int(unsafe.Sizeof(rowList{}) + 2*unsafe.Sizeof([]*row(nil)))
)

func compareBase(r *row, base uint32) int { return cmp.Compare(r.base, base) }

// locate says where the row of a base time is, or is to be put.
func (l *rowList) locate(base uint32) (piece, at int, found bool) {
	piece, found = slices.BinarySearchFunc(l.pieces, base,
		func(p []*row, base uint32) int { return compareBase(p[0], base) })
	if found {
		return piece, 0, true
	}
	if piece > 0 {
		piece--
		at, found = slices.BinarySearchFunc(l.pieces[piece], base, compareBase)
	}
	return piece, at, found
}

// find returns the row of a base time, nil if there is none. l may be nil.
func (l *rowList) find(base uint32) *row {
	if l == nil {
		return nil
	}
	piece, at, found := l.locate(base)
	if !found {
		return nil
	}
	return l.pieces[piece][at]
}

// insert puts a row in, of whose base time there is none.
func (l *rowList) insert(r *row) {
	if len(l.pieces) == 0 {
		l.pieces = [][]*row{{r}}
		return
	}
	piece, at, _ := l.locate(r.base)
	p := l.pieces[piece]
	switch {
	case len(p) < pieceRows:
		l.pieces[piece] = slices.Insert(p, at, r)
	case at == 0: // they come in order: pieces stay full
		l.pieces = slices.Insert(l.pieces, piece, []*row{r})
	case at == len(p):
		l.pieces = slices.Insert(l.pieces, piece+1, []*row{r})
	default:
		right := append([]*row(nil), p[pieceRows/2:]...)
		clear(p[pieceRows/2:])
		l.pieces[piece] = p[:pieceRows/2]
		l.pieces = slices.Insert(l.pieces, piece+1, right)
		l.insert(r)
	}
}

// from yields the rows from a base time on. l may be nil.
func (l *rowList) from(base uint32) iter.Seq[*row] {
	return func(yield func(*row) bool) {
		if l == nil || len(l.pieces) == 0 {
			return
		}
		piece, at, _ := l.locate(base)
		for ; piece < len(l.pieces); piece, at = piece+1, 0 {
			for _, r := range l.pieces[piece][at:] {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// drop removes rows, and says how much memory that frees with their points.
func (l *rowList) drop(f func(*row) bool) (freed int) {
	for i, p := range l.pieces {
		l.pieces[i] = slices.DeleteFunc(p, func(r *row) bool {
			gone := f(r)
			if gone {
				freed += rowBytes + cap(r.points)
			}
			return gone
		})
	}
	l.pieces = slices.DeleteFunc(l.pieces, func(p []*row) bool { return len(p) == 0 })
	return freed
}
