package wire

import "strings"

// Attribute is one setting of a table or a family, in HBase's own words: COMPRESSION=ZSTD, TTL=86400, VERSIONS=1,
// BLOOMFILTER=ROW, DATA_BLOCK_ENCODING=FAST_DIFF, BLOCKSIZE=65536 for families; DURABILITY, MAX_FILESIZE, SPLIT_POLICY
// for tables.
type Attribute struct {
	Name, Value string
}

// FamilySchema describes a column family. Attributes and Configuration keep the order they came in.
type FamilySchema struct {
	Name          string
	Attributes    []Attribute
	Configuration []Attribute // settings that override those of the cluster
}

// Attribute is the value of an attribute, by its name in any case, and whether it is set.
func (f *FamilySchema) Attribute(name string) (value string, ok bool) {
	return find(f.Attributes, name)
}

// AppendTo implements Message.
func (f *FamilySchema) AppendTo(dst []byte) []byte {
	dst = AppendBytesField(dst, 1, f.Name)
	dst = appendAttributes(dst, 2, f.Attributes)
	return appendAttributes(dst, 3, f.Configuration)
}

// Parse fills f from an encoded ColumnFamilySchema.
func (f *FamilySchema) Parse(b []byte) error {
	*f = FamilySchema{}
	r := NewReader("ColumnFamilySchema", b)
	for r.Next() {
		switch r.Field() {
		case 1:
			f.Name = r.String()
		case 2:
			f.Attributes = append(f.Attributes, parseAttribute(&r))
		case 3:
			f.Configuration = append(f.Configuration, parseAttribute(&r))
		}
	}
	r.Require(f.Name != "", "name")
	return r.Err()
}

// TableSchema describes a table.
type TableSchema struct {
	Name          TableName
	Families      []FamilySchema
	Attributes    []Attribute
	Configuration []Attribute
}

// Attribute is the value of an attribute, by its name in any case, and whether it is set.
func (t *TableSchema) Attribute(name string) (value string, ok bool) { return find(t.Attributes, name) }

// AppendTo implements Message.
func (t *TableSchema) AppendTo(dst []byte) []byte {
	dst = AppendMessageField(dst, 1, t.Name)
	dst = appendAttributes(dst, 2, t.Attributes)
	for i := range t.Families {
		dst = AppendMessageField(dst, 3, &t.Families[i])
	}
	return appendAttributes(dst, 4, t.Configuration)
}

// Parse fills t from an encoded TableSchema.
func (t *TableSchema) Parse(b []byte) error {
	*t = TableSchema{}
	r := NewReader("TableSchema", b)
	for r.Next() {
		switch r.Field() {
		case 1:
			r.Embed(t.Name.Parse(r.Bytes()))
		case 2:
			t.Attributes = append(t.Attributes, parseAttribute(&r))
		case 3:
			var f FamilySchema
			r.Embed(f.Parse(r.Bytes()))
			t.Families = append(t.Families, f)
		case 4:
			t.Configuration = append(t.Configuration, parseAttribute(&r))
		}
	}
	return r.Err()
}

func find(attributes []Attribute, name string) (string, bool) {
	for _, a := range attributes {
		if strings.EqualFold(a.Name, name) {
			return a.Value, true
		}
	}
	return "", false
}

// appendAttributes appends pairs, BytesBytesPair or NameStringPair: they look the same.
func appendAttributes(dst []byte, field int, attributes []Attribute) []byte {
	for _, a := range attributes {
		var at int
		dst, at = BeginMessage(dst, field)
		dst = AppendBytesField(dst, 1, a.Name)
		dst = EndMessage(AppendBytesField(dst, 2, a.Value), at)
	}
	return dst
}

func parseAttribute(outer *Reader) (a Attribute) {
	r := NewReader("attribute", outer.Bytes())
	for r.Next() {
		switch r.Field() {
		case 1:
			a.Name = r.String()
		case 2:
			a.Value = r.String()
		}
	}
	outer.Embed(r.Err())
	return a
}
