package wire

import "encoding/binary"

// Comparator holds the value of a comparison the server makes.
type Comparator interface {
	Message
	// class is the comparator's class in org.apache.hadoop.hbase.filter.
	class() string
}

func appendComparatorField(dst []byte, field int, c Comparator) []byte {
	dst, at := BeginMessage(dst, field)
	dst = AppendBytesField(dst, 1, filterPackage+c.class())
	return EndMessage(AppendMessageField(dst, 2, c), at)
}

// Binary compares with bytes, by their unsigned order.
type Binary []byte

func (Binary) class() string { return "BinaryComparator" }

// AppendTo implements Message.
func (c Binary) AppendTo(dst []byte) []byte { return appendComparable(dst, c) }

// BinaryPrefix compares the first len(BinaryPrefix) bytes.
type BinaryPrefix []byte

func (BinaryPrefix) class() string { return "BinaryPrefixComparator" }

// AppendTo implements Message.
func (c BinaryPrefix) AppendTo(dst []byte) []byte { return appendComparable(dst, c) }

func appendComparable(dst, value []byte) []byte {
	dst, at := BeginMessage(dst, 1)
	return EndMessage(AppendBytesField(dst, 1, value), at)
}

// BinaryComponent compares the bytes at an offset.
type BinaryComponent struct {
	Value  []byte
	Offset uint32
}

func (BinaryComponent) class() string { return "BinaryComponentComparator" }

// AppendTo implements Message.
func (c BinaryComponent) AppendTo(dst []byte) []byte {
	dst = AppendBytesField(dst, 1, c.Value)
	return AppendUintField(dst, 2, uint64(c.Offset))
}

// NullComparator equals only what is not there.
type NullComparator struct{}

func (NullComparator) class() string { return "NullComparator" }

// AppendTo implements Message.
func (NullComparator) AppendTo(dst []byte) []byte { return dst }

// Regex matches bytes against a regular expression in the syntax of java.util.regex, in which each char stands for the
// byte of the same number: both pattern and subject are taken as ISO-8859-1. It is only of use with Equal and NotEqual.
// It matches anywhere unless the pattern is anchored, and "." excludes '\n' unless the pattern says (?s).
//
// Each byte of the Regex is one char; there is no other encoding. The engine is Java's: HBase's other one was seen to
// match nothing where Java's matched.
type Regex []byte

func (Regex) class() string { return "RegexStringComparator" }

// AppendTo implements Message.
func (c Regex) AppendTo(dst []byte) []byte {
	// A protobuf string is UTF-8: the chars U+0080 to U+00FF take two bytes.
	size := len(c)
	for _, b := range c {
		size += int(b >> 7)
	}
	dst = appendTag(dst, 1, typeBytes)
	dst = binary.AppendUvarint(dst, uint64(size))
	for _, b := range c {
		if b < 0x80 {
			dst = append(dst, b)
			continue
		}
		dst = append(dst, 0xC0|b>>6, 0x80|b&0x3F)
	}
	dst = AppendUintField(dst, 2, 0)
	dst = AppendBytesField(dst, 3, "ISO-8859-1")
	return AppendBytesField(dst, 4, "JAVA")
}

// RawComparator is a comparator as a server meets it: its Java class and its encoding.
type RawComparator struct {
	Class string // without the package
	Body  []byte
}

func (c RawComparator) class() string { return c.Class }

// AppendTo implements Message.
func (c RawComparator) AppendTo(dst []byte) []byte { return append(dst, c.Body...) }

// Value is what a Binary or BinaryPrefix compares with, and nil for others.
func (c RawComparator) Value() []byte {
	var value []byte
	r := NewReader("Comparator", c.Body)
	for r.Next() {
		if r.Field() == 1 {
			v := NewReader("ByteArrayComparable", r.Bytes())
			for v.Next() {
				if v.Field() == 1 {
					value = v.Bytes()
				}
			}
		}
	}
	return value
}

func (c *RawComparator) parse(b []byte) error {
	r := NewReader("Comparator", b)
	for r.Next() {
		switch r.Field() {
		case 1:
			name := r.String()
			if len(name) >= len(filterPackage) && name[:len(filterPackage)] == filterPackage {
				name = name[len(filterPackage):]
			}
			c.Class = name
		case 2:
			c.Body = r.Bytes()
		}
	}
	return r.Err()
}
