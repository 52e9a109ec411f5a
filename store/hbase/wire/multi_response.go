package wire

import "encoding/binary"

// MultiResults walks a MultiResponse:
//
//	MultiResponse      = { 1: RegionActionResult }*                   one for each region action, in the same order
//	RegionActionResult = { 1: ResultOrException }* { 2: exception } { 3: processed }
//	ResultOrException  = { 1: index } ( { 2: result } | { 3: exception } )
//
// Entries are not in the order of the actions. The cells of results stand in the response's cell block in the order the
// entries are walked in. Nothing is allocated but for exceptions.
//
//	results := NewMultiResults(response)
//	for results.Next() {
//		if results.Exception != nil { ... }
//	}
//	if err := results.Err(); err != nil { ... }
type MultiResults struct {
	// Region is the ordinal, from 0, of the region action that the current entry is of.
	Region int
	// Index is that of the action, or WholeRegion when Exception is why none of the region's actions was tried.
	Index int
	// Exception is why the action failed, nil when it did not.
	Exception *Exception
	// Result is what the action answered, empty for puts and deletes.
	Result Result

	outer    Reader // of the MultiResponse
	inner    Reader // of the RegionActionResult with ordinal Region
	answered int
	err      error
}

// WholeRegion as an Index stands for all actions of the region.
const WholeRegion = -1

// NewMultiResults walks an encoded MultiResponse.
func NewMultiResults(b []byte) MultiResults {
	return MultiResults{Region: -1, outer: NewReader("MultiResponse", b)}
}

// Next moves to the next entry; false means the end, or a fault that Err tells.
func (m *MultiResults) Next() bool { return m.next(false) }

// NextFailure moves to the next entry that is an exception, passing over the others without a look at their results.
func (m *MultiResults) NextFailure() bool { return m.next(true) }

// Answered is the number of actions that entries were met for so far, passed over or not. A server answers every
// action, or its region as a whole: after the walk, Answered and the actions of failed regions are the actions that
// were sent, or the response is not to be believed.
func (m *MultiResults) Answered() int { return m.answered }

// Err is nil when all that was walked was well formed.
func (m *MultiResults) Err() error { return m.err }

func (m *MultiResults) next(failures bool) bool {
	for m.err == nil {
		if m.entry(failures) {
			return true
		}
		if m.err != nil || !m.nextRegion() {
			return false
		}
	}
	return false
}

// nextRegion opens the next RegionActionResult.
func (m *MultiResults) nextRegion() bool {
	for m.outer.Next() {
		if m.outer.Field() == 1 {
			m.inner = NewReader("RegionActionResult", m.outer.Bytes())
			m.Region++
			return true
		}
	}
	m.err = m.outer.Err()
	return false
}

// entry moves to the next entry of the open RegionActionResult.
func (m *MultiResults) entry(failures bool) bool {
	for m.inner.Next() {
		switch m.inner.Field() {
		case 1:
			m.answered++
			found := m.resultOrException(failures)
			if found || m.err != nil {
				return m.err == nil
			}
		case 2:
			m.Index, m.Result, m.Exception = WholeRegion, Result{}, new(Exception)
			m.err = m.Exception.parsePair(m.inner.Bytes())
			return m.err == nil
		}
	}
	m.err = m.inner.Err()
	return false
}

// resultOrException reads an entry and reports whether it is to be handed out.
func (m *MultiResults) resultOrException(failures bool) bool {
	if failures && isPlainResult(m.inner.Bytes()) {
		return false
	}
	m.Index, m.Result, m.Exception = WholeRegion, Result{}, nil
	r := NewReader("ResultOrException", m.inner.Bytes())
	for r.Next() {
		switch r.Field() {
		case 1:
			m.Index = r.Int()
		case 2:
			if !failures {
				r.Embed(m.Result.Parse(r.Bytes()))
			}
		case 3:
			m.Exception = new(Exception)
			r.Embed(m.Exception.parsePair(r.Bytes()))
		}
	}
	r.Require(m.Index >= 0, "index")
	m.err = r.Err()
	return !failures || m.Exception != nil
}

// isPlainResult reports whether a ResultOrException is an index and a result and nothing else, which is what a server
// answers to a put. It saves three quarters of the walk over the response to a batch; whatever looks different is
// parsed.
func isPlainResult(b []byte) bool {
	if len(b) == 0 || b[0] != 1<<3|typeVarint {
		return false
	}
	at := 1
	for at < len(b) && b[at] >= 0x80 {
		at++
	}
	at++ // behind the index
	if at+1 >= len(b) || b[at] != 2<<3|typeBytes {
		return false
	}
	n, k := binary.Uvarint(b[at+1:])
	return k > 0 && n == uint64(len(b)-at-1-k)
}

// AppendMultiResult appends one entry to the RegionActionResult that is open, as a server does (BeginMessage with
// field 1 opens one): a result or, when it is not nil, an exception.
func AppendMultiResult(dst []byte, index int, result *Result, exception *Exception) []byte {
	dst, at := BeginMessage(dst, 1)
	dst = AppendUintField(dst, 1, uint64(index))
	if exception != nil {
		var pair int
		dst, pair = BeginMessage(dst, 3)
		return EndMessage(EndMessage(exception.appendPair(dst), pair), at)
	}
	return EndMessage(AppendMessageField(dst, 2, result), at)
}

// AppendRegionException appends to the RegionActionResult that is open why none of its actions was tried.
func AppendRegionException(dst []byte, exception *Exception) []byte {
	dst, at := BeginMessage(dst, 2)
	return EndMessage(exception.appendPair(dst), at)
}
