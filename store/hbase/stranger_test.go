package hbase_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/hbase"
	"github.com/promtsd/promtsd/store/hbase/client"
)

// Whatever is at the address that was given instead of HBase or its ZooKeeper, the error says so, soon and in the end.
func TestStore_SaysWhatIsNoHBase(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	var wg sync.WaitGroup
	for _, test := range []struct {
		name   string
		config client.Config
		want   string
	}{
		{"web server", client.Config{Masters: []string{web.Listener.Addr().String()}},
			`not an HBase server: it says "HTTP/1.1 400`},
		{"plain client of TLS", client.Config{Masters: []string{secure.Listener.Addr().String()}}, "want TLS"},
		{"TLS client of plain", client.Config{
			Masters: []string{web.Listener.Addr().String()}, TLS: &tls.Config{},
		}, "the server does not speak TLS"},
		{"mute alert", client.Config{Masters: []string{says(t, "\x15\x03\x01\x00\x02\x02\x46")}}, "it speaks TLS"},
		{"nothing", client.Config{Masters: []string{says(t, "")}}, "it may be no HBase server"},
		{"web server for ZooKeeper", client.Config{ZooKeeper: []string{says(t, "HTTP/1.1 400 Bad Request\r\n")}},
			"not a ZooKeeper server"},
		{"HBase for ZooKeeper", client.Config{
			ZooKeeper: []string{says(t, "\x00\x00\x00\x19\x18\x08\xff\xff\xff\xff\x0f\x12\x10\x0a\x0eFatalException")},
		}, "not a ZooKeeper server"},
		{"silent ZooKeeper", client.Config{ZooKeeper: []string{silent(t)}}, "ZooKeeper"},
		{"silent master", client.Config{Masters: []string{silent(t)}}, "look up cluster"},
		{"nobody", client.Config{Masters: []string{"127.0.0.1:1"}}, "connection refused"},
	} {
		wg.Go(func() {
			var log buffer
			test.config.OperationTimeout = 4 * time.Second
			st, err := hbase.Open(hbase.Config{Client: test.config, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Error(err)
				return
			}
			defer st.Close()
			for _, err = range st.Scan(context.Background(), store.Scan{Table: "t"}) {
				break
			}
			if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrCorrupt) ||
				!strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: got error %v, want %q", test.name, err, test.want)
			}
			addr := append(test.config.Masters, test.config.ZooKeeper...)[0]
			if said := log.String(); !strings.Contains(said, "looking for HBase") || !strings.Contains(said, addr) ||
				!strings.Contains(said, "has not done yet") {
				t.Errorf("%s: the log is %s", test.name, said)
			}
		})
	}
	wg.Wait()
}

// buffer is a log.
type buffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// says runs a server that answers everybody the same and listens on, or ends the connection when that is nothing.
func says(t *testing.T, text string) string {
	return listen(t, func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1<<10))
		if _, err := conn.Write([]byte(text)); err == nil && text != "" {
			_, _ = io.Copy(io.Discard, conn)
		}
		_ = conn.Close()
	})
}

// silent runs a server that accepts and says nothing.
func silent(t *testing.T) string {
	return listen(t, func(conn net.Conn) { t.Cleanup(func() { _ = conn.Close() }) })
}

func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serve(conn)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}
