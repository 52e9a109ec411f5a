package wire

// ScanResponse answers a ScanRequest. The cells of its results stand one behind the other in the response's cell block.
type ScanResponse struct {
	// Results are the rows, or parts of rows, of the response.
	Results []ScanResult
	// ScannerID is the scanner's; 0 when the server did not repeat it.
	ScannerID uint64
	// More is false when the scan is over altogether: its limit is reached or its filter is done.
	More bool
	// MoreInRegion is false when the region is exhausted. When it or More is false the server has closed the scanner.
	MoreInRegion bool
	// Lease is how long, in milliseconds, the scanner lives without a call.
	Lease uint32
	// Heartbeat marks a response that came for its time, not because it was full. The last row may be cut (Partial).
	Heartbeat bool
	// Cursor is the row a heartbeat has got to, if Scan.Cursor asked for it and no row says it already.
	Cursor []byte
	// ReadPoint is for Scan.ReadPoint of a scanner that takes over in the same region.
	ReadPoint uint64
	// Embedded is as in Result: results inside of the message, which are not parsed.
	Embedded int
}

// ScanResult is a row or a part of one.
type ScanResult struct {
	Cells   int  // at least 1
	Partial bool // more cells of the row follow in the next result, perhaps in the next response
}

// AppendTo implements Message.
func (s *ScanResponse) AppendTo(dst []byte) []byte {
	for _, x := range s.Results {
		dst = AppendUintField(dst, 1, uint64(x.Cells))
	}
	dst = AppendUintField(dst, 2, s.ScannerID)
	dst = AppendBoolField(dst, 3, s.More)
	if s.Lease > 0 {
		dst = AppendUintField(dst, 4, uint64(s.Lease))
	}
	for _, x := range s.Results {
		dst = AppendBoolField(dst, 7, x.Partial)
	}
	dst = AppendBoolField(dst, 8, s.MoreInRegion)
	if s.Heartbeat {
		dst = AppendBoolField(dst, 9, true)
	}
	if s.ReadPoint > 0 {
		dst = AppendUintField(dst, 11, s.ReadPoint)
	}
	if s.Cursor != nil {
		var at int
		dst, at = BeginMessage(dst, 12)
		dst = EndMessage(AppendBytesField(dst, 1, s.Cursor), at)
	}
	return dst
}

// Parse fills s from an encoded ScanResponse; it reuses the memory of s.Results.
func (s *ScanResponse) Parse(b []byte) error {
	*s = ScanResponse{Results: s.Results[:0], More: true, MoreInRegion: true}
	partials := 0
	r := NewReader("ScanResponse", b)
	for r.Next() {
		switch r.Field() {
		case 1:
			s.counts(&r)
		case 2:
			s.ScannerID = r.Uint64()
		case 3:
			s.More = r.Bool()
		case 4:
			s.Lease = r.Uint32()
		case 5:
			s.Embedded++
		case 7:
			s.partials(&r, &partials)
		case 8:
			s.MoreInRegion = r.Bool()
		case 9:
			s.Heartbeat = r.Bool()
		case 11:
			s.ReadPoint = r.Uint64()
		case 12:
			s.cursor(&r)
		}
	}
	return r.Err()
}

// counts reads cells_per_result, one to a field as HBase writes it, or packed as any writer may. HBase sends no result
// without cells, and whoever joins results by their rows could not tell where one belongs.
func (s *ScanResponse) counts(r *Reader) {
	for v := range r.repeated() {
		if v == 0 || v > 1<<31-1 {
			r.fail("number of cells out of range")
			return
		}
		s.Results = append(s.Results, ScanResult{Cells: int(v)})
	}
}

// partials reads partial_flag_per_result, which follows all of cells_per_result.
func (s *ScanResponse) partials(r *Reader, n *int) {
	for v := range r.repeated() {
		if *n >= len(s.Results) {
			r.fail("more partial flags than results")
			return
		}
		s.Results[*n].Partial = v != 0
		*n++
	}
}

func (s *ScanResponse) cursor(outer *Reader) {
	r := NewReader("Cursor", outer.Bytes())
	for r.Next() {
		if r.Field() == 1 {
			s.Cursor = r.Bytes()
		}
	}
	outer.Embed(r.Err())
}
