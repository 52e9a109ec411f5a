package wire

// ReadType is how the server reads the files of a scan.
type ReadType uint8

// Read types. ReadDefault starts with positional reads and goes over to streaming after some blocks.
const (
	ReadDefault    ReadType = iota
	ReadStream              // for long scans
	ReadPositional          // for short ones
)

// Scan is what a scanner walks: rows from Start to Stop. The zero value is the newest version of all cells of the
// table.
type Scan struct {
	Columns        []Column
	Start          []byte // empty: from the start; of a reversed scan, from the end
	StartExclusive bool
	Stop           []byte // empty: to the end; of a reversed scan, to the start
	StopInclusive  bool
	Filter         Filter
	TimeRange      TimeRange
	MaxVersions    uint32 // 0 stands for 1
	NoCache        bool   // do not put the blocks read into the server's block cache
	// Batch bounds the cells of a result, which cuts wide rows into partial results without filling one up. 0: no
	// bound.
	Batch uint32
	// MaxResultSize bounds a response, in bytes of the server's memory, about 1.7 times those of small cells as they
	// travel. 0: the server's default.
	MaxResultSize uint64
	Reversed      bool // Start is the highest row
	ReadType      ReadType
	// Cursor asks for ScanResponse.Cursor with heartbeats.
	Cursor bool
	// ReadPoint makes a scanner see the region as one before it did (ScanResponse.ReadPoint), as long as the server keeps
	// what that one saw: when the region was reopened and compacted, it misses cells that were replaced since. 0: now.
	ReadPoint uint64
}

// AppendTo implements Message.
func (s *Scan) AppendTo(dst []byte) []byte {
	for i := range s.Columns {
		dst = AppendMessageField(dst, 1, &s.Columns[i])
	}
	if len(s.Start) > 0 {
		dst = AppendBytesField(dst, 3, s.Start)
	}
	if len(s.Stop) > 0 {
		dst = AppendBytesField(dst, 4, s.Stop)
	}
	if s.Filter != nil {
		dst = appendFilterField(dst, 5, s.Filter)
	}
	dst = s.TimeRange.appendField(dst, 6)
	dst = AppendUintField(dst, 7, uint64(max(s.MaxVersions, 1)))
	dst = AppendBoolField(dst, 8, !s.NoCache)
	if s.Batch > 0 {
		dst = AppendUintField(dst, 9, uint64(s.Batch))
	}
	if s.MaxResultSize > 0 {
		dst = AppendUintField(dst, 10, s.MaxResultSize)
	}
	if s.Reversed {
		dst = AppendBoolField(dst, 15, true)
	}
	dst = AppendBoolField(dst, 18, true) // partial results; the request says it again
	if s.ReadPoint > 0 {
		dst = AppendUintField(dst, 20, s.ReadPoint)
	}
	dst = AppendBoolField(dst, 21, !s.StartExclusive)
	dst = AppendBoolField(dst, 22, s.StopInclusive)
	if s.ReadType != ReadDefault {
		dst = AppendUintField(dst, 23, uint64(s.ReadType))
	}
	if s.Cursor {
		dst = AppendBoolField(dst, 24, true)
	}
	return dst
}

// Parse fills s from an encoded Scan. Filters are not parsed.
func (s *Scan) Parse(b []byte) error {
	*s = Scan{}
	r := NewReader("Scan", b)
	for r.Next() {
		switch r.Field() {
		case 1:
			var c Column
			r.Embed(c.Parse(r.Bytes()))
			s.Columns = append(s.Columns, c)
		case 3:
			s.Start = r.Bytes()
		case 4:
			s.Stop = r.Bytes()
		case 6:
			r.Embed(s.TimeRange.parse(r.Bytes()))
		case 7:
			s.MaxVersions = r.Uint32()
		case 8:
			s.NoCache = !r.Bool()
		case 9:
			s.Batch = r.Uint32()
		case 10:
			s.MaxResultSize = r.Uint64()
		case 15:
			s.Reversed = r.Bool()
		case 20:
			s.ReadPoint = r.Uint64()
		case 21:
			s.StartExclusive = !r.Bool()
		case 22:
			s.StopInclusive = r.Bool()
		case 23:
			s.ReadType = ReadType(r.Uint32())
		case 24:
			s.Cursor = r.Bool()
		}
	}
	return r.Err()
}

// MethodScan takes a ScanRequest.
const MethodScan = "Scan"

// ScanRequest opens a scanner on a region, or goes on with one. Every request may be answered with rows.
//
//	open    Region, Scan, Rows, LimitOfRows
//	one     the same with Close: the scanner ends with the first response
//	next    ScannerID, Rows, LimitOfRows, CallSeq
//	renew   ScannerID, Renew, CallSeq: no rows, but the lease starts anew
//	close   ScannerID, Close, Rows 0
//
// CallSeq is 0 in the first next or renew after the open, and one more in each further. A number that was used fails
// the call: a next whose answer was lost is not to be repeated, for its rows are gone with it.
type ScanRequest struct {
	Region      []byte // name; open only
	Scan        *Scan  // open only
	ScannerID   uint64 // all but open
	Rows        uint32 // most rows of the response, whole or in parts
	LimitOfRows uint32 // rows still wanted altogether; 0: all
	CallSeq     uint64
	Close       bool
	Renew       bool
}

// AppendTo implements Message.
func (s *ScanRequest) AppendTo(dst []byte) []byte {
	if s.Scan != nil {
		var at int
		dst, at = BeginMessage(dst, 1)
		dst = EndMessage(AppendRegionSpecifier(dst, s.Region), at)
		dst = AppendMessageField(dst, 2, s.Scan)
	} else {
		dst = AppendUintField(dst, 3, s.ScannerID)
	}
	dst = AppendUintField(dst, 4, uint64(s.Rows))
	if s.Close {
		dst = AppendBoolField(dst, 5, true)
	}
	if s.Scan == nil && !s.Close {
		dst = AppendUintField(dst, 6, s.CallSeq)
	}
	dst = AppendBoolField(dst, 7, true) // handles partial results
	dst = AppendBoolField(dst, 8, true) // handles heartbeats
	if s.Renew {
		dst = AppendBoolField(dst, 10, true)
	}
	if s.LimitOfRows > 0 {
		dst = AppendUintField(dst, 11, uint64(s.LimitOfRows))
	}
	return dst
}

// Parse fills s from an encoded ScanRequest.
func (s *ScanRequest) Parse(b []byte) error {
	*s = ScanRequest{}
	r := NewReader("ScanRequest", b)
	for r.Next() {
		switch r.Field() {
		case 1:
			name, err := ParseRegionSpecifier(r.Bytes())
			r.Embed(err)
			s.Region = name
		case 2:
			s.Scan = new(Scan)
			r.Embed(s.Scan.Parse(r.Bytes()))
		case 3:
			s.ScannerID = r.Uint64()
		case 4:
			s.Rows = r.Uint32()
		case 5:
			s.Close = r.Bool()
		case 6:
			s.CallSeq = r.Uint64()
		case 10:
			s.Renew = r.Bool()
		case 11:
			s.LimitOfRows = r.Uint32()
		}
	}
	return r.Err()
}
