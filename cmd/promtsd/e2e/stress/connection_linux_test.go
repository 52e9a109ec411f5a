package stress_test

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
)

// connectionAttacks are those by connections: many, slow, or not what they should be.
func connectionAttacks() []stressAttack {
	const maxBody = 32 << 20
	stalled := func(path, contentType string, length, sent int) func() []byte {
		return func() []byte { return []byte(head(path, contentType, length) + strings.Repeat("\x00", sent)) }
	}
	trickling := func(c *stressClient, conn net.Conn) {
		for c.ctx.Err() == nil {
			if _, err := conn.Write([]byte("5\r\nxxxxx\r\n")); err != nil {
				return
			}
			promtest.Sleep(c.ctx, 100*time.Millisecond)
		}
	}
	unread := func(c *stressClient, conn net.Conn) {
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		promtest.Sleep(c.ctx, time.Minute)
	}
	chunked := func(path, contentType string) func() []byte {
		return said(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n",
			path, contentType))
	}
	get := func(path string, form url.Values) string {
		return "GET " + path + "?" + form.Encode() + " HTTP/1.1\r\nHost: x\r\n\r\n"
	}
	now := time.Now().Unix()
	large := get("/api/v1/query_range", url.Values{"query": {`m`}, "start": {fmt.Sprint(now - 6000)},
		"end": {fmt.Sprint(now)}, "step": {"3"}})
	everything := func() []byte {
		content, _ := (&prompb.ReadRequest{
			AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{prompb.ReadRequest_STREAMED_XOR_CHUNKS},
			Queries: []*prompb.Query{{EndTimestampMs: now * 1000, Matchers: []*prompb.LabelMatcher{
				{Type: prompb.LabelMatcher_RE, Name: "n", Value: ".+"}}}},
		}).Marshal()
		block := string(snappy.Encode(nil, content))
		return []byte(head("/api/v1/read", "application/x-protobuf", len(block)) + block)
	}
	return []stressAttack{
		{"bodies that stop at their end", 1, nil, holding(12, stalled(writeURL, contentV1, maxBody, maxBody-1), nil)},
		{"bodies that stop after a part", 1, nil, holding(100, stalled(writeURL, contentV1, maxBody, 1<<20+1), nil)},
		{"bodies that do not come", 1, nil, anyOf(holding(100, stalled("/api/v1/read", "application/x-protobuf", 1000, 0),
			nil))},
		{"bodies of OTLP and queries that stop", 1, nil, func(c *stressClient) {
			half := holding(20, stalled(otlpURL, "application/x-protobuf", maxBody, maxBody-1), nil)
			go half(c)
			holding(60, stalled("/api/v1/query", "application/x-www-form-urlencoded", 10_000, 5000), nil)(c)
		}},
		{"chunks that trickle", 1, nil, holding(150, chunked(writeURL, contentV1), trickling)},
		{"answers of queries that nobody reads", 1, nil, holding(40, said(strings.Repeat(large, 3)), unread)},
		{"answers of reads that nobody reads", 1, nil, holding(40, everything, unread)},
		{"other answers that nobody reads", 1, nil, holding(60, said(strings.Repeat(get("/federate",
			url.Values{"match[]": {"m"}})+
			get("/metrics", nil)+get("/api/v1/label/n/values", nil), 20)), unread)},
		{"connections that say nothing", 1, nil, holding(700, said(""), nil)},
		{"connections that begin a request", 1, nil, holding(700, said("GET / HTTP/1.1\r\nHost: x\r\nX-A: "), nil)},
		{"connections that begin a body", 1, nil, holding(700, stalled(writeURL, contentV1, 100_000, 1), nil)},
		{"connections that come and go", 20, nil, func(c *stressClient) {
			conn, err := attackers.DialContext(c.ctx, "tcp", c.promtsd.Addr())
			if err != nil {
				c.none(err)
				return
			}
			_, _ = io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
			_ = conn.(*net.TCPConn).SetLinger(c.random.IntN(2) - 1)
			_ = conn.Close()
		}},
		{"very long headers", 8, []string{"431"}, func(c *stressClient) {
			holding(1, said("GET / HTTP/1.1\r\nHost: x\r\nX-A: "+strings.Repeat("x", 1<<20)+"\r\n\r\n"), nil)(c)
		}},
		{"very long addresses", 8, []string{"431"}, holding(1, said("GET /api/v1/query?query="+strings.Repeat("x",
			1<<20)+" HTTP/1.1\r\nHost: x\r\n\r\n"), nil)},
		{"very many headers", 8, []string{"431"}, holding(1,
			said("GET / HTTP/1.1\r\nHost: x\r\n"+strings.Repeat("X-A: x\r\n", 100_000)+"\r\n"), nil)},
		{"requests one after the other at once", 8, []string{"200", "204"}, holding(4, said(strings.Repeat(
			"GET /api/v1/label/n/values?limit=100 HTTP/1.1\r\nHost: x\r\n\r\n", 300)),
			func(c *stressClient, _ net.Conn) { promtest.Sleep(c.ctx, 500*time.Millisecond) })},
		{"connections that are half closed", 8, nil, holding(20, said(large), func(_ *stressClient, conn net.Conn) {
			_ = conn.(*net.TCPConn).CloseWrite()
		})},
		{"what is no HTTP", 8, []string{"400", "505"}, holding(2,
			said("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 garbage\r\n\r\n"), nil)},
		{"another version of HTTP", 8, []string{"400", "505"}, holding(2, said("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), nil)},
		{"notifications that are waited for", 1, nil, holding(300,
			said("GET /api/v1/notifications/live HTTP/1.1\r\nHost: x\r\n\r\n"),
			func(c *stressClient, conn net.Conn) { promtest.Sleep(c.ctx, time.Minute) })},
	}
}
