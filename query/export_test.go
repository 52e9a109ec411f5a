package query

// SetBlockPoints sets the samples at which a block is planned anew with fewer rows, which no small test would reach.
func (q *Querier) SetBlockPoints(n int) { q.blockPoints = n }
