package promtest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/golang/snappy"
)

// Metric sums the samples of one metric that a process exposes.
func Metric(ctx context.Context, url, name string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	sum, found := 0.0, false
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		rest, ok := strings.CutPrefix(lines.Text(), name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			return 0, err
		}
		sum, found = sum+v, true
	}
	if !found {
		return math.NaN(), fmt.Errorf("%s exposes no %s", url, name)
	}
	return sum, nil
}

// ReadWarnings is how often a promtsd has warned that samples may be missing in an answer.
func ReadWarnings(ctx context.Context, url string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second) // it may be frozen
	defer cancel()
	return Metric(ctx, url, "promtsd_read_warnings_total")
}

// Get returns the body of what a URL answers, whatever its status is.
func Get(ctx context.Context, conns *http.Client, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	res, err := conns.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return string(text), err
}

// Sleep returns after a time or when ctx ends. It spreads what senders and readers do, or lets servers work for a
// while.
func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Seconds is a time as Prometheus's API takes it.
func Seconds(at time.Time) string { return fmt.Sprintf("%.3f", float64(at.UnixMilli())/1000) }

// Request is a request to a server: a GET, or a POST if it has a body.
type Request struct {
	Path string // with its query
	Body []byte // a protobuf message, which Do compresses by Snappy
}

// Do makes the request within a time and returns the status and the text of an answer that is not 200. One of 200 is
// read to its end.
func (r Request) Do(ctx context.Context, server string, patience time.Duration) (code int, text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server+r.Path, nil)
	if r.Body != nil {
		req, err = http.NewRequestWithContext(ctx, http.MethodPost, server+r.Path,
			strings.NewReader(string(snappy.Encode(nil, r.Body))))
	}
	if err != nil {
		return 0, "", err
	}
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/x-protobuf")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusOK {
		_, err = io.Copy(io.Discard, res.Body)
		return res.StatusCode, "", err
	}
	said, err := io.ReadAll(res.Body)
	return res.StatusCode, string(said), err
}
