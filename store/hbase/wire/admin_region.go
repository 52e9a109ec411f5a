package wire

// Methods of the MasterService about regions. SplitRegion and MergeTableRegions are answered with a procedure;
// MoveRegion with an empty response, when the region has moved.
const (
	MethodSplitRegion       = "SplitRegion"
	MethodMergeTableRegions = "MergeTableRegions"
	MethodMoveRegion        = "MoveRegion"
)

// SplitRegionRequest splits a region in two.
type SplitRegionRequest struct {
	Region RegionInfo
	Row    []byte // first row of the second half; empty: the server chooses
	Nonce  Nonce
}

// AppendTo implements Message.
func (s *SplitRegionRequest) AppendTo(dst []byte) []byte {
	dst = AppendMessageField(dst, 1, &s.Region)
	if len(s.Row) > 0 {
		dst = AppendBytesField(dst, 2, s.Row)
	}
	return s.Nonce.appendFields(dst, 3)
}

// MergeRegionsRequest makes adjacent regions one.
type MergeRegionsRequest struct {
	Encoded  []string // encoded names (EncodedName), at least two
	Forcible bool     // regions that are not adjacent, too
	Nonce    Nonce
}

// AppendTo implements Message.
func (m *MergeRegionsRequest) AppendTo(dst []byte) []byte {
	for _, name := range m.Encoded {
		var at int
		dst, at = BeginMessage(dst, 1)
		dst = EndMessage(AppendEncodedSpecifier(dst, name), at)
	}
	dst = AppendBoolField(dst, 3, m.Forcible)
	return m.Nonce.appendFields(dst, 4)
}

// MoveRegionRequest moves a region.
type MoveRegionRequest struct {
	Encoded string     // encoded name
	To      ServerName // empty host: anywhere
}

// AppendTo implements Message.
func (m *MoveRegionRequest) AppendTo(dst []byte) []byte {
	dst, at := BeginMessage(dst, 1)
	dst = EndMessage(AppendEncodedSpecifier(dst, m.Encoded), at)
	if m.To.Host != "" {
		dst = AppendMessageField(dst, 2, m.To)
	}
	return dst
}

// Methods of the AdminService of region servers. CompactRegion is answered, with an empty response, when the compaction
// is queued.
const (
	MethodFlushRegion   = "FlushRegion"
	MethodCompactRegion = "CompactRegion"
)

// FlushRegionRequest writes a region's memory to its files.
type FlushRegionRequest struct {
	Region []byte // name
	Family string // empty: all
}

// AppendTo implements Message.
func (f *FlushRegionRequest) AppendTo(dst []byte) []byte {
	dst, at := BeginMessage(dst, 1)
	dst = EndMessage(AppendRegionSpecifier(dst, f.Region), at)
	if f.Family != "" {
		dst = AppendBytesField(dst, 4, f.Family)
	}
	return dst
}

// FlushRegionResponse answers a FlushRegionRequest.
type FlushRegionResponse struct {
	LastFlush uint64 // when the region was last flushed, in milliseconds
	Flushed   bool   // whether there was anything to write
}

// Parse fills f from an encoded FlushRegionResponse.
func (f *FlushRegionResponse) Parse(b []byte) error {
	*f = FlushRegionResponse{}
	r := NewReader("FlushRegionResponse", b)
	for r.Next() {
		switch r.Field() {
		case 1:
			f.LastFlush = r.Uint64()
		case 2:
			f.Flushed = r.Bool()
		}
	}
	return r.Err()
}

// CompactRegionRequest merges a region's files.
type CompactRegionRequest struct {
	Region []byte // name
	Major  bool   // all files, and drop what is deleted or expired
	Family string // empty: all
}

// AppendTo implements Message.
func (c *CompactRegionRequest) AppendTo(dst []byte) []byte {
	dst, at := BeginMessage(dst, 1)
	dst = EndMessage(AppendRegionSpecifier(dst, c.Region), at)
	dst = AppendBoolField(dst, 2, c.Major)
	if c.Family != "" {
		dst = AppendBytesField(dst, 3, c.Family)
	}
	return dst
}
