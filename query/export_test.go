package query

// SetBlockPoints sets the samples at which a block is planned anew with fewer rows, which no small test would reach.
func (q *Querier) SetBlockPoints(n int) { q.blockPoints = n }

// Plans are the plans that can be forced, by name.
var Plans = map[string]plan{"cost": byCost, "get": byGet, "scan": byScan}

// ForcePlan makes the querier read all rows in one way.
func (q *Querier) ForcePlan(name string) { q.forced = Plans[name] }
