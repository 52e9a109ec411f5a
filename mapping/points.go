package mapping

import "slices"

// Points is a run of samples by columns: T[i] in milliseconds since 1970, ascending without repeats unless said
// otherwise, and the value V[i]. It is a buffer to be filled again and again.
type Points struct {
	T []int64
	V []float64
	H []Histogram // H[i], if there is one and it is not zero, counts instead of V[i]; see Histogram
}

// Histogram is the native histogram at i; zero if the point is a number.
func (p *Points) Histogram(i int) Histogram {
	if i < len(p.H) {
		return p.H[i]
	}
	return Histogram{}
}

// Len is the number of points.
func (p *Points) Len() int { return len(p.T) }

// Reset empties p and keeps its memory.
func (p *Points) Reset() { p.truncate(0) }

// truncate leaves the first n points.
func (p *Points) truncate(n int) {
	p.T, p.V = p.T[:n], p.V[:n]
	if n < len(p.H) {
		clear(p.H[n:])
		p.H = p.H[:n]
	}
}

// Append adds one point at the end.
func (p *Points) Append(t int64, v float64) { p.T, p.V = append(p.T, t), append(p.V, v) }

// AppendHistogram adds one native histogram at the end.
func (p *Points) AppendHistogram(t int64, h Histogram) {
	p.Append(t, 0)
	for len(p.H) < len(p.T) {
		p.H = append(p.H, Histogram{})
	}
	p.H[len(p.T)-1] = h
}

// AppendPoint adds point i of q at the end.
func (p *Points) AppendPoint(q *Points, i int) {
	if h := q.Histogram(i); !h.IsZero() {
		p.AppendHistogram(q.T[i], h)
		return
	}
	p.Append(q.T[i], q.V[i])
}

// AppendRange adds the points of q from one position up to another at the end.
func (p *Points) AppendRange(q *Points, from, to int) {
	if from < len(q.H) {
		for i := from; i < to; i++ {
			p.AppendPoint(q, i)
		}
		return
	}
	p.T = append(p.T, q.T[from:to]...)
	p.V = append(p.V, q.V[from:to]...)
}

// between are the positions of the points from mint to maxt, both included.
func (p *Points) between(mint, maxt int64) (from, to int) {
	to = len(p.T)
	if to > 0 && p.T[0] < mint {
		from, _ = slices.BinarySearch(p.T, mint)
	}
	if to > 0 && p.T[to-1] > maxt {
		var found bool
		if to, found = slices.BinarySearch(p.T, maxt); found {
			to++
		}
	}
	return from, to
}

// Slice is the points from one position up to another, sharing memory.
func (p *Points) Slice(from, to int) Points {
	return Points{T: p.T[from:to], V: p.V[from:to], H: p.H[min(from, len(p.H)):min(to, len(p.H))]}
}
