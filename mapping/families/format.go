package families

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/promtsd/promtsd/mapping"
)

const keyText = "metadata of "

// FormatKey writes the key of a row of metadata, for people and for ParseKey; ok is false for any other row.
//
//	metadata of "up"
func FormatKey(row []byte) (text string, ok bool) {
	if len(row) == 0 || row[0] != prefix {
		return "", false
	}
	return keyText + strconv.Quote(string(row[1:])), true
}

// ParseKey reads what FormatKey wrote. The error wraps mapping.ErrInvalid.
func ParseKey(text string) (row []byte, err error) {
	quoted, ok := strings.CutPrefix(text, keyText)
	name, err := strconv.Unquote(quoted)
	if !ok || err != nil {
		return nil, fmt.Errorf("%w: key %q of metadata, want %s and a name in quotes", mapping.ErrInvalid, text, keyText)
	}
	return rowKey(name), nil
}
