package uid

import (
	"fmt"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/store"
)

// FormatCell writes a cell of the UID table for people; ok is false for one that is not of a form that promtsd knows.
//
//	metrics "up" -> 000001         the UID of a name
//	metrics 000001 -> "up"         the name of a UID
//	metrics: last UID is 12        the counter
func FormatCell(schema mapping.Schema, row []byte, c store.Cell) (text string, ok bool) {
	for kind := range mapping.Kind(kinds) {
		if string(c.Qualifier) != string(qualifiers[kind]) {
			continue
		}
		last, counter := parseCounter(string(c.Value))
		switch {
		case c.Family == familyID && string(row) == counterRow && counter:
			return fmt.Sprintf("%v: last UID is %d", kind, last), true
		case c.Family == familyID && len(c.Value) == schema.Width(kind):
			return fmt.Sprintf("%v %q -> %x", kind, row, c.Value), true
		case c.Family == familyName && len(row) == schema.Width(kind):
			return fmt.Sprintf("%v %x -> %q", kind, row, c.Value), true
		}
	}
	return "", false
}
