package bench_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	configutil "github.com/prometheus/common/config"
	commonmodel "github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
)

// readRepeats is how often a benchmark reads the same; what is told is of the fastest.
const readRepeats = 5

// BenchmarkReadBack sends an hour of 10,000 series to promtsd and to Prometheus, and reads it back from both by turns:
// by Prometheus's own remote-read client, in both forms, all series and those of one metric; at first from what the
// receivers hold in memory, and again after a restart, when promtsd has it in packed cells.
//
//	go test ./cmd/promtsd -run '^$' -bench ReadBack -benchtime 1x -timeout 1h
func BenchmarkReadBack(b *testing.B) {
	load := newBenchLoad(b, remotetest.MessageV2, 10_000, 240)
	var peers []*promtest.Process
	for _, r := range receivers() {
		p := r.start(b)
		if _, err := load.send(b.Context(), p.URL(), load.making()); err != nil {
			b.Fatal(err)
		}
		peers = append(peers, p)
	}
	for _, state := range []string{"memory", "settled"} {
		for _, p := range peers {
			if state == "settled" {
				p.StopMeasured(benchPatience)
				p.Restart()
			}
			p.AwaitQuiet(benchPatience)
		}
		for _, selection := range []struct {
			name   string
			label  prompb.Label
			series int
		}{
			{"all", prompb.Label{Name: "cluster", Value: "prod-eu-1"}, load.series},
			{"metric", targetSeries(42)[0], load.series / 50},
		} {
			for _, form := range remotetest.ResponseTypes {
				load.readBack(b, fmt.Sprintf("%s/%s/%s", state, selection.name, form), peers, form, selection.label,
					selection.series)
			}
		}
	}
}

// readBack reads the series of a label from all peers by turns, and reports for each.
func (l benchLoad) readBack(
	b *testing.B, name string, peers []*promtest.Process, form prompb.ReadRequest_ResponseType, label prompb.Label,
	series int,
) {
	query := &prompb.Query{
		StartTimestampMs: l.start - scrapeMs, EndTimestampMs: l.start + int64(l.scrapes)*scrapeMs,
		Matchers: []*prompb.LabelMatcher{{Type: prompb.LabelMatcher_EQ, Name: label.Name, Value: label.Value}},
	}
	samples := series * l.scrapes
	took, cost := make([]time.Duration, len(peers)), make([]time.Duration, len(peers))
	for repeat := range readRepeats {
		for i, p := range peers {
			before, began := p.Usage().CPU, time.Now()
			found, err := readAll(b.Context(), p.URL(), form, query)
			elapsed := time.Since(began)
			if err != nil || found != samples {
				b.Fatalf("%s of %s: %d samples, want %d, %v", name, receivers()[i].name, found, samples, err)
			}
			if used := p.Usage().CPU - before; repeat == 0 || used < cost[i] {
				cost[i] = used
			}
			if repeat == 0 || elapsed < took[i] {
				took[i] = elapsed
			}
		}
	}
	for i, p := range peers {
		b.Run(receivers()[i].name+"/"+name, func(b *testing.B) {
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(took[i].Seconds()*1e3, "ms")
			b.ReportMetric(float64(samples)/took[i].Seconds()/1e6, "Msamples/s")
			b.ReportMetric(cost[i].Seconds()*1e3, "server-CPU-ms")
			b.ReportMetric(float64(readBytes(b, p.URL(), form, query))/float64(samples), "B/sample")
		})
	}
}

// readAll reads by Prometheus's client and counts the samples.
func readAll(ctx context.Context, server string, form prompb.ReadRequest_ResponseType, query *prompb.Query) (n int,
	err error) {
	target, err := url.Parse(server + "/api/v1/read")
	if err != nil {
		return 0, err
	}
	client, err := remote.NewReadClient("bench", &remote.ClientConfig{
		URL: &configutil.URL{URL: target}, Timeout: commonmodel.Duration(time.Minute), ChunkedReadLimit: 50_000_000,
		AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{form},
	})
	if err != nil {
		return 0, err
	}
	set, err := client.Read(ctx, query, false)
	if err != nil {
		return 0, err
	}
	var it chunkenc.Iterator
	for set.Next() {
		it = set.At().Iterator(it)
		for it.Next() != chunkenc.ValNone {
			n++
		}
		if it.Err() != nil {
			return n, it.Err()
		}
	}
	return n, set.Err()
}

// readBytes is how long the body of an answer is.
func readBytes(b *testing.B, server string, form prompb.ReadRequest_ResponseType, query *prompb.Query) int64 {
	request := &prompb.ReadRequest{
		Queries: []*prompb.Query{query}, AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{form},
	}
	content, err := request.Marshal()
	if err != nil {
		b.Fatal(err)
	}
	res, err := remotetest.Post(b.Context(), http.DefaultClient, server+"/api/v1/read", "application/x-protobuf", content)
	if err != nil {
		b.Fatal(err)
	}
	defer res.Body.Close()
	n, err := io.Copy(io.Discard, res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		b.Fatalf("%s, %v", res.Status, err)
	}
	return n
}
