package adapter_test

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"

	"github.com/promtsd/promtsd/adapter"
)

func TestWrite_AdmissionByHeaders(t *testing.T) {
	v1, v2 := block(t, oneV1()), block(t, oneV2())
	type headers = []string
	for _, c := range []struct {
		name    string
		method  string
		headers headers
		body    []byte
		want    int
		version string // of the metric
	}{
		{"1.0", "POST", headers{"Content-Type", typeV1, "Content-Encoding", "snappy"}, v1, 204, "1.0"},
		{"1.0 named", "POST", headers{"Content-Type", typeV1 + ";proto=prometheus.WriteRequest"}, v1, 204, "1.0"},
		{"no encoding", "POST", headers{"Content-Type", typeV1}, v1, 204, "1.0"},
		{"2.0", "POST", headers{"Content-Type", typeV2, "Content-Encoding", "snappy"}, v2, 204, "2.0"},
		{"2.0 after a space", "POST",
			headers{"Content-Type", "application/x-protobuf; proto=io.prometheus.write.v2.Request"}, v2, 204, "2.0"},
		{"2.0 quoted, upper case", "POST",
			headers{"Content-Type", `Application/X-Protobuf ; Proto="io.prometheus.write.v2.Request"`}, v2, 204, "2.0"},
		{"encoding in upper case", "POST", headers{"Content-Type", typeV1, "Content-Encoding", "Snappy"}, v1, 204, "1.0"},
		{"the version header decides nothing", "POST",
			headers{"Content-Type", typeV2, "X-Prometheus-Remote-Write-Version", "0.1.0"}, v2, 204, "2.0"},

		{"GET", "GET", nil, nil, 405, "unknown"},
		{"PUT", "PUT", headers{"Content-Type", typeV1}, v1, 405, "unknown"},
		{"no headers at all", "POST", nil, v1, 415, "unknown"},
		{"another media type", "POST", headers{"Content-Type", "application/json"}, v1, 415, "unknown"},
		{"another message", "POST", headers{"Content-Type", typeV1 + ";proto=io.prometheus.write.v3.Request"}, v1, 415,
			"unknown"},
		{"a bad parameter", "POST", headers{"Content-Type", typeV1 + ";proto"}, v1, 415, "unknown"},
		{"gzip", "POST", headers{"Content-Type", typeV1, "Content-Encoding", "gzip"}, v1, 415, "1.0"},
		{"zstd", "POST", headers{"Content-Type", typeV2, "Content-Encoding", "zstd"}, v2, 415, "2.0"},
		{"two encodings", "POST", headers{"Content-Type", typeV1, "Content-Encoding", "snappy", "Content-Encoding", "gzip"},
			v1, 415, "1.0"},

		{"not snappy", "POST", headers{"Content-Type", typeV1}, []byte("hello"), 400, "1.0"},
		{"not protobuf", "POST", headers{"Content-Type", typeV1}, snappy.Encode(nil, []byte("hello")), 400, "1.0"},
		{"1.0 announced as 2.0", "POST", headers{"Content-Type", typeV2}, v1, 400, "2.0"},
		{"2.0 announced as 1.0", "POST", headers{"Content-Type", typeV1}, v2, 400, "1.0"},
		{"empty body", "POST", headers{"Content-Type", typeV1}, nil, 400, "1.0"},
		{"empty message", "POST", headers{"Content-Type", typeV1}, snappy.Encode(nil, nil), 204, "1.0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t, nil)
			code, header, text := s.send(t, c.method, "/api/v1/write", c.body, c.headers...)
			if code != c.want {
				t.Errorf("got status %d (%s), want %d", code, text, c.want)
			}
			if (text == "") != (c.want == 204) {
				t.Errorf("got text %q with status %d", text, code)
			}
			if c.want == 405 && header.Get("Allow") != "POST" {
				t.Errorf("got Allow %q, want POST", header.Get("Allow"))
			}
			for name := range header {
				if strings.Contains(name, "-Written") && c.version != "2.0" {
					t.Errorf("got header %s, which only senders of 2.0 expect", name)
				}
			}
			if c.want == 204 && c.name != "empty message" {
				if want := []string{"__name__=up job=x 1000:1.5"}; !slices.Equal(s.appender.got, want) {
					t.Errorf("appended %q, want %q", s.appender.got, want)
				}
			} else if len(s.appender.got) > 0 {
				t.Errorf("appended %q, want nothing", s.appender.got)
			}
			s.wantMetrics(t, "promtsd_write_requests_total", fmt.Sprintf(`{code="%d",version="%s"} 1`, c.want, c.version))
		})
	}
}

func TestWrite_SizeLimits(t *testing.T) {
	// 4 kB, deflated 200 B
	big := &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{up(make([]prompb.Sample, 2000)...)}}
	noise := make([]byte, 5000)
	for i := range noise {
		noise[i] = byte(i * i >> 3)
	}
	s := newServer(t, func(c *adapter.Config) { c.Write.MaxBodyBytes = 2000 })
	for _, c := range []struct {
		name string
		body io.Reader
		want int
		text string
	}{
		{"inflated", bytes.NewReader(block(t, big)), 400, "--write.max-body-bytes allows 2000"},
		{"as sent, size announced", bytes.NewReader(noise), 413, "2000 bytes that --write.max-body-bytes allows"},
		{"as sent, size not announced", iotest.OneByteReader(bytes.NewReader(noise)), 413, "--write.max-body-bytes"},
		{"a claim without content", bytes.NewReader([]byte{0xd0, 0x0f, 0}), 400, "claims 2000 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			response, err := s.Client().Post(s.URL+"/api/v1/write", typeV1, c.body)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			text, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != c.want || !strings.Contains(string(text), c.text) {
				t.Errorf("got %d %q, want %d with %q", response.StatusCode, text, c.want, c.text)
			}
		})
	}
	if got := s.metric(t, "promtsd_write_in_flight_bytes"); got != 0 {
		t.Errorf("%v bytes are still counted as in flight", got)
	}
}

func TestWrite_ListsOfARequestAreBounded(t *testing.T) {
	s := newServer(t, func(c *adapter.Config) { c.Write.MaxBodyBytes = 4000 })
	body := snappy.Encode(nil, bytes.Repeat([]byte{0x0a, 2, 0x12, 0}, 900)) // 900 series of one empty sample
	code, _, text := s.post(t, "/api/v1/write", body, "Content-Type", typeV1)
	if code != 400 || !strings.Contains(text, "four times --write.max-body-bytes") {
		t.Errorf("got %d %q, want 400 that names the limit", code, text)
	}
}
