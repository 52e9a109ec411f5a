package wire

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// DefaultNamespace is the namespace of tables named without one.
const DefaultNamespace = "default"

// TableName names a table. Its text is "table" or, outside of the default namespace, "namespace:table".
type TableName struct {
	Namespace string
	Qualifier string
}

// ParseTableName splits the text of a table name.
func ParseTableName(text string) TableName {
	if namespace, qualifier, ok := strings.Cut(text, ":"); ok {
		return TableName{Namespace: namespace, Qualifier: qualifier}
	}
	return TableName{Namespace: DefaultNamespace, Qualifier: text}
}

// String is the text of the name.
func (t TableName) String() string {
	if t.Namespace == DefaultNamespace || t.Namespace == "" {
		return t.Qualifier
	}
	return t.Namespace + ":" + t.Qualifier
}

// AppendTo implements Message.
func (t TableName) AppendTo(dst []byte) []byte {
	namespace := t.Namespace
	if namespace == "" {
		namespace = DefaultNamespace
	}
	dst = AppendBytesField(dst, 1, namespace)
	return AppendBytesField(dst, 2, t.Qualifier)
}

// Parse fills t from an encoded TableName.
func (t *TableName) Parse(b []byte) error {
	*t = TableName{}
	r := NewReader("TableName", b)
	for r.Next() {
		switch r.Field() {
		case 1:
			t.Namespace = r.String()
		case 2:
			t.Qualifier = r.String()
		}
	}
	r.Require(t.Qualifier != "", "qualifier")
	return r.Err()
}

// ServerName names one life of a server: a restart changes the start code.
type ServerName struct {
	Host      string
	Port      uint16
	StartCode uint64
}

// Addr is host:port.
func (s ServerName) Addr() string { return net.JoinHostPort(s.Host, strconv.Itoa(int(s.Port))) }

// String is HBase's own notation, "host,port,startcode".
func (s ServerName) String() string { return fmt.Sprintf("%s,%d,%d", s.Host, s.Port, s.StartCode) }

// AppendTo implements Message.
func (s ServerName) AppendTo(dst []byte) []byte {
	dst = AppendBytesField(dst, 1, s.Host)
	dst = AppendUintField(dst, 2, uint64(s.Port))
	return AppendUintField(dst, 3, s.StartCode)
}

// Parse fills s from an encoded ServerName.
func (s *ServerName) Parse(b []byte) error {
	*s = ServerName{}
	r := NewReader("ServerName", b)
	for r.Next() {
		switch r.Field() {
		case 1:
			s.Host = r.String()
		case 2:
			port := r.Uint64()
			if port > 1<<16-1 {
				r.fail("port out of range")
			}
			s.Port = uint16(port)
		case 3:
			s.StartCode = r.Uint64()
		}
	}
	r.Require(s.Host != "", "host_name")
	return r.Err()
}

// RegionInfo says what a region is; it does not say where.
type RegionInfo struct {
	ID        uint64 // when the region was made, in milliseconds
	Table     TableName
	StartKey  []byte // inclusive; empty: from the table's start
	EndKey    []byte // exclusive; empty: to the table's end
	Offline   bool
	Split     bool   // it was split, and its daughters have taken over
	ReplicaID uint32 // 0: the region itself
}

// AppendTo implements Message.
func (i *RegionInfo) AppendTo(dst []byte) []byte {
	dst = AppendUintField(dst, 1, i.ID)
	dst = AppendMessageField(dst, 2, i.Table)
	dst = AppendBytesField(dst, 3, i.StartKey)
	dst = AppendBytesField(dst, 4, i.EndKey)
	dst = AppendBoolField(dst, 5, i.Offline)
	dst = AppendBoolField(dst, 6, i.Split)
	return AppendUintField(dst, 7, uint64(i.ReplicaID))
}

// Parse fills i from an encoded RegionInfo; the keys point into b.
func (i *RegionInfo) Parse(b []byte) error {
	*i = RegionInfo{}
	table := false
	r := NewReader("RegionInfo", b)
	for r.Next() {
		switch r.Field() {
		case 1:
			i.ID = r.Uint64()
		case 2:
			table = true
			r.Embed(i.Table.Parse(r.Bytes()))
		case 3:
			i.StartKey = r.Bytes()
		case 4:
			i.EndKey = r.Bytes()
		case 5:
			i.Offline = r.Bool()
		case 6:
			i.Split = r.Bool()
		case 7:
			i.ReplicaID = r.Uint32()
		}
	}
	r.Require(table, "table_name")
	return r.Err()
}

// Name is the full region name, which calls to region servers carry and which is the region's row in hbase:meta:
//
//	table,startKey,id.md5hex.       replicas: table,startKey,id_000n.md5hex.
//
// The md5 is of all that stands before the dot. It differs for hbase:meta, whose region is "hbase:meta,,1".
func (i *RegionInfo) Name() []byte {
	name := append([]byte(i.Table.String()), ',')
	name = append(name, i.StartKey...)
	name = append(name, ',')
	name = strconv.AppendUint(name, i.ID, 10)
	if i.ReplicaID != 0 {
		name = fmt.Appendf(name, "_%04X", i.ReplicaID)
	}
	if i.Table.String() == MetaTable {
		return name
	}
	sum := md5.Sum(name)
	name = append(name, '.')
	name = hex.AppendEncode(name, sum[:])
	return append(name, '.')
}

// EncodedName is the name masters and logs use: the md5hex of a region's name, or a fixed number for hbase:meta. It is
// empty when name is not the name of a region.
func EncodedName(name []byte) string {
	if string(name) == MetaRegionName {
		return metaEncodedName
	}
	n := len(name)
	if n < 34 || name[n-1] != '.' || name[n-34] != '.' {
		return ""
	}
	return string(name[n-33 : n-1])
}

// AppendRegionSpecifier appends the message that names a region to a region server, which takes full names only.
func AppendRegionSpecifier(dst, name []byte) []byte {
	dst = AppendUintField(dst, 1, 1)
	return AppendBytesField(dst, 2, name)
}

// AppendEncodedSpecifier appends the message that names a region to the master by its encoded name.
func AppendEncodedSpecifier(dst []byte, encoded string) []byte {
	dst = AppendUintField(dst, 1, 2)
	return AppendBytesField(dst, 2, encoded)
}

// ParseRegionSpecifier gives the name in a RegionSpecifier, whichever its kind.
func ParseRegionSpecifier(b []byte) (name []byte, err error) {
	r := NewReader("RegionSpecifier", b)
	for r.Next() {
		if r.Field() == 2 {
			name = r.Bytes()
		}
	}
	return name, r.Err()
}
