package wire

import "math"

// TimeRange selects versions by timestamp: From inclusive, To exclusive, in milliseconds. The zero value selects all.
type TimeRange struct {
	From, To int64
}

func (t TimeRange) appendField(dst []byte, field int) []byte {
	if t == (TimeRange{}) {
		return dst
	}
	to := t.To
	if to == 0 {
		to = math.MaxInt64
	}
	dst, at := BeginMessage(dst, field)
	dst = AppendUintField(dst, 1, uint64(t.From))
	dst = AppendUintField(dst, 2, uint64(to))
	return EndMessage(dst, at)
}

func (t *TimeRange) parse(b []byte) error {
	r := NewReader("TimeRange", b)
	for r.Next() {
		switch r.Field() {
		case 1:
			t.From = int64(r.Uint64())
		case 2:
			t.To = int64(r.Uint64())
		}
	}
	return r.Err()
}

// Column selects qualifiers of a family; none selects all.
type Column struct {
	Family     string
	Qualifiers [][]byte
}

// AppendTo implements Message.
func (c *Column) AppendTo(dst []byte) []byte {
	dst = AppendBytesField(dst, 1, c.Family)
	for _, q := range c.Qualifiers {
		dst = AppendBytesField(dst, 2, q)
	}
	return dst
}

// Parse fills c from an encoded Column.
func (c *Column) Parse(b []byte) error {
	*c = Column{}
	r := NewReader("Column", b)
	for r.Next() {
		switch r.Field() {
		case 1:
			c.Family = r.String()
		case 2:
			c.Qualifiers = append(c.Qualifiers, r.Bytes())
		}
	}
	return r.Err()
}

// Selection is which cells of a row a Get answers with. The zero value is the newest version of all cells.
type Selection struct {
	Columns       []Column
	Filter        Filter
	TimeRange     TimeRange
	MaxVersions   uint32 // 0 stands for 1
	NoCache       bool   // do not put the blocks read into the server's block cache
	ExistenceOnly bool   // answer with Result.Exists instead of cells
}

// AppendTo implements Message: the fields of a Get but for its row. Encoded once, it does for the Gets of many rows.
func (s *Selection) AppendTo(dst []byte) []byte {
	for i := range s.Columns {
		dst = AppendMessageField(dst, 2, &s.Columns[i])
	}
	if s.Filter != nil {
		dst = appendFilterField(dst, 4, s.Filter)
	}
	dst = s.TimeRange.appendField(dst, 5)
	if s.MaxVersions > 1 {
		dst = AppendUintField(dst, 6, uint64(s.MaxVersions))
	}
	if s.NoCache {
		dst = AppendBoolField(dst, 7, false)
	}
	if s.ExistenceOnly {
		dst = AppendBoolField(dst, 10, true)
	}
	return dst
}

// MethodGet takes a GetRequest.
const MethodGet = "Get"

// AppendGetRequest appends the request for one row of a region; selection is an encoded Selection.
func AppendGetRequest(dst, region, row, selection []byte) []byte {
	dst, at := BeginMessage(dst, 1)
	dst = EndMessage(AppendRegionSpecifier(dst, region), at)
	dst, at = BeginMessage(dst, 2)
	return EndMessage(appendGet(dst, row, selection), at)
}

func appendGet(dst, row, selection []byte) []byte {
	dst = AppendBytesField(dst, 1, row)
	return append(dst, selection...)
}

// Get is a Get as a server sees it.
type Get struct {
	Row []byte
	Selection
}

// Parse fills g from an encoded Get. Filters are not parsed.
func (g *Get) Parse(b []byte) error {
	*g = Get{}
	r := NewReader("Get", b)
	for r.Next() {
		switch r.Field() {
		case 1:
			g.Row = r.Bytes()
		case 2:
			var c Column
			r.Embed(c.Parse(r.Bytes()))
			g.Columns = append(g.Columns, c)
		case 5:
			r.Embed(g.TimeRange.parse(r.Bytes()))
		case 6:
			g.MaxVersions = r.Uint32()
		case 7:
			g.NoCache = !r.Bool()
		case 10:
			g.ExistenceOnly = r.Bool()
		}
	}
	return r.Err()
}

// ParseGetRequest takes a GetRequest apart, as a server does.
func ParseGetRequest(b []byte) (region []byte, get Get, err error) {
	r := NewReader("GetRequest", b)
	for r.Next() {
		switch r.Field() {
		case 1:
			name, err := ParseRegionSpecifier(r.Bytes())
			r.Embed(err)
			region = name
		case 2:
			r.Embed(get.Parse(r.Bytes()))
		}
	}
	return region, get, r.Err()
}

// Result is what a Get, an Increment or an entry of a Multi answers. Its cells are the next Cells ones of the
// response's cell block.
type Result struct {
	Cells   int
	Exists  bool // of a Get for existence only
	Partial bool // more cells of the row follow in the next Result
	Stale   bool // read from a replica that may lag
	// Embedded is the number of cells inside of the message, in protobuf, which HBase sends only to clients without
	// version and codec: they are not parsed, and a client that meets any must not take Cells for all.
	Embedded int
}

// AppendTo implements Message.
func (s *Result) AppendTo(dst []byte) []byte {
	if s.Cells > 0 {
		dst = AppendUintField(dst, 2, uint64(s.Cells))
	}
	if s.Exists {
		dst = AppendBoolField(dst, 3, true)
	}
	if s.Stale {
		dst = AppendBoolField(dst, 4, true)
	}
	if s.Partial {
		dst = AppendBoolField(dst, 5, true)
	}
	return dst
}

// Parse fills s from an encoded Result.
func (s *Result) Parse(b []byte) error {
	*s = Result{}
	r := NewReader("Result", b)
	for r.Next() {
		switch r.Field() {
		case 1:
			s.Embedded++
		case 2:
			s.Cells = r.Int()
		case 3:
			s.Exists = r.Bool()
		case 4:
			s.Stale = r.Bool()
		case 5:
			s.Partial = r.Bool()
		}
	}
	return r.Err()
}

// ParseGetResponse gives the result of a Get; a row that is not there has no cells.
func ParseGetResponse(b []byte) (result Result, err error) {
	r := NewReader("GetResponse", b)
	for r.Next() {
		if r.Field() == 1 {
			r.Embed(result.Parse(r.Bytes()))
		}
	}
	return result, r.Err()
}

// AppendGetResponse appends the response to a Get.
func AppendGetResponse(dst []byte, result *Result) []byte { return AppendMessageField(dst, 1, result) }
