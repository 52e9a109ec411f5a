package wire

import (
	"encoding/binary"
	"fmt"
)

// Nodes of ZooKeeper under the base node (/hbase unless configured otherwise).
const (
	NodeMeta   = "meta-region-server"
	NodeMaster = "master"
	NodeID     = "hbaseid"
)

// A node's data is a message behind two prefixes, of which the first may be missing:
//
//	+------+----------+-----------+--------+---------+
//	| 0xFF | idLength | writer id | "PBUF" | message |
//	| 1    | 4        | idLength  | 4      | rest    |
//	+------+----------+-----------+--------+---------+
const nodeMagic = 0xFF

// nodeMessage strips the prefixes.
func nodeMessage(node string, data []byte) ([]byte, error) {
	rest := data
	if len(rest) > 0 && rest[0] == nodeMagic {
		if len(rest) < 5 || uint64(binary.BigEndian.Uint32(rest[1:])) > uint64(len(rest)-5) {
			return nil, fmt.Errorf("parse node %s: %w: writer id cut off", node, ErrMalformed)
		}
		rest = rest[5+binary.BigEndian.Uint32(rest[1:]):]
	}
	if len(rest) < len(protobufMagic) || string(rest[:len(protobufMagic)]) != protobufMagic {
		return nil, fmt.Errorf("parse node %s: %w: no PBUF in %d bytes", node, ErrMalformed, len(data))
	}
	return rest[len(protobufMagic):], nil
}

// appendNode appends the prefixes as HBase 2.6 writes them, with a writer id of no meaning.
func appendNode(dst []byte) []byte {
	dst = append(dst, nodeMagic, 0, 0, 0, 0)
	return append(dst, protobufMagic...)
}

// RegionOpen is the state of a region that serves.
const RegionOpen = 3

// MetaRegionServer is the content of NodeMeta.
type MetaRegionServer struct {
	Server ServerName
	State  int // of hbase:meta's region; RegionOpen when it serves
}

// ParseMetaNode parses the data of NodeMeta.
func ParseMetaNode(data []byte) (MetaRegionServer, error) {
	m := MetaRegionServer{State: RegionOpen} // what a server that writes no state means
	message, err := nodeMessage(NodeMeta, data)
	if err != nil {
		return m, err
	}
	present := false
	r := NewReader("MetaRegionServer", message)
	for r.Next() {
		switch r.Field() {
		case 1:
			present = true
			r.Embed(m.Server.Parse(r.Bytes()))
		case 3:
			m.State = r.Int()
		}
	}
	r.Require(present, "server")
	return m, r.Err()
}

// AppendMetaNode appends the data of NodeMeta.
func AppendMetaNode(dst []byte, m MetaRegionServer) []byte {
	dst = AppendMessageField(appendNode(dst), 1, m.Server)
	return AppendUintField(dst, 3, uint64(m.State))
}

// ParseMasterNode parses the data of NodeMaster: the active master.
func ParseMasterNode(data []byte) (ServerName, error) {
	message, err := nodeMessage(NodeMaster, data)
	if err != nil {
		return ServerName{}, err
	}
	return parseOneServer("Master", message)
}

// AppendMasterNode appends the data of NodeMaster.
func AppendMasterNode(dst []byte, master ServerName) []byte {
	return AppendMessageField(appendNode(dst), 1, master)
}

// ParseIDNode parses the data of NodeID: the id of the cluster.
func ParseIDNode(data []byte) (string, error) {
	message, err := nodeMessage(NodeID, data)
	if err != nil {
		return "", err
	}
	return ParseGetClusterIDResponse(message)
}

// parseOneServer parses a message whose field 1 is a required server name.
func parseOneServer(name string, message []byte) (s ServerName, err error) {
	present := false
	r := NewReader(name, message)
	for r.Next() {
		if r.Field() == 1 {
			present = true
			r.Embed(s.Parse(r.Bytes()))
		}
	}
	r.Require(present, "server")
	return s, r.Err()
}
