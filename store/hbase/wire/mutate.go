package wire

// MutationType is what a mutation does with its cells.
type MutationType uint8

// Types of mutations.
const (
	Append    MutationType = iota // the value of each cell is added to the end of the stored one
	Increment                     // the 8-byte big-endian value of each cell is added to the stored one
	Put
	Delete // each cell's CellType says how much
)

// Durability is what the server waits for before it answers a mutation.
type Durability uint8

// Durabilities. The table's own is for all but special cases.
const (
	TableDurability Durability = iota
	SkipWAL
	AsyncWAL
	SyncWAL
	FsyncWAL
)

// Mutation is one mutation of one row whose cells travel in the cell block.
type Mutation struct {
	// Row is needed only when there are no cells; otherwise the server takes it from the first cell.
	Row        []byte
	Type       MutationType
	Cells      int // cells of the block that belong to the mutation
	Durability Durability
	// Nonce, when not 0, makes the server apply the mutations that carry it, within half an hour, once. It counts together
	// with the nonce group of the request. A repeated Increment is not answered with its sum, but with what is left of the
	// cell as it was then, which may be any sum before it, or nothing.
	Nonce uint64
	// NoResult tells the server not to answer an Increment or Append with the new cells.
	NoResult bool
}

// AppendTo implements Message.
func (m *Mutation) AppendTo(dst []byte) []byte {
	if len(m.Row) > 0 {
		dst = AppendBytesField(dst, 1, m.Row)
	}
	dst = AppendUintField(dst, 2, uint64(m.Type))
	if m.NoResult {
		var at int
		dst, at = BeginMessage(dst, 5)
		dst = AppendBytesField(dst, 1, attributeReturnResults)
		dst = EndMessage(AppendBytesField(dst, 2, "\x00"), at)
	}
	if m.Durability != TableDurability {
		dst = AppendUintField(dst, 6, uint64(m.Durability))
	}
	dst = AppendUintField(dst, 8, uint64(m.Cells))
	if m.Nonce != 0 {
		dst = AppendUintField(dst, 9, m.Nonce)
	}
	return dst
}

// attributeReturnResults is the attribute by which Java's Increment and Append refuse a result.
const attributeReturnResults = "_rr_"

// Parse fills m from an encoded MutationProto.
func (m *Mutation) Parse(b []byte) error {
	*m = Mutation{}
	r := NewReader("MutationProto", b)
	for r.Next() {
		switch r.Field() {
		case 1:
			m.Row = r.Bytes()
		case 2:
			m.Type = MutationType(r.Uint32())
		case 5:
			m.NoResult = m.NoResult || parseNoResult(&r)
		case 6:
			m.Durability = Durability(r.Uint32())
		case 8:
			m.Cells = r.Int()
		case 9:
			m.Nonce = r.Uint64()
		}
	}
	return r.Err()
}

// parseNoResult reads an attribute, a NameBytesPair.
func parseNoResult(outer *Reader) bool {
	var name, value []byte
	r := NewReader("NameBytesPair", outer.Bytes())
	for r.Next() {
		switch r.Field() {
		case 1:
			name = r.Bytes()
		case 2:
			value = r.Bytes()
		}
	}
	outer.Embed(r.Err())
	return string(name) == attributeReturnResults && string(value) == "\x00"
}

// CompareOp compares a stored value with a given one.
type CompareOp uint8

// Comparisons. In a Condition they read "given value op stored value": Less holds when the given value is the smaller
// one.
const (
	Less CompareOp = iota
	LessOrEqual
	Equal
	NotEqual
	GreaterOrEqual
	Greater
)

// Condition makes a mutation depend on one cell of the same row.
type Condition struct {
	Row       []byte
	Family    string
	Qualifier []byte
	Op        CompareOp
	// Comparator holds the given value. Equal with NullComparator holds when there is no cell.
	Comparator Comparator
}

// AppendTo implements Message.
func (c *Condition) AppendTo(dst []byte) []byte {
	dst = AppendBytesField(dst, 1, c.Row)
	dst = AppendBytesField(dst, 2, c.Family)
	dst = AppendBytesField(dst, 3, c.Qualifier)
	dst = AppendUintField(dst, 4, uint64(c.Op))
	return appendComparatorField(dst, 5, c.Comparator)
}

// MethodMutate takes a MutateRequest.
const MethodMutate = "Mutate"

// MutateRequest is one mutation of one region.
type MutateRequest struct {
	Region     []byte // name
	Mutation   Mutation
	Condition  *Condition // nil: unconditional. Its row is that of the mutation.
	NonceGroup uint64     // of the client; goes with Mutation.Nonce
}

// AppendTo implements Message.
func (m *MutateRequest) AppendTo(dst []byte) []byte {
	dst, at := BeginMessage(dst, 1)
	dst = EndMessage(AppendRegionSpecifier(dst, m.Region), at)
	dst = AppendMessageField(dst, 2, &m.Mutation)
	if m.Condition != nil {
		dst = AppendMessageField(dst, 3, m.Condition)
	}
	if m.NonceGroup != 0 {
		dst = AppendUintField(dst, 4, m.NonceGroup)
	}
	return dst
}

// Parse fills m from an encoded MutateRequest. Of a condition only the cell and the operator are parsed, and its
// comparator as RawComparator.
func (m *MutateRequest) Parse(b []byte) error {
	*m = MutateRequest{}
	r := NewReader("MutateRequest", b)
	for r.Next() {
		switch r.Field() {
		case 1:
			name, err := ParseRegionSpecifier(r.Bytes())
			r.Embed(err)
			m.Region = name
		case 2:
			r.Embed(m.Mutation.Parse(r.Bytes()))
		case 3:
			m.Condition = new(Condition)
			r.Embed(m.Condition.parse(r.Bytes()))
		case 4:
			m.NonceGroup = r.Uint64()
		}
	}
	return r.Err()
}

func (c *Condition) parse(b []byte) error {
	r := NewReader("Condition", b)
	for r.Next() {
		switch r.Field() {
		case 1:
			c.Row = r.Bytes()
		case 2:
			c.Family = r.String()
		case 3:
			c.Qualifier = r.Bytes()
		case 4:
			c.Op = CompareOp(r.Uint32())
		case 5:
			var raw RawComparator
			r.Embed(raw.parse(r.Bytes()))
			c.Comparator = raw
		}
	}
	return r.Err()
}

// MutateResponse answers a MutateRequest.
type MutateResponse struct {
	Result    Result // the new cells of an Increment or Append
	Processed bool   // the condition held, and the mutation was applied; only of meaning with a condition
}

// AppendTo implements Message.
func (m *MutateResponse) AppendTo(dst []byte) []byte {
	dst = AppendMessageField(dst, 1, &m.Result)
	return AppendBoolField(dst, 2, m.Processed)
}

// Parse fills m from an encoded MutateResponse.
func (m *MutateResponse) Parse(b []byte) error {
	*m = MutateResponse{}
	r := NewReader("MutateResponse", b)
	for r.Next() {
		switch r.Field() {
		case 1:
			r.Embed(m.Result.Parse(r.Bytes()))
		case 2:
			m.Processed = r.Bool()
		}
	}
	return r.Err()
}
