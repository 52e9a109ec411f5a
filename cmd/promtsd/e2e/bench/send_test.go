package bench_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
)

// benchConnections is how many requests are under way at a time.
const benchConnections = 4

// sentBodies is what send did.
type sentBodies struct {
	bytes   int64 // of all bodies, each counted once
	refused int64 // answers of 503 and 429
}

// send posts the bodies of all sources as fast as they are answered. Like a shard of Prometheus's sender, a connection
// posts what comes next, except that the groups take turns, and none has two requests under way: so a series' samples
// arrive in order, and all connections are busy whatever the number of groups. What is answered with 503 or 429 is sent
// again after the time that the answer asks for. Any other answer than 2xx is an error.
func (l benchLoad) send(ctx context.Context, url string, sources []benchSource) (sentBodies, error) {
	transport := &http.Transport{MaxConnsPerHost: benchConnections, MaxIdleConnsPerHost: benchConnections}
	client := &http.Client{Transport: transport}
	defer client.CloseIdleConnections()

	turns := make(chan benchSource, len(sources)) // closed by who takes the last body of the last source
	for _, s := range sources {
		turns <- s
	}
	var volume, refused, left atomic.Int64
	left.Store(int64(len(sources)))
	g, ctx := errgroup.WithContext(ctx)
	for range benchConnections {
		g.Go(func() error {
			for {
				var source benchSource
				select {
				case <-ctx.Done():
					return ctx.Err()
				case s, more := <-turns:
					if !more {
						return nil
					}
					source = s
				}
				body, err := source.next()
				if err != nil {
					return err
				}
				if body == nil {
					if left.Add(-1) == 0 {
						close(turns)
					}
					continue
				}
				volume.Add(int64(len(body)))
				n, err := l.post(ctx, client, url, body)
				refused.Add(n)
				if err != nil {
					return err
				}
				turns <- source
			}
		})
	}
	err := g.Wait()
	return sentBodies{volume.Load(), refused.Load()}, err
}

// post sends one body until it is taken, and counts how often it was refused.
func (l benchLoad) post(ctx context.Context, client *http.Client, url string, body []byte) (refused int64, err error) {
	for ; ; refused++ {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/api/v1/write", bytes.NewReader(body))
		if err != nil {
			return refused, err
		}
		req.Header.Set("Content-Encoding", "snappy")
		req.Header.Set("Content-Type", "application/x-protobuf;proto="+l.message)
		version := map[string]string{remotetest.MessageV1: "0.1.0", remotetest.MessageV2: "2.0.0"}[l.message]
		req.Header.Set("X-Prometheus-Remote-Write-Version", version)
		res, err := client.Do(req)
		if err != nil {
			return refused, err
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil {
			return refused, err
		}
		switch {
		case res.StatusCode/100 == 2:
			written := res.Header.Get("X-Prometheus-Remote-Write-Samples-Written")
			if l.message == remotetest.MessageV2 && written != strconv.Itoa(requestSamples) {
				return refused, fmt.Errorf("%s, and %q samples are written, want %d", res.Status, written, requestSamples)
			}
			return refused, nil
		case res.StatusCode != http.StatusServiceUnavailable && res.StatusCode != http.StatusTooManyRequests:
			return refused, fmt.Errorf("%s: %s", res.Status, text)
		}
		seconds, err := strconv.Atoi(res.Header.Get("Retry-After"))
		if err != nil {
			return refused, fmt.Errorf("%s without a Retry-After in seconds: %w", res.Status, err)
		}
		select {
		case <-ctx.Done():
			return refused, ctx.Err()
		case <-time.After(time.Duration(seconds) * time.Second):
		}
	}
}
