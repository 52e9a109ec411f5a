package uid

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/store"
)

// FormatCell writes a cell of the UID table for people; ok is false for one that promtsd does not know.
//
//	metrics "up" -> 000001         the UID of a name
//	metrics 000001 -> "up"         the name of a UID
//	metrics: last UID is 12        the counter
func FormatCell(schema mapping.Schema, row []byte, c store.Cell) (text string, ok bool) {
	key, kind, ok := formatKey(schema, row, c.Family, c.Qualifier)
	last, counter := parseCounter(string(c.Value))
	switch {
	case !ok:
		return "", false
	case string(row) == counterRow && c.Family == familyID:
		return fmt.Sprintf("%v: last UID is %d", kind, last), counter
	case c.Family == familyID:
		return fmt.Sprintf("%s -> %x", key, c.Value), len(c.Value) == schema.Width(kind)
	default:
		return fmt.Sprintf("%s -> %q", key, c.Value), true
	}
}

// FormatKey writes the row and the column of a cell of the UID table, for people and for ParseKey; ok is false for one
// that promtsd does not know.
//
//	metrics "up"       the UID of a name
//	metrics 000001     the name of a UID
//	metrics counter    the last UID
func FormatKey(schema mapping.Schema, row []byte, family string, qualifier []byte) (text string, ok bool) {
	text, _, ok = formatKey(schema, row, family, qualifier)
	return text, ok
}

func formatKey(schema mapping.Schema, row []byte, family string, qualifier []byte) (string, mapping.Kind, bool) {
	for kind := range mapping.Kind(kinds) {
		switch {
		case string(qualifier) != string(qualifiers[kind]):
		case family == familyID && string(row) == counterRow:
			return fmt.Sprintf("%v %s", kind, counterText), kind, true
		case family == familyID:
			return fmt.Sprintf("%v %q", kind, row), kind, true
		case family == familyName && len(row) == schema.Width(kind):
			return fmt.Sprintf("%v %x", kind, row), kind, true
		}
	}
	return "", 0, false
}

const counterText = "counter"

// ParseKey reads what FormatKey wrote. The error wraps mapping.ErrInvalid.
func ParseKey(schema mapping.Schema, text string) (row []byte, family string, qualifier []byte, err error) {
	kindText, rest, _ := strings.Cut(text, " ")
	for kind := range mapping.Kind(kinds) {
		if kindText != kind.String() {
			continue
		}
		if rest == counterText {
			return []byte(counterRow), familyID, qualifiers[kind], nil
		}
		if name, err := strconv.Unquote(rest); err == nil {
			return []byte(name), familyID, qualifiers[kind], nil
		}
		if row, err := hex.DecodeString(rest); err == nil && len(row) == schema.Width(kind) {
			return row, familyName, qualifiers[kind], nil
		}
		return nil, "", nil, fmt.Errorf("%w: key %q of the UID table: %q is no name in quotes, no UID of %d bytes in hex, "+
			"and not the word %s", mapping.ErrInvalid, text, rest, schema.Width(kind), counterText)
	}
	return nil, "", nil, fmt.Errorf("%w: key %q of the UID table: %q is no kind of UID", mapping.ErrInvalid, text,
		kindText)
}

// FormatTSUID writes the series of a TSUID for people, by the names that are cached: it does no I/O, and so can be used
// to tell of an error.
//
//	up{instance="a", tagk:2="tagv:13"}
func (r *Registry) FormatTSUID(tsuid []byte) string {
	return r.table.schema.FormatNamedTSUID(tsuid, r.cachedName)
}

// FormatRowKey writes the key of a data row in the same way.
//
//	up{instance="a", tagk:2="tagv:13"} 2013-01-01T00:00:00Z salt 08
func (r *Registry) FormatRowKey(row []byte) string {
	return r.table.schema.FormatNamedRowKey(row, r.cachedName)
}

func (r *Registry) cachedName(kind mapping.Kind, uid mapping.UID) (string, bool) {
	return r.texts.Get(ID{kind, uid})
}
