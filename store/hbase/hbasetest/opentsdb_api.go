package hbasetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// maxAnswer bounds the answer of OpenTSDB, in bytes: past it the test asks for too much, or the server is broken.
const maxAnswer = 256 << 20

// Point is a data point as OpenTSDB's HTTP API takes it.
type Point struct {
	Metric string `json:"metric"`
	// Timestamp is in seconds, or in milliseconds if it is too large for that.
	Timestamp int64 `json:"timestamp"`
	// Value is a number as JSON writes it. OpenTSDB stores it as an integer if it has neither point nor exponent.
	Value json.Number       `json:"value"`
	Tags  map[string]string `json:"tags"`
}

// Query is what OpenTSDB's /api/query takes.
type Query struct {
	// Start and End are in seconds or milliseconds, both inclusive.
	Start   int64      `json:"start"`
	End     int64      `json:"end"`
	Queries []SubQuery `json:"queries"`
	// MsResolution asks for times in milliseconds; without it OpenTSDB gives seconds, and one value a second.
	MsResolution bool `json:"msResolution"`
	// ShowTSUIDs asks for Series.TSUIDs.
	ShowTSUIDs bool `json:"showTSUIDs"`
}

// SubQuery is one of several questions of a query.
type SubQuery struct {
	Metric string `json:"metric,omitempty"`
	// Aggregator is "none" for the series as they are.
	Aggregator string            `json:"aggregator"`
	Tags       map[string]string `json:"tags,omitempty"`
	TSUIDs     []string          `json:"tsuids,omitempty"`
}

// Series is one series of the answer to a query.
type Series struct {
	Metric string                 `json:"metric"`
	Tags   map[string]string      `json:"tags"`
	TSUIDs []string               `json:"tsuids"`
	DPS    map[string]json.Number `json:"dps"`
}

// URL is the base of the TSD's HTTP addresses, without a slash at its end.
func (d *TSD) URL() string { return "http://" + d.Addr() }

// Put stores points by /api/put, and returns when OpenTSDB has the acknowledgement of HBase for each. A point that is
// not stored fails the test.
func (d *TSD) Put(points ...Point) {
	d.t.Helper()
	if err := d.Post("/api/put?sync&details", points, nil); err != nil {
		d.t.Fatal(err)
	}
}

// Query returns the answer to a query by /api/query. NaN and infinities, for which JSON has no number, are refused.
func (d *TSD) Query(query Query) []Series {
	d.t.Helper()
	var series []Series
	if err := d.Post("/api/query", query, &series); err != nil {
		d.t.Fatal(err)
	}
	return series
}

// Post sends a question to the HTTP API as JSON, and reads the answer into it unless that is nil. A status other than
// 2xx is an error that holds the body of the answer.
func (d *TSD) Post(path string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return fmt.Errorf("post to OpenTSDB: %w", err)
	}
	req, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, d.URL()+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	body, err = fetchURL(req)
	if err != nil || answer == nil {
		return err
	}
	if err := json.Unmarshal(body, answer); err != nil {
		return fmt.Errorf("parse the answer of %s: %w", req.URL, err)
	}
	return nil
}

// Telnet sends lines of the telnet protocol, such as "put cpu 1700000000 1 host=a", on a connection of its own, and
// returns what OpenTSDB answers until it has read all of them: an accepted put has no answer, and is stored some time
// after.
func (d *TSD) Telnet(lines ...string) string {
	d.t.Helper()
	conn, err := new(net.Dialer).DialContext(d.t.Context(), "tcp", d.Addr())
	if err != nil {
		d.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, strings.Join(append(lines, "exit"), "\n")+"\n"); err != nil {
		d.t.Fatalf("send to OpenTSDB by telnet: %v", err)
	}
	answer, err := io.ReadAll(io.LimitReader(conn, maxAnswer))
	if err != nil {
		d.t.Fatalf("read OpenTSDB's answer by telnet: %v", err)
	}
	return string(answer)
}

// fetchURL sends a request and returns the body of the answer if its status is 2xx.
func fetchURL(req *http.Request) ([]byte, error) {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", req.URL, err)
	}
	if len(body) > maxAnswer {
		return nil, fmt.Errorf("read the answer of %s: longer than %d bytes; ask for less", req.URL, maxAnswer)
	}
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s %s: %s: %s", req.Method, req.URL, resp.Status, body)
	}
	return body, nil
}

// readyAnswering makes a server ready when a GET of url answers 2xx.
func readyAnswering(url string) func(*server) error {
	return func(*server) error {
		req, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		_, err = fetchURL(req)
		return err
	}
}
