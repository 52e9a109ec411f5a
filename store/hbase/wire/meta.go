package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"strconv"
)

// The table of regions, and its only region.
const (
	MetaTable       = "hbase:meta"
	MetaRegionName  = "hbase:meta,,1"
	metaEncodedName = "1588230740"
)

// Families and qualifiers of hbase:meta. A region's row is its name; a table's row is its name.
const (
	MetaFamily          = "info"
	MetaRegionInfo      = "regioninfo"
	MetaServer          = "server"          // "host:port"
	MetaServerStartCode = "serverstartcode" // 8 bytes
	MetaSeqNum          = "seqnumDuringOpen"
	MetaState           = "state" // "OPEN", "OPENING", ...
	MetaTableFamily     = "table"
	MetaTableState      = "state"
)

// MetaTableRange gives the rows of hbase:meta that are the regions of a table: from start, before stop. The order there
// is not that of the bytes: it is by table, then start key, then id, so both bounds need all their commas.
func MetaTableRange(table TableName) (start, stop []byte) {
	text := table.String()
	return []byte(text + ",,"), []byte(text + " ,,")
}

// MetaLookup gives the bounds of a reversed scan of hbase:meta whose first row is the region of table that holds row:
// from start down to stop, both inclusive.
func MetaLookup(table TableName, row []byte) (start, stop []byte) {
	text := table.String()
	row = cutForMeta(text, row)
	start = make([]byte, 0, len(text)+len(row)+3)
	start = append(start, text...)
	start = append(start, ',')
	start = append(start, row...)
	start = append(start, ",:"...) // ':' is above every digit of an id
	return start, []byte(text + ",,")
}

// cutForMeta cuts a row to the length at which a bound made of it is as long as a row of hbase:meta may be. A region
// cannot start with so many bytes, as its own row there has an id behind them: so none starts between the row and what
// is left of it.
func cutForMeta(table string, row []byte) []byte {
	return row[:min(len(row), MaxRow-len(table)-len(",,:"))]
}

// MetaBefore gives the start of a reversed scan of hbase:meta, inclusive, whose first row is the region of table that
// starts last among those that start before row, an empty row standing for the table's end. It stops as that of
// MetaLookup.
func MetaBefore(table TableName, row []byte) (start []byte) {
	if len(row) == 0 {
		_, start = MetaTableRange(table)
		return start
	}
	text := table.String()
	start = append([]byte(text), ',')
	return append(append(start, cutForMeta(text, row)...), ',')
}

// protobufMagic stands before the messages HBase stores in cells and in ZooKeeper.
const protobufMagic = "PBUF"

// ParseStoredRegionInfo parses the value of info:regioninfo.
func ParseStoredRegionInfo(value []byte) (RegionInfo, error) {
	var info RegionInfo
	message, ok := bytes.CutPrefix(value, []byte(protobufMagic))
	if !ok {
		return info, fmt.Errorf("parse stored region info: %w: no PBUF in front", ErrMalformed)
	}
	return info, info.Parse(message)
}

// AppendStoredRegionInfo appends the value of info:regioninfo.
func AppendStoredRegionInfo(dst []byte, info *RegionInfo) []byte {
	return info.AppendTo(append(dst, protobufMagic...))
}

// TableState is whether a table serves.
type TableState uint8

// States of a table.
const (
	TableEnabled TableState = iota
	TableDisabled
	TableDisabling
	TableEnabling
)

// String is the state's name.
func (s TableState) String() string {
	switch s {
	case TableEnabled:
		return "enabled"
	case TableDisabled:
		return "disabled"
	case TableDisabling:
		return "disabling"
	case TableEnabling:
		return "enabling"
	default:
		return "state " + strconv.Itoa(int(s))
	}
}

// AppendTo implements Message; it is also the value of table:state in hbase:meta, which has no PBUF in front.
func (s TableState) AppendTo(dst []byte) []byte { return AppendUintField(dst, 1, uint64(s)) }

// Parse fills s from an encoded TableState, a value of table:state.
func (s *TableState) Parse(b []byte) error {
	present := false
	r := NewReader("TableState", b)
	for r.Next() {
		if r.Field() == 1 {
			n := r.Uint64()
			if n > uint64(TableEnabling) {
				r.fail("unknown state")
			}
			*s, present = TableState(n), true
		}
	}
	r.Require(present, "state")
	return r.Err()
}

// ParseMetaServer makes a ServerName of the values of info:server and info:serverstartcode.
func ParseMetaServer(server, startCode []byte) (ServerName, error) {
	host, port, err := net.SplitHostPort(string(server))
	if err != nil {
		return ServerName{}, fmt.Errorf("parse info:server: %w: %w", ErrMalformed, err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || len(startCode) != 8 {
		return ServerName{}, fmt.Errorf("parse info:server %q: %w: bad port, or start code of %d bytes",
			server, ErrMalformed, len(startCode))
	}
	return ServerName{Host: host, Port: uint16(n), StartCode: binary.BigEndian.Uint64(startCode)}, nil
}
