package query

// SetBlockPoints sets the samples at which a block is planned anew with fewer rows, which no small test would reach.
func (q *Querier) SetBlockPoints(n int) { q.blockPoints = n }

// Methods are the methods that can be forced, by name.
var Methods = map[string]method{"cost": byCost, "get": byGet, "scan": byScan}

// ForceMethod makes the querier read all rows by one method.
func (q *Querier) ForceMethod(name string) { q.forced = Methods[name] }
