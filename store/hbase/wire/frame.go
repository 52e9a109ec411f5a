package wire

import (
	"encoding/binary"
	"fmt"
)

// A connection starts with the client's preamble and, once the server has authenticated it, a connection header:
//
//	+----------+---------+------+   +--------+------------------+
//	| "HBas"   | version | auth |   | length | ConnectionHeader |
//	| 4        | 1: 0    | 1    |   | 4      | length           |
//	+----------+---------+------+   +--------+------------------+
//
// Frames follow in both directions; the total does not count itself, and is big-endian like the length above:
//
//	+-------+--------+----------------+--------+---------+------------+
//	| total | varint | RequestHeader  | varint | param   | cell block |   client to server
//	| 4     | n      | n              | m      | m       | the rest   |
//	+-------+--------+----------------+--------+---------+------------+
//	| total | varint | ResponseHeader | varint | result  | cell block |   server to client
//	+-------+--------+----------------+--------+---------+------------+
//
// A response with an exception ends behind its header.
const (
	// FrameLength is the size of the total in front of a frame.
	FrameLength = 4
	// MaxCallID is the largest call id; Java reads it as a signed number.
	MaxCallID = 1<<31 - 1
	// NoCall is the call id of a response that concerns the connection, which the server closes after it.
	NoCall = 1<<32 - 1
)

// AuthMethod is the byte of the preamble that names how the client will authenticate.
type AuthMethod byte

// Methods every server knows. Others come with the server's SASL providers.
const (
	AuthSimple   AuthMethod = 80 // none: the server believes the user name
	AuthKerberos AuthMethod = 81 // SASL GSSAPI
	AuthDigest   AuthMethod = 82 // SASL DIGEST-MD5 with a delegation token
)

// PreambleSize is the number of bytes of a preamble.
const PreambleSize = 6

// AppendPreamble appends what a client sends first.
func AppendPreamble(dst []byte, auth AuthMethod) []byte {
	return append(dst, 'H', 'B', 'a', 's', 0, byte(auth))
}

// ParsePreamble is what a server does with it; false means that this is no HBase client.
func ParsePreamble(b []byte) (AuthMethod, bool) {
	if len(b) != PreambleSize || string(b[:5]) != "HBas\x00" {
		return 0, false
	}
	return AuthMethod(b[5]), true
}

// Services of a server. A connection is bound to one.
const (
	ClientService     = "ClientService"     // region servers: get, mutate, multi, scan
	AdminService      = "AdminService"      // region servers: flush, compact
	MasterService     = "MasterService"     // the active master: tables, procedures, the cluster
	ClientMetaService = "ClientMetaService" // any server since 2.5: the registry
)

// KeyValueCodec is the class name of the cell block codec of this package.
const KeyValueCodec = "org.apache.hadoop.hbase.codec.KeyValueCodec"

// ConnectionHeader binds a connection to a user and a service.
type ConnectionHeader struct {
	User       string // effective user
	Service    string
	Codec      string // class of the cell block codec; empty: the server answers without cell blocks
	Compressor string // class of the Hadoop codec of the cell blocks; empty: none
	// Version is the client's version as the server is to see it, "2.6.4" say; it decides which behaviour of past
	// versions the server imitates, and it imitates the oldest for a client without.
	Version string
	Major   uint32
	Minor   uint32
}

// AppendTo implements Message.
func (h *ConnectionHeader) AppendTo(dst []byte) []byte {
	dst, at := BeginMessage(dst, 1)
	dst = EndMessage(AppendBytesField(dst, 1, h.User), at)
	dst = AppendBytesField(dst, 2, h.Service)
	if h.Codec != "" {
		dst = AppendBytesField(dst, 3, h.Codec)
	}
	if h.Compressor != "" {
		dst = AppendBytesField(dst, 4, h.Compressor)
	}
	if h.Version == "" {
		return dst
	}
	dst, at = BeginMessage(dst, 5)
	dst = AppendBytesField(dst, 1, h.Version)
	for field := 2; field <= 6; field++ { // url, revision, user, date, checksum: required, and of no use to anybody
		dst = AppendBytesField(dst, field, "")
	}
	dst = AppendUintField(dst, 7, uint64(h.Major))
	dst = AppendUintField(dst, 8, uint64(h.Minor))
	return EndMessage(dst, at)
}

// Parse fills h from an encoded ConnectionHeader.
func (h *ConnectionHeader) Parse(b []byte) error {
	*h = ConnectionHeader{}
	r := NewReader("ConnectionHeader", b)
	for r.Next() {
		switch r.Field() {
		case 1:
			u := NewReader("UserInformation", r.Bytes())
			for u.Next() {
				if u.Field() == 1 {
					h.User = u.String()
				}
			}
			r.Embed(u.Err())
		case 2:
			h.Service = r.String()
		case 3:
			h.Codec = r.String()
		case 4:
			h.Compressor = r.String()
		case 5:
			v := NewReader("VersionInfo", r.Bytes())
			for v.Next() {
				switch v.Field() {
				case 1:
					h.Version = v.String()
				case 7:
					h.Major = v.Uint32()
				case 8:
					h.Minor = v.Uint32()
				}
			}
			r.Embed(v.Err())
		}
	}
	return r.Err()
}

// RequestHeader stands in front of every request. The server refuses requests without a param message, so there is
// always one, if an empty one.
type RequestHeader struct {
	CallID    uint32
	Method    string
	CellBlock int    // bytes of the cell block as it travels, that is compressed; 0: there is none
	Priority  uint32 // 0: the server chooses
	Timeout   uint32 // milliseconds after which nobody waits for the answer; 0: none
}

// AppendTo implements Message.
func (h *RequestHeader) AppendTo(dst []byte) []byte {
	dst = AppendUintField(dst, 1, uint64(h.CallID))
	dst = AppendBytesField(dst, 3, h.Method)
	dst = AppendBoolField(dst, 4, true)
	dst = appendCellBlockMeta(dst, 5, h.CellBlock)
	if h.Priority != 0 {
		dst = AppendUintField(dst, 6, uint64(h.Priority))
	}
	if h.Timeout != 0 {
		dst = AppendUintField(dst, 7, uint64(h.Timeout))
	}
	return dst
}

// Parse fills h from an encoded RequestHeader.
func (h *RequestHeader) Parse(b []byte) error {
	*h = RequestHeader{}
	r := NewReader("RequestHeader", b)
	for r.Next() {
		switch r.Field() {
		case 1:
			h.CallID = r.Uint32()
		case 3:
			h.Method = r.String()
		case 5:
			h.CellBlock = parseCellBlockMeta(&r)
		case 6:
			h.Priority = r.Uint32()
		case 7:
			h.Timeout = r.Uint32()
		}
	}
	return r.Err()
}

// ResponseHeader stands in front of every response.
type ResponseHeader struct {
	CallID    uint32
	Exception *Exception // nil: the call succeeded, and its result follows
	CellBlock int        // bytes of the cell block as it travels
}

// AppendTo implements Message.
func (h *ResponseHeader) AppendTo(dst []byte) []byte {
	dst = AppendUintField(dst, 1, uint64(h.CallID))
	if h.Exception != nil {
		dst = AppendMessageField(dst, 2, h.Exception)
	}
	return appendCellBlockMeta(dst, 3, h.CellBlock)
}

// Parse fills h from an encoded ResponseHeader. It allocates only for an exception.
func (h *ResponseHeader) Parse(b []byte) error {
	*h = ResponseHeader{}
	r := NewReader("ResponseHeader", b)
	for r.Next() {
		switch r.Field() {
		case 1:
			h.CallID = r.Uint32()
		case 2:
			h.Exception = new(Exception)
			r.Embed(h.Exception.Parse(r.Bytes()))
		case 3:
			h.CellBlock = parseCellBlockMeta(&r)
		}
	}
	return r.Err()
}

func appendCellBlockMeta(dst []byte, field, length int) []byte {
	if length == 0 {
		return dst
	}
	dst, at := BeginMessage(dst, field)
	return EndMessage(AppendUintField(dst, 1, uint64(length)), at)
}

func parseCellBlockMeta(outer *Reader) (length int) {
	r := NewReader("CellBlockMeta", outer.Bytes())
	for r.Next() {
		if r.Field() == 1 {
			length = r.Int()
		}
	}
	outer.Embed(r.Err())
	return length
}

// AppendRequestPrefix appends a request up to its param message: the total, the header, and the length of the param,
// of which param bytes must follow, and then h.CellBlock bytes of cells. The caller has checked that the sum is below
// 2^31.
func AppendRequestPrefix(dst []byte, h *RequestHeader, param int) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = AppendDelimited(dst, h)
	dst = binary.AppendUvarint(dst, uint64(param))
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-FrameLength+param+h.CellBlock))
	return dst
}

// ParseRequest takes a request apart, as a server does; frame is what follows the total.
func ParseRequest(frame []byte) (h RequestHeader, param, cells []byte, err error) {
	head, rest, err := TakeDelimited(frame)
	if err != nil {
		return h, nil, nil, err
	}
	if err := h.Parse(head); err != nil {
		return h, nil, nil, err
	}
	param, cells, err = takeBody("request", rest, h.CellBlock)
	return h, param, cells, err
}

// AppendResponse appends a whole response, total included, as a server does. With an exception in h, result and cells
// are left out.
func AppendResponse(dst []byte, h ResponseHeader, result, cells []byte) []byte {
	start := len(dst)
	h.CellBlock = len(cells)
	if h.Exception != nil {
		h.CellBlock = 0
	}
	dst = append(dst, 0, 0, 0, 0)
	dst = AppendDelimited(dst, &h)
	if h.Exception == nil {
		dst = binary.AppendUvarint(dst, uint64(len(result)))
		dst = append(dst, result...)
		dst = append(dst, cells...)
	}
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-FrameLength))
	return dst
}

// ParseResponse takes a response apart; frame is what follows the total. With an exception in the header, result and
// cells are nil.
func ParseResponse(frame []byte) (h ResponseHeader, result, cells []byte, err error) {
	head, rest, err := TakeDelimited(frame)
	if err != nil {
		return h, nil, nil, err
	}
	if err := h.Parse(head); err != nil {
		return h, nil, nil, err
	}
	if h.Exception != nil {
		return h, nil, nil, nil
	}
	result, cells, err = takeBody("response", rest, h.CellBlock)
	return h, result, cells, err
}

// takeBody splits message and cell block, which must fill the frame.
func takeBody(what string, b []byte, cellBlock int) (message, cells []byte, err error) {
	message, cells, err = TakeDelimited(b)
	if err != nil {
		return nil, nil, fmt.Errorf("parse %s: %w", what, err)
	}
	if len(cells) != cellBlock {
		return nil, nil, fmt.Errorf("parse %s: %w: cell block of %d bytes announced, %d there",
			what, ErrMalformed, cellBlock, len(cells))
	}
	if cellBlock == 0 {
		cells = nil
	}
	return message, cells, nil
}

// AppendConnectionHeader appends h as it travels, with its length.
func AppendConnectionHeader(dst []byte, h *ConnectionHeader) []byte {
	start := len(dst)
	dst = h.AppendTo(append(dst, 0, 0, 0, 0))
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-FrameLength))
	return dst
}
