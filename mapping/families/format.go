package families

import "fmt"

// FormatKey writes the key of a row of metadata for people, as in: metadata of "up". ok is false for any other row.
func FormatKey(row []byte) (text string, ok bool) {
	if len(row) == 0 || row[0] != prefix {
		return "", false
	}
	return fmt.Sprintf("metadata of %q", row[1:]), true
}
