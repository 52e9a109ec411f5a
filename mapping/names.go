package mapping

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Names says how label names and values are spelt in the UID table. It is no part of the Schema: whatever the choice,
// look-ups try every spelling that reads as the label (see Variants).
//
// Labels are UTF-8; OpenTSDB reads and writes names as ISO-8859-1. So a stored name that is no UTF-8 is read as
// ISO-8859-1, and one that is, as UTF-8, which OpenTSDB shows as two or more letters each.
type Names uint8

const (
	// NamesRaw stores the bytes of the label.
	NamesRaw Names = iota
	// NamesOpenTSDB stores only names that OpenTSDB itself would accept in a write. Those of the characters
	//
	//	a-z A-Z 0-9 - _ . /
	//
	// that do not begin with U__ are stored as they are; any other as U__ and then, for each character, itself if it
	// is one of those other than _, or __ if it is _, or _ and its code point in hex and _. So "go:gc" is U__go_3a_gc.
	NamesOpenTSDB
)

// Stored names of what has no label: they are no UTF-8, so that no label can be meant by them, and yet such that
// OpenTSDB takes them for names, because 0xff is a letter in ISO-8859-1. Encode and Decode leave them as they are.
const (
	NoMetric = "no_metric\xff" // the metric of a series without a metric name
	NoTagk   = "no_tags\xff"   // tagk and
	NoTagv   = "no_tags\xff"   // tagv of a series without tags
)

// The row "\x00" of the UID table holds the UID counters, so the label "\x00" is stored under another name.
const (
	counterRow = "\x00"
	storedNUL  = "\x00\xff"
)

// EscapePrefix begins every stored name that NamesOpenTSDB had to spell otherwise.
const EscapePrefix = "U__"

// ParseNames reads the String of a Names.
func ParseNames(s string) (Names, error) {
	for _, n := range []Names{NamesRaw, NamesOpenTSDB} {
		if n.String() == s {
			return n, nil
		}
	}
	return 0, fmt.Errorf("%w: names %q, must be %s or %s", ErrInvalid, s, NamesRaw, NamesOpenTSDB)
}

// String is the setting's name, raw or opentsdb.
func (n Names) String() string {
	if n == NamesOpenTSDB {
		return "opentsdb"
	}
	return "raw"
}

// Encode is the name to store for a label, which must be valid UTF-8 or a reserved name. Different labels have
// different names. The empty string, which is no label, stays empty.
func (n Names) Encode(label string) string {
	switch {
	case n == NamesOpenTSDB && !plain(label) && !reserved(label):
		return escape(label)
	case label == counterRow:
		return storedNUL
	default:
		return label
	}
}

// Decode is the label that a stored name stands for: valid UTF-8, or a reserved name. In NamesOpenTSDB it also undoes
// the escape, and leaves alone what merely looks like one, which is all that Encode would not have made.
func (n Names) Decode(stored string) string {
	switch {
	case reserved(stored):
		return stored
	case stored == storedNUL:
		return counterRow
	case !utf8.ValidString(stored):
		return fromISO88591(stored)
	}
	if n == NamesOpenTSDB && strings.HasPrefix(stored, EscapePrefix) {
		if label, ok := unescape(stored); ok && escape(label) == stored && !plain(label) {
			return label
		}
	}
	return stored
}

// Variants are all stored names that Decode to the label, that of Encode first: the bytes of the label, its ISO-8859-1
// form if it has one, its escape. A look-up must try them all, since any may have been written, by OpenTSDB or under
// another setting; more than one may be there.
func (n Names) Variants(label string) []string {
	variants := []string{n.Encode(label)}
	add := func(stored string) {
		if stored != counterRow && n.Decode(stored) == label && !slices.Contains(variants, stored) {
			variants = append(variants, stored)
		}
	}
	add(NamesRaw.Encode(label))
	if stored, ok := toISO88591(label); ok {
		add(stored)
	}
	return variants
}

func reserved(name string) bool { return name == NoMetric || name == NoTagk || name == NoTagv }

// plain tells whether NamesOpenTSDB stores the label as it is.
func plain(label string) bool {
	for i := range len(label) {
		if c := label[i]; c != '_' && !kept(rune(c)) {
			return false
		}
	}
	return !strings.HasPrefix(label, EscapePrefix)
}

// kept tells whether a character stands for itself in an escape.
func kept(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		return true
	default:
		return r == '-' || r == '.' || r == '/'
	}
}

func escape(label string) string {
	b := append(make([]byte, 0, len(EscapePrefix)+2*len(label)), EscapePrefix...)
	for _, r := range label {
		switch {
		case kept(r):
			b = append(b, byte(r))
		case r == '_':
			b = append(b, "__"...)
		default:
			b = append(b, '_')
			b = strconv.AppendInt(b, int64(r), 16)
			b = append(b, '_')
		}
	}
	return string(b)
}

// unescape undoes escape. It accepts more than escape makes, such as leading zeros; the caller compares.
func unescape(stored string) (label string, ok bool) {
	b := make([]byte, 0, len(stored))
	for rest := stored[len(EscapePrefix):]; rest != ""; {
		before, after, found := strings.Cut(rest, "_")
		b = append(b, before...)
		if !found {
			break
		}
		code, after, found := strings.Cut(after, "_")
		switch {
		case !found:
			return "", false
		case code == "":
			b = append(b, '_')
		default:
			r, err := strconv.ParseUint(code, 16, 32)
			if err != nil || r > utf8.MaxRune {
				return "", false
			}
			b = utf8.AppendRune(b, rune(r))
		}
		rest = after
	}
	return string(b), true
}

func fromISO88591(s string) string {
	b := make([]byte, 0, 2*len(s))
	for i := range len(s) {
		b = utf8.AppendRune(b, rune(s[i]))
	}
	return string(b)
}

// toISO88591 is the ISO-8859-1 form of a label, ok if it has one.
func toISO88591(label string) (stored string, ok bool) {
	b := make([]byte, 0, len(label))
	for _, r := range label {
		if r > 0xff {
			return "", false
		}
		b = append(b, byte(r))
	}
	return string(b), true
}
