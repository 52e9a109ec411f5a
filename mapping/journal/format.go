package journal

import (
	"encoding/binary"
	"fmt"
)

// FormatEntryKey writes the key of a row of the journal's table for people; ok is false for any other row.
//
//	entry 17 of 0123456789abcdef
func FormatEntryKey(row []byte) (text string, ok bool) {
	if len(row) != entryRowBytes {
		return "", false
	}
	return fmt.Sprintf("entry %d of %v", binary.BigEndian.Uint64(row[8:]), ID(binary.BigEndian.Uint64(row))), true
}

// FormatKey writes the key of a row of promtsd's own table that is the journal's for people; ok is false for any other
// row.
//
//	lease of 0123456789abcdef
//	quarantined entry 17 of 0123456789abcdef
func FormatKey(row []byte) (text string, ok bool) {
	switch {
	case len(row) == 9 && row[0] == leasePrefix:
		return fmt.Sprintf("lease of %v", ID(binary.BigEndian.Uint64(row[1:]))), true
	case len(row) > 0 && row[0] == quarantinePrefix:
		text, ok = FormatEntryKey(row[1:])
		return "quarantined " + text, ok
	default:
		return "", false
	}
}
