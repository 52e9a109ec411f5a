package wire

import (
	"encoding/binary"
	"fmt"
)

// A session with ZooKeeper is frames in both directions: a length of 4 bytes, and as many bytes of one of these, with
// numbers big-endian, and texts and bytes behind a length of 4 bytes, which is -1 for none:
//
//	connect    | protocol 4 | zxid 8    | timeout 4 (ms) | session 8   | password | readOnly 1 |
//	connected  | protocol 4 | timeout 4 | session 8      | password    | readOnly 1 (from 3.4 on) |
//	get        | xid 4      | type 4: 4 | path           | watch 1     |
//	close      | xid 4      | type 4: -11 |
//	reply      | xid 4      | zxid 8    | error 4        | of a get without error: data | stat 68 |
//
// The server sends other frames with negative xids when it likes to.
const (
	zkGet   = 4
	zkClose = -11

	zkPassword = 16
	// MaxZKFrame is the longest frame that a server of ZooKeeper sends, unless it is told otherwise.
	MaxZKFrame = 1 << 20
)

// ZKNoNode is the error of a reply that says that there is no such node.
const ZKNoNode = -101

// AppendZKConnect appends the frame that begins a session, which the server ends after timeout milliseconds of silence.
func AppendZKConnect(dst []byte, timeout uint32) []byte {
	dst, at := beginZKFrame(dst)
	dst = append(dst, make([]byte, 4+8)...)
	dst = binary.BigEndian.AppendUint32(dst, timeout)
	dst = append(dst, make([]byte, 8)...)
	dst = binary.BigEndian.AppendUint32(dst, zkPassword)
	dst = append(dst, make([]byte, zkPassword+1)...)
	return endZKFrame(dst, at)
}

// ParseZKConnected checks the server's answer to that, given without its length.
func ParseZKConnected(b []byte) error {
	if len(b) < 4+4+8 || binary.BigEndian.Uint32(b) != 0 {
		return fmt.Errorf("parse ZooKeeper's answer to a new session: %w: %d bytes, of another protocol than 0",
			ErrMalformed, len(b))
	}
	return nil
}

// AppendZKGet appends the frame that asks for a node's data.
func AppendZKGet(dst []byte, xid int32, path string) []byte {
	dst, at := beginZKFrame(dst)
	dst = appendZKRequest(dst, xid, zkGet)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(path)))
	dst = append(append(dst, path...), 0)
	return endZKFrame(dst, at)
}

// AppendZKClose appends the frame that ends the session.
func AppendZKClose(dst []byte, xid int32) []byte {
	dst, at := beginZKFrame(dst)
	return endZKFrame(appendZKRequest(dst, xid, zkClose), at)
}

// ZKReply is an answer of ZooKeeper.
type ZKReply struct {
	XID   int32
	Error int32 // 0: none; else ZKNoNode or one of the others
	Body  []byte
}

// ParseZKReply parses a reply, given without its length. The body points into b.
func ParseZKReply(b []byte) (ZKReply, error) {
	if len(b) < 4+8+4 {
		return ZKReply{}, fmt.Errorf("parse ZooKeeper's reply: %w: %d bytes", ErrMalformed, len(b))
	}
	return ZKReply{
		XID: int32(binary.BigEndian.Uint32(b)), Error: int32(binary.BigEndian.Uint32(b[12:])), Body: b[16:],
	}, nil
}

// Data is that of the node that was asked for.
func (r *ZKReply) Data() ([]byte, error) {
	if len(r.Body) < 4 {
		return nil, fmt.Errorf("parse ZooKeeper's reply: %w: data cut off", ErrMalformed)
	}
	n, rest := int32(binary.BigEndian.Uint32(r.Body)), r.Body[4:]
	if n < 0 {
		return nil, nil
	}
	if int(n) > len(rest) {
		return nil, fmt.Errorf("parse ZooKeeper's reply: %w: %d bytes of data announced, %d are there", ErrMalformed, n,
			len(rest))
	}
	return rest[:n], nil
}

func appendZKRequest(dst []byte, xid, kind int32) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(xid))
	return binary.BigEndian.AppendUint32(dst, uint32(kind))
}

func beginZKFrame(dst []byte) ([]byte, int) { return append(dst, 0, 0, 0, 0), len(dst) }

func endZKFrame(dst []byte, at int) []byte {
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-FrameLength))
	return dst
}
