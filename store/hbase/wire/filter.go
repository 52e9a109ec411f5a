package wire

// Filter is a filter the server runs over the rows of a Get or Scan.
//
// Only FuzzyRow, MultiRowRange, RowPrefix and ColumnRange let the server seek past what they exclude; the others read
// it. A filter that the server does not know fails the call.
type Filter interface {
	Message
	// class is the filter's class in org.apache.hadoop.hbase.filter.
	class() string
}

const filterPackage = "org.apache.hadoop.hbase.filter."

func appendFilterField(dst []byte, field int, f Filter) []byte {
	dst, at := BeginMessage(dst, field)
	dst = AppendBytesField(dst, 1, filterPackage+f.class())
	return EndMessage(AppendMessageField(dst, 2, f), at)
}

// AllOf passes what all of its filters pass. The order matters for those that keep state, like Page.
type AllOf []Filter

// AnyOf passes what any of its filters passes.
type AnyOf []Filter

func (AllOf) class() string { return "FilterList" }
func (AnyOf) class() string { return "FilterList" }

// AppendTo implements Message.
func (l AllOf) AppendTo(dst []byte) []byte { return appendFilterList(dst, 1, l) }

// AppendTo implements Message.
func (l AnyOf) AppendTo(dst []byte) []byte { return appendFilterList(dst, 2, l) }

func appendFilterList(dst []byte, operator uint64, filters []Filter) []byte {
	dst = AppendUintField(dst, 1, operator)
	for _, f := range filters {
		dst = appendFilterField(dst, 2, f)
	}
	return dst
}

// RowFilter compares the row key: a row passes when "row key op comparator" holds.
type RowFilter struct {
	Op         CompareOp
	Comparator Comparator
}

func (RowFilter) class() string { return "RowFilter" }

// AppendTo implements Message.
func (f RowFilter) AppendTo(dst []byte) []byte { return appendCompareFilter(dst, f.Op, f.Comparator) }

// QualifierFilter is RowFilter for the qualifier of each cell.
type QualifierFilter struct {
	Op         CompareOp
	Comparator Comparator
}

func (QualifierFilter) class() string { return "QualifierFilter" }

// AppendTo implements Message.
func (f QualifierFilter) AppendTo(dst []byte) []byte {
	return appendCompareFilter(dst, f.Op, f.Comparator)
}

// ValueFilter is RowFilter for the value of each cell.
type ValueFilter struct {
	Op         CompareOp
	Comparator Comparator
}

func (ValueFilter) class() string { return "ValueFilter" }

// AppendTo implements Message.
func (f ValueFilter) AppendTo(dst []byte) []byte { return appendCompareFilter(dst, f.Op, f.Comparator) }

func appendCompareFilter(dst []byte, op CompareOp, c Comparator) []byte {
	dst, at := BeginMessage(dst, 1)
	dst = AppendUintField(dst, 1, uint64(op))
	return EndMessage(appendComparatorField(dst, 2, c), at)
}

// RowRange is a range of rows. An empty Stop is the end of the table.
type RowRange struct {
	Start          []byte
	StartExclusive bool
	Stop           []byte
	StopInclusive  bool
}

// MultiRowRange passes the rows of its ranges, which may overlap and stand in any order, and seeks from one to the
// next.
type MultiRowRange []RowRange

func (MultiRowRange) class() string { return "MultiRowRangeFilter" }

// AppendTo implements Message.
func (f MultiRowRange) AppendTo(dst []byte) []byte {
	for _, x := range f {
		var at int
		dst, at = BeginMessage(dst, 1)
		dst = AppendBytesField(dst, 1, x.Start)
		dst = AppendBoolField(dst, 2, !x.StartExclusive)
		dst = AppendBytesField(dst, 3, x.Stop)
		dst = EndMessage(AppendBoolField(dst, 4, x.StopInclusive), at)
	}
	return dst
}

// FuzzyKey is a row key of which some bytes may be anything. Rows longer than the key match by their front.
type FuzzyKey struct {
	Key  []byte
	Mask []byte // as long as Key; 0: the byte is fixed, 1: any byte
}

// FuzzyRow passes the rows that match any of its keys, and seeks to the next that can.
//
// The mask travels as it is given here, marked as version 2. Java clients send a mask they have recoded for the
// server's inner loop; the server recodes the plain one itself, and unlike a recoded one it cannot be mistaken.
type FuzzyRow []FuzzyKey

func (FuzzyRow) class() string { return "FuzzyRowFilter" }

// AppendTo implements Message.
func (f FuzzyRow) AppendTo(dst []byte) []byte {
	for _, k := range f {
		var at int
		dst, at = BeginMessage(dst, 1)
		dst = AppendBytesField(dst, 1, k.Key)
		dst = EndMessage(AppendBytesField(dst, 2, k.Mask), at)
	}
	return AppendBoolField(dst, 2, true)
}

// RowPrefix passes the rows that start with it.
type RowPrefix []byte

func (RowPrefix) class() string { return "PrefixFilter" }

// AppendTo implements Message.
func (f RowPrefix) AppendTo(dst []byte) []byte { return AppendBytesField(dst, 1, []byte(f)) }

// ColumnRange passes the cells whose qualifier lies in the range. A nil bound is none.
type ColumnRange struct {
	Min          []byte
	MinExclusive bool
	Max          []byte
	MaxInclusive bool
}

func (ColumnRange) class() string { return "ColumnRangeFilter" }

// AppendTo implements Message.
func (f ColumnRange) AppendTo(dst []byte) []byte {
	if f.Min != nil {
		dst = AppendBytesField(dst, 1, f.Min)
	}
	dst = AppendBoolField(dst, 2, !f.MinExclusive)
	if f.Max != nil {
		dst = AppendBytesField(dst, 3, f.Max)
	}
	return AppendBoolField(dst, 4, f.MaxInclusive)
}

// FirstKeyOnly passes the first cell of each row.
type FirstKeyOnly struct{}

func (FirstKeyOnly) class() string { return "FirstKeyOnlyFilter" }

// AppendTo implements Message.
func (FirstKeyOnly) AppendTo(dst []byte) []byte { return dst }

// KeyOnly passes all cells, without their values.
type KeyOnly struct{}

func (KeyOnly) class() string { return "KeyOnlyFilter" }

// AppendTo implements Message.
func (KeyOnly) AppendTo(dst []byte) []byte { return AppendBoolField(dst, 1, false) }

// Page passes that many rows of each region.
type Page uint32

func (Page) class() string { return "PageFilter" }

// AppendTo implements Message.
func (f Page) AppendTo(dst []byte) []byte { return AppendUintField(dst, 1, uint64(f)) }
