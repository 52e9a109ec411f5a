package query

// Windows are the times at which an evaluation looks: one window a step, on and on in both directions. A window holds
// the times that are at most its end and less than its width before that, in milliseconds:
//
//	   |<-- step -->|
//	(---]        (---]        (---]
//	 width
//
// nil holds all times.
type Windows struct {
	end, step, width int64 // 0 <= end < step, 0 < width < step, minStep <= step
	before           bool  // see WithBefore
}

// minStep is the least step, in milliseconds, for which leaving out what is between the windows is less work than
// keeping it.
const minStep = 60_000

// NewWindows returns the windows of which one ends at a time; nil if nothing, or too little, is left out between them,
// or if the width is not above 0.
func NewWindows(end, step, width int64) *Windows {
	if width <= 0 || step <= width || step < minStep {
		return nil
	}
	if end %= step; end < 0 {
		end += step
	}
	return &Windows{end: end, step: step, width: width}
}

// Overlap says whether any time from one to another, both included, is in a window.
func (w *Windows) Overlap(from, to int64) bool { return w == nil || w.endFrom(from)-w.width < to }

// endFrom is the end of the first window that does not end before a time.
func (w *Windows) endFrom(t int64) int64 {
	past := (t - w.end) % w.step
	if past > 0 {
		past -= w.step
	}
	return t - past
}

// WithBefore are the windows with the sample before each, and some others beside, as native histograms need it: whether
// a count began anew is told by the one before. It is left out if it is of none of the hours that a window touches, nor
// of the hours before those.
func (w *Windows) WithBefore() *Windows {
	if w == nil {
		return nil
	}
	with := *w
	with.before = true
	return &with
}
