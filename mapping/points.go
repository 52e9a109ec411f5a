package mapping

// Points is a run of samples by columns: T[i] in milliseconds since 1970, ascending without repeats unless said
// otherwise, and the value V[i]. It is a buffer to be filled again and again.
type Points struct {
	T []int64
	V []float64
}

// Len is the number of points.
func (p *Points) Len() int { return len(p.T) }

// Reset empties p and keeps its memory.
func (p *Points) Reset() { p.T, p.V = p.T[:0], p.V[:0] }

// Append adds one point at the end.
func (p *Points) Append(t int64, v float64) { p.T, p.V = append(p.T, t), append(p.V, v) }
