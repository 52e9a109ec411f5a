package wire

// MultiActions walks a MultiRequest, as a server does.
type MultiActions struct {
	// Region is the ordinal, from 0, of the region action that the current action is of, and Name the region's name.
	Region int
	Name   []byte
	Index  int
	// One of these is not nil.
	Mutation *Mutation
	Get      *Get

	outer Reader
	inner Reader
	err   error
}

// NewMultiActions walks an encoded MultiRequest.
func NewMultiActions(b []byte) MultiActions {
	return MultiActions{Region: -1, outer: NewReader("MultiRequest", b)}
}

// Next moves to the next action; false means the end, or a fault that Err tells.
func (m *MultiActions) Next() bool {
	for m.err == nil {
		for m.inner.Next() {
			switch m.inner.Field() {
			case 1:
				m.Name, m.err = ParseRegionSpecifier(m.inner.Bytes())
			case 3:
				m.err = m.action(m.inner.Bytes())
				return m.err == nil
			}
		}
		if m.err == nil {
			m.err = m.inner.Err()
		}
		if m.err != nil || !m.nextRegion() {
			return false
		}
	}
	return false
}

func (m *MultiActions) nextRegion() bool {
	for m.outer.Next() {
		if m.outer.Field() == 1 {
			m.inner = NewReader("RegionAction", m.outer.Bytes())
			m.Region++
			return true
		}
	}
	m.err = m.outer.Err()
	return false
}

func (m *MultiActions) action(b []byte) error {
	m.Index, m.Mutation, m.Get = 0, nil, nil
	r := NewReader("Action", b)
	for r.Next() {
		switch r.Field() {
		case 1:
			m.Index = r.Int()
		case 2:
			m.Mutation = new(Mutation)
			r.Embed(m.Mutation.Parse(r.Bytes()))
		case 3:
			m.Get = new(Get)
			r.Embed(m.Get.Parse(r.Bytes()))
		}
	}
	r.Require(m.Mutation != nil || m.Get != nil, "mutation or get")
	return r.Err()
}

// Err is nil when all that was walked was well formed.
func (m *MultiActions) Err() error { return m.err }
