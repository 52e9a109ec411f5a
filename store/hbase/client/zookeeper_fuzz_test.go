package client

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
)

// FuzzZooKeeper holds sessions with a server that says whatever it likes.
func FuzzZooKeeper(f *testing.F) {
	frame := func(b []byte) []byte { return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...) }
	connected := frame(make([]byte, 37))
	reply := append([]byte{0, 0, 0, 1, 15: 0}, 0, 0, 0, 4, 'd', 'a', 't', 'a')
	missing := []byte{0, 0, 0, 1, 12: 0xff, 0xff, 0xff, 0x9b}
	f.Add(append(connected[:len(connected):len(connected)], frame(reply)...))
	f.Add(append(connected[:len(connected):len(connected)], frame(missing)...))
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		near, far := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, far) }()
		go func() {
			_, _ = far.Write(said)
			_ = far.Close()
		}()
		data, err := converse(near, "/node")
		if err == nil && len(data) > len(said) {
			t.Errorf("got %d bytes of data in %d", len(data), len(said))
		}
		_ = near.Close()
	})
}
