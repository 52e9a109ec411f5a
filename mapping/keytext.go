package mapping

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"iter"
	"strings"
	"time"
)

// Keys are written for people by UIDs, which needs nothing but the bytes, and reads back:
//
//	metric 000001 tags 000001=000001 000002=00000d                                 a TSUID
//	metric 000001 tags 000001=000001 000002=00000d 2013-01-01T00:00:00Z salt 08    a data row key
//	bytes:0001                                                                     what has no such form
//
// or by names, with kind and UID in place of a name that is not known:
//
//	up{instance="a", tagk:2="tagv:13"} 2013-01-01T00:00:00Z salt 08

const unparsedKey = "bytes:"

// FormatTSUID writes a TSUID by its UIDs, for people and for ParseFormattedTSUID.
func (s Schema) FormatTSUID(tsuid []byte) string {
	if s.checkTSUID(tsuid) != nil {
		return unparsedKey + hex.EncodeToString(tsuid)
	}
	return s.formatUIDs(tsuid[:s.MetricWidth], tsuid[s.MetricWidth:])
}

func (s Schema) formatUIDs(metric, tags []byte) string {
	var b strings.Builder
	fmt.Fprintf(&b, "metric %x", metric)
	if len(tags) > 0 {
		b.WriteString(" tags")
	}
	for ; len(tags) > 0; tags = tags[s.PairWidth():] {
		fmt.Fprintf(&b, " %x=%x", tags[:s.TagkWidth], tags[s.TagkWidth:s.PairWidth()])
	}
	return b.String()
}

// FormatRowKey writes a data row key by its UIDs, for people and for ParseFormattedRowKey.
func (s Schema) FormatRowKey(row []byte) string {
	key, err := s.ParseRowKey(row)
	if err != nil {
		return unparsedKey + hex.EncodeToString(row)
	}
	return s.formatUIDs(key.Metric, key.Tags) + s.formatHour(key)
}

// formatHour is what a row key has besides its series.
func (s Schema) formatHour(key RowKey) string {
	text := " " + time.Unix(int64(key.Base), 0).UTC().Format(time.RFC3339)
	if s.SaltWidth > 0 {
		text += fmt.Sprintf(" salt %x", key.Salt)
	}
	return text
}

// FormatSeries writes a series for people, as in PromQL: metric{name="value", name="value"}.
func FormatSeries(metric string, labels iter.Seq2[string, string]) string {
	var b strings.Builder
	b.WriteString(metric)
	separator := "{"
	for name, value := range labels {
		fmt.Fprintf(&b, "%s%s=%q", separator, name, value)
		separator = ", "
	}
	if separator == "{" {
		b.WriteString(separator)
	}
	b.WriteByte('}')
	return b.String()
}

// FormatNamedTSUID writes the series of a TSUID by its names, the tags in their order there. name says what a UID is
// called; ok is false for one whose name is not known.
func (s Schema) FormatNamedTSUID(tsuid []byte, name func(Kind, UID) (text string, ok bool)) string {
	metric, tags, err := s.ParseTSUID(tsuid, nil)
	if err != nil {
		return s.FormatTSUID(tsuid)
	}
	text := func(kind Kind, uid UID) string {
		if text, ok := name(kind, uid); ok {
			return text
		}
		return fmt.Sprintf("%v:%d", kind, uid)
	}
	metricText := text(Metric, metric)
	if metricText == NoMetric {
		metricText = ""
	}
	return FormatSeries(metricText, func(yield func(string, string) bool) {
		for _, t := range tags {
			if key := text(Tagk, t.Key); key != NoTagk && !yield(key, text(Tagv, t.Value)) {
				return
			}
		}
	})
}

// FormatNamedRowKey writes a data row key by the names of its series, see FormatNamedTSUID.
func (s Schema) FormatNamedRowKey(row []byte, name func(Kind, UID) (text string, ok bool)) string {
	key, err := s.ParseRowKey(row)
	if err != nil {
		return s.FormatRowKey(row)
	}
	tsuid := append(append([]byte(nil), key.Metric...), key.Tags...)
	return s.FormatNamedTSUID(tsuid, name) + s.formatHour(key)
}

// ParseFormattedTSUID reads what FormatTSUID wrote. The error wraps ErrInvalid and names the part that is wrong.
func (s Schema) ParseFormattedTSUID(text string) ([]byte, error) {
	if rest, ok := strings.CutPrefix(text, unparsedKey); ok {
		return parseHexKey("TSUID", text, rest)
	}
	p := keyTextParser{what: "TSUID", text: text, parts: strings.Split(text, " ")}
	metric, tags := p.uids(s)
	return p.end(metric, tags)
}

// ParseFormattedRowKey reads what FormatRowKey wrote. The error wraps ErrInvalid and names the part that is wrong.
func (s Schema) ParseFormattedRowKey(text string) ([]byte, error) {
	if rest, ok := strings.CutPrefix(text, unparsedKey); ok {
		return parseHexKey("row key", text, rest)
	}
	p := keyTextParser{what: "row key", text: text, parts: strings.Split(text, " ")}
	metric, tags := p.uids(s)
	base := p.time(p.next())
	var salt []byte
	if s.SaltWidth > 0 {
		p.word("salt")
		salt = p.hex(nil, "salt", p.next(), s.SaltWidth)
	}
	return p.end(salt, metric, base, tags)
}

func parseHexKey(what, text, digits string) ([]byte, error) {
	key, err := hex.DecodeString(digits)
	if err != nil {
		return nil, fmt.Errorf("%w: %s %q: %v", ErrInvalid, what, text, err)
	}
	return key, nil
}

// keyTextParser reads a formatted key part by part and keeps the first error.
type keyTextParser struct {
	what  string
	text  string
	parts []string // that are left
	err   error
}

func (p *keyTextParser) next() string {
	if len(p.parts) == 0 {
		return ""
	}
	part := p.parts[0]
	p.parts = p.parts[1:]
	return part
}

func (p *keyTextParser) word(want string) {
	if part := p.next(); part != want {
		p.fail("%q is not the word %s", part, want)
	}
}

// uids reads the UIDs of a series.
func (p *keyTextParser) uids(s Schema) (metric, tags []byte) {
	p.word("metric")
	metric = p.hex(nil, "metric UID", p.next(), s.MetricWidth)
	if len(p.parts) == 0 || p.parts[0] != "tags" {
		return metric, nil
	}
	p.next()
	for len(p.parts) > 0 && strings.Contains(p.parts[0], "=") {
		key, value, _ := strings.Cut(p.next(), "=")
		tags = p.hex(tags, "tagk UID", key, s.TagkWidth)
		tags = p.hex(tags, "tagv UID", value, s.TagvWidth)
	}
	if tags == nil {
		p.fail("there are no tags")
	}
	return metric, tags
}

func (p *keyTextParser) hex(dst []byte, what, part string, width int) []byte {
	b, err := hex.DecodeString(part)
	if err != nil || len(b) != width {
		p.fail("%s %q is not %d bytes in hex", what, part, width)
	}
	return append(dst, b...)
}

func (p *keyTextParser) time(part string) []byte {
	t, err := time.Parse(time.RFC3339, part)
	if err != nil || t.Unix() < 0 || t.Unix() > 1<<32-1 {
		p.fail("base time %q is not a time from 1970 to 2106 such as 2013-01-01T00:00:00Z", part)
	}
	return binary.BigEndian.AppendUint32(nil, uint32(t.Unix()))
}

func (p *keyTextParser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("%w: %s %q: %s", ErrInvalid, p.what, p.text, fmt.Sprintf(format, args...))
	}
}

// end returns the key, made of some parts, if there was no error and the text is at its end.
func (p *keyTextParser) end(parts ...[]byte) ([]byte, error) {
	if len(p.parts) > 0 {
		p.fail("%q is more than that", strings.Join(p.parts, " "))
	}
	if p.err != nil {
		return nil, p.err
	}
	var key []byte
	for _, part := range parts {
		key = append(key, part...)
	}
	return key, nil
}
