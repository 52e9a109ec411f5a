package journal

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/promtsd/promtsd/mapping"
)

// FormatEntryKey writes the key of a row of the journal's table, for people and for ParseEntryKey; ok is false for any
// other row.
//
//	entry 17 of 0123456789abcdef
func FormatEntryKey(row []byte) (text string, ok bool) {
	if len(row) != entryRowBytes {
		return "", false
	}
	return fmt.Sprintf("%s%d of %v", entryText, binary.BigEndian.Uint64(row[8:]), ID(binary.BigEndian.Uint64(row))), true
}

const (
	entryText       = "entry "
	leaseText       = "lease of "
	quarantinedText = "quarantined "
)

// ParseEntryKey reads what FormatEntryKey wrote. The error wraps mapping.ErrInvalid.
func ParseEntryKey(text string) (row []byte, err error) {
	rest, ok := strings.CutPrefix(text, entryText)
	numberText, writerText, found := strings.Cut(rest, " of ")
	number, numberErr := strconv.ParseUint(numberText, 10, 64)
	writer, writerErr := ParseID(writerText)
	if !ok || !found || numberErr != nil || writerErr != nil {
		return nil, fmt.Errorf("%w: key %q of the journal, want such as %q", mapping.ErrInvalid, text,
			"entry 17 of 0123456789abcdef")
	}
	return entryRow(writer, number), nil
}

// FormatKey writes the key of a row of the system table that is the journal's, for people and for ParseKey; ok is false
// for any other row.
//
//	lease of 0123456789abcdef
//	quarantined entry 17 of 0123456789abcdef
func FormatKey(row []byte) (text string, ok bool) {
	switch {
	case len(row) == 9 && row[0] == leasePrefix:
		return leaseText + ID(binary.BigEndian.Uint64(row[1:])).String(), true
	case len(row) > 0 && row[0] == quarantinePrefix:
		text, ok = FormatEntryKey(row[1:])
		return quarantinedText + text, ok
	default:
		return "", false
	}
}

// ParseKey reads what FormatKey wrote. The error wraps mapping.ErrInvalid.
func ParseKey(text string) (row []byte, err error) {
	if entry, ok := strings.CutPrefix(text, quarantinedText); ok {
		row, err = ParseEntryKey(entry)
		return append([]byte{quarantinePrefix}, row...), err
	}
	writerText, ok := strings.CutPrefix(text, leaseText)
	writer, err := ParseID(writerText)
	if !ok || err != nil {
		return nil, fmt.Errorf("%w: key %q of the journal, want such as %q or %q", mapping.ErrInvalid, text,
			"lease of 0123456789abcdef", "quarantined entry 17 of 0123456789abcdef")
	}
	return leaseRow(writer), nil
}

// formatRow is the text of a row of the journal's table or of its rows in the system table, for a message: in hex if it
// is of neither.
func formatRow(row []byte) string {
	for _, format := range []func([]byte) (string, bool){FormatKey, FormatEntryKey} {
		if text, ok := format(row); ok {
			return text
		}
	}
	return fmt.Sprintf("bytes:%x", row)
}
