package request

import "math"

// Admission says which samples are accepted. A replay uses that of the first time.
type Admission struct {
	Latest           int64 // samples after this time, in milliseconds since 1970, are refused
	RefuseInfinities bool
}

// Admits says whether a sample is accepted.
func (a *Admission) Admits(s Sample) bool {
	return s.T >= 0 && s.T <= a.Latest && !(a.RefuseInfinities && math.IsInf(s.V, 0))
}

// Refusals counts the samples of one series that were not admitted.
type Refusals struct {
	Times, Infinities int
	Time              int64 // the first refused time
}

// Count counts a sample that is not admitted.
func (r *Refusals) Count(s Sample, a *Admission) {
	if s.T >= 0 && s.T <= a.Latest {
		r.Infinities++
		return
	}
	if r.Times++; r.Times == 1 {
		r.Time = s.T
	}
}
