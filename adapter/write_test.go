package adapter_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/golang/snappy"
	remoteapi "github.com/prometheus/client_golang/exp/api/remote"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/prometheus/prometheus/storage/remote"

	"github.com/promtsd/promtsd/adapter"
	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/store"
)

const (
	typeV1 = "application/x-protobuf"
	typeV2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request"
)

type marshaler interface{ Marshal() ([]byte, error) }

func block(t testing.TB, m marshaler) []byte {
	t.Helper()
	body, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return snappy.Encode(nil, body)
}

func up(samples ...prompb.Sample) prompb.TimeSeries {
	return prompb.TimeSeries{
		Labels:  []prompb.Label{{Name: "__name__", Value: "up"}, {Name: "job", Value: "x"}},
		Samples: samples,
	}
}

func oneV1() *prompb.WriteRequest {
	return &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{up(prompb.Sample{Timestamp: 1000, Value: 1.5})}}
}

var symbols = []string{"", "__name__", "up", "job", "x", "other"}

func oneV2(more ...writev2.TimeSeries) *writev2.Request {
	return &writev2.Request{Symbols: symbols, Timeseries: append([]writev2.TimeSeries{{
		LabelsRefs: []uint32{1, 2, 3, 4}, Samples: []writev2.Sample{{Timestamp: 1000, Value: 1.5, StartTimestamp: 5}},
	}}, more...)}
}

// The headers that count, or "-" where one is missing.
func counts(h http.Header) string {
	var got []string
	for _, kind := range []string{"Samples", "Histograms", "Exemplars"} {
		v := h.Get("X-Prometheus-Remote-Write-" + kind + "-Written")
		if v == "" {
			v = "-"
		}
		got = append(got, v)
	}
	return strings.Join(got, " ")
}

func TestWrite_AnswersByWhatBecameOfTheRequest(t *testing.T) {
	sample := []writev2.Sample{{Timestamp: 2000, Value: 2}}
	histogram := []writev2.Histogram{{Sum: 1, Timestamp: 2000}, {Sum: 2, Timestamp: 3000}}
	exemplar := []writev2.Exemplar{{Value: 1, Timestamp: 2000}}
	metadata := writev2.Metadata{Type: writev2.Metadata_METRIC_TYPE_COUNTER, HelpRef: 5}
	other := []uint32{1, 5}
	refuse := func(context.Context, *request.Write) (request.Result, error) {
		result := request.Result{Written: 7}
		result.Refuse(request.ReasonTimestamp, 2, errors.New("series up: sample at 99 is too far in the future"))
		result.Refuse(request.ReasonInvalidLabels, 1, errors.New("series without a name"))
		return result, nil
	}
	refuseExemplars := func(context.Context, *request.Write) (request.Result, error) {
		result := request.Result{Written: 1}
		result.Exemplars.Written = 2
		result.Exemplars.Refuse(request.ReasonExemplarLabels, errors.New("series up: too long"))
		result.Exemplars.Refuse(request.ReasonSeriesRefused, errors.New("its series is refused"))
		result.Exemplars.Refuse(request.ReasonSeriesRefused, errors.New("its series is refused"))
		return result, nil
	}
	fail := func(err error) func(context.Context, *request.Write) (request.Result, error) {
		return func(context.Context, *request.Write) (request.Result, error) {
			return request.Result{Written: 1}, err
		}
	}
	withHistogram := up(prompb.Sample{Timestamp: 1000, Value: 1})
	withHistogram.Histograms = []prompb.Histogram{{Sum: 1}}
	for _, c := range []struct {
		name    string
		v1      *prompb.WriteRequest
		v2      *writev2.Request
		append  func(context.Context, *request.Write) (request.Result, error)
		want    int
		headers string
		text    []string // the first is how the text begins
		got     []string // what the appender got, where it matters
	}{
		{name: "2.0 whole", v2: oneV2(), want: 204, headers: "1 0 0"},
		{name: "2.0 with exemplars and metadata",
			v2:   oneV2(writev2.TimeSeries{LabelsRefs: other, Samples: sample, Exemplars: exemplar, Metadata: metadata}),
			want: 204, headers: "2 0 1", got: []string{"__name__=up job=x 1000:1.5", "__name__=other 2000:2",
				"exemplar of 1: 2000:1", "metadata of other: counter other "}},
		{name: "1.0 metadata alone", v1: &prompb.WriteRequest{Metadata: []prompb.MetricMetadata{
			{MetricFamilyName: "up", Help: "x"}, {}}},
			want: 204, headers: "- - -", got: []string{"metadata of up: unknown x ", "metadata of : unknown  "}},
		{name: "2.0 exemplars alone", v2: oneV2(writev2.TimeSeries{LabelsRefs: other, Exemplars: exemplar,
			Metadata: metadata}),
			want: 204, headers: "1 0 1", got: []string{"__name__=up job=x 1000:1.5", "__name__=other",
				"exemplar of 1: 2000:1", "metadata of other: counter other "}},
		{name: "2.0 exemplars refused", v2: oneV2(), append: refuseExemplars, want: 400, headers: "1 0 2",
			text: []string{"refused no samples and histograms, stored 1; refused 3 exemplars (exemplar_labels 1, " +
				"series_refused 2)\n", "series up: too long"}},
		{name: "1.0 exemplars refused", v1: oneV1(), append: refuseExemplars, want: 204, headers: "- - -"},
		{name: "2.0 some refused", v2: oneV2(), append: refuse, want: 400, headers: "7 0 0",
			text: []string{"refused 3 samples and histograms (invalid_labels 1, timestamp 2), stored 7\n",
				"series up: sample at 99 is too far", "series without a name"}},
		{name: "1.0 some refused", v1: oneV1(), append: refuse, want: 400, headers: "- - -",
			text: []string{"refused 3 samples and histograms (invalid_labels 1, timestamp 2), stored 7\n"}},
		{name: "2.0 histograms beside samples", v2: oneV2(writev2.TimeSeries{LabelsRefs: other, Histograms: histogram}),
			want: 204, headers: "1 2 0"},
		{name: "1.0 histograms beside samples", v1: &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{withHistogram}},
			want: 204, headers: "- - -"},
		{name: "2.0 malformed series", v2: oneV2(
			writev2.TimeSeries{LabelsRefs: []uint32{1, 99}, Samples: sample},
			writev2.TimeSeries{LabelsRefs: other},
			writev2.TimeSeries{LabelsRefs: other, Samples: sample, Histograms: histogram},
		), want: 400, headers: "1 0 0",
			text: []string{"refused 4 samples and histograms (malformed_series 4), stored 1; 3 time series or exemplars",
				"beyond the 6 symbols", "at least one sample, histogram or exemplar", "both samples and histograms"}},
		{name: "2.0 store unavailable", v2: oneV2(), append: fail(fmt.Errorf("put: %w", store.ErrUnavailable)),
			want: 503, headers: "1 0 0", text: []string{"put: store unavailable"}},
		{name: "1.0 store closed", v1: oneV1(), append: fail(store.ErrClosed), want: 503, headers: "- - -",
			text: []string{"store is closed"}},
		{name: "2.0 internal error", v2: oneV2(), append: fail(fmt.Errorf("read UID: %w", store.ErrCorrupt)),
			want: 500, headers: "1 0 0", text: []string{"read UID: "}},
		{name: "an unclear error is never final", v1: oneV1(), append: fail(mapping.ErrInvalid), want: 500,
			headers: "- - -", text: []string{"invalid"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t, nil)
			s.appender.before = c.append
			body, contentType := marshaler(c.v1), typeV1
			if c.v2 != nil {
				body, contentType = c.v2, typeV2
			}
			code, header, text := s.post(t, "/api/v1/write", block(t, body), "Content-Type", contentType)
			if code != c.want || counts(header) != c.headers {
				t.Errorf("got status %d with counts %s, want %d with %s", code, counts(header), c.want, c.headers)
			}
			if len(text) >= 1024 {
				t.Errorf("got a text of %d bytes, senders log less than 1024", len(text))
			}
			for i, part := range c.text {
				if !strings.Contains(text, part) || i == 0 && !strings.HasPrefix(text, part) {
					t.Errorf("got text %q, want %q in it", text, part)
				}
			}
			if (code == 503) != (header.Get("Retry-After") != "") {
				t.Errorf("got Retry-After %q with status %d", header.Get("Retry-After"), code)
			}
			if c.got != nil && !slices.Equal(s.appender.got, c.got) {
				t.Errorf("the appender got %q, want %q", s.appender.got, c.got)
			}
			if logged := strings.Contains(s.log.String(), "level=ERROR"); logged != (code == 500) {
				t.Errorf("got log %q with status %d", s.log, code)
			}
		})
	}
}

func TestWrite_RefusalTextIsCutToWhatSendersLog(t *testing.T) {
	s := newServer(t, nil)
	s.appender.before = func(context.Context, *request.Write) (request.Result, error) {
		var result request.Result
		for range 20 {
			result.Refuse(request.ReasonLabelLimit, 1, errors.New(strings.Repeat("ü", 2000)+"--flag"))
		}
		return result, nil
	}
	_, _, text := s.post(t, "/api/v1/write", block(t, oneV1()), "Content-Type", typeV1)
	if len(text) >= 1024 || !strings.HasPrefix(text, "refused 20 ") || strings.Count(text, "ü…ü") < 3 ||
		strings.Count(text, "--flag") < 3 {
		t.Errorf("got %d bytes: %q", len(text), text)
	}
}

func TestWrite_PrometheusClient(t *testing.T) {
	for _, c := range []struct {
		msg  remoteapi.WriteMessageType
		body []byte
		want remoteapi.WriteResponseStats
	}{
		{remoteapi.WriteV1MessageType, block(t, oneV1()), remoteapi.WriteResponseStats{}},
		{remoteapi.WriteV2MessageType, block(t, oneV2()), remoteapi.WriteResponseStats{Samples: 1}},
	} {
		t.Run(string(c.msg), func(t *testing.T) {
			s := newServer(t, nil)
			config := s.clientConfig(t, "/api/v1/write")
			config.WriteProtoMsg = c.msg
			client, err := remote.NewWriteClient("test", config)
			if err != nil {
				t.Fatal(err)
			}
			got, err := client.Store(t.Context(), c.body, 3)
			if err != nil || got.Samples != c.want.Samples || got.Histograms != 0 || got.Exemplars != 0 {
				t.Errorf("got %+v, error %v, want %+v", got, err, c.want)
			}
			if n := s.metric(t, "promtsd_write_retried_requests_total"); n != 1 {
				t.Errorf("got %v retried requests, want 1", n)
			}
			s.appender.before = func(context.Context, *request.Write) (request.Result, error) {
				return request.Result{}, store.ErrUnavailable
			}
			_, err = client.Store(t.Context(), c.body, 0)
			if recoverable := new(remote.RecoverableError); !errors.As(err, recoverable) {
				t.Errorf("got error %v while the store is unavailable, want one that makes the sender try again", err)
			}
		})
	}
}

func TestWrite_BytesInFlightAreBounded(t *testing.T) {
	s := newServer(t, func(c *adapter.Config) { c.Write.MaxInFlightBytes = 100 })
	entered, leave := make(chan struct{}), make(chan struct{})
	s.appender.before = func(context.Context, *request.Write) (request.Result, error) {
		entered <- struct{}{}
		<-leave
		return request.Result{Written: 1}, nil
	}
	body := block(t, oneV1())
	var first int
	var done sync.WaitGroup
	done.Go(func() { first, _, _ = s.post(t, "/api/v1/write", body) })
	<-entered
	code, header, text := s.post(t, "/api/v1/write", body)
	if code != 503 || header.Get("Retry-After") != "1" ||
		!strings.Contains(text, "--write.max-in-flight-bytes allows 100") {
		t.Errorf("got %d, Retry-After %q, %q; want 503 that names the limit", code, header.Get("Retry-After"), text)
	}
	close(leave)
	done.Wait()
	if first != 204 {
		t.Errorf("got status %d for the request that was alone, want 204", first)
	}
	if got := s.metric(t, "promtsd_write_in_flight_bytes"); got != 0 {
		t.Errorf("%v bytes are still counted as in flight", got)
	}
}

func TestWrite_CanceledIsNoServerError(t *testing.T) {
	s := newServer(t, nil)
	entered, left := make(chan struct{}), make(chan struct{})
	s.appender.before = func(ctx context.Context, _ *request.Write) (request.Result, error) {
		close(entered)
		<-ctx.Done()
		defer close(left)
		return request.Result{}, ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/api/v1/write", bytes.NewReader(block(t, oneV1())))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", typeV1)
	var done sync.WaitGroup
	done.Go(func() {
		if response, err := s.Client().Do(r); err == nil {
			t.Errorf("got status %d for a canceled request", response.StatusCode)
			_ = response.Body.Close()
		}
	})
	<-entered
	cancel()
	<-left
	done.Wait()
	s.Close() // waits for the handler
	if got := s.metric(t, "promtsd_write_requests_total"); got != 1 {
		t.Errorf("got %v requests, want 1", got)
	}
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "promtsd_write_requests_total" && !strings.Contains(f.String(), "canceled") {
			t.Errorf("got %v, want code canceled", f)
		}
	}
	if strings.Contains(s.log.String(), "ERROR") {
		t.Errorf("got log %s", s.log)
	}
}

func TestWrite_ManyAtOnceKeepApart(t *testing.T) {
	s := newServer(t, nil)
	want := map[string]bool{}
	var done sync.WaitGroup
	for i := range 40 {
		series := up(prompb.Sample{Timestamp: int64(i + 1), Value: float64(i)})
		series.Labels[1].Value = strings.Repeat("y", i)
		want[fmt.Sprintf("__name__=up job=%s %d:%d", series.Labels[1].Value, i+1, i)] = true
		body := block(t, &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{series}})
		done.Go(func() {
			if code, _, text := s.post(t, "/api/v1/write", body); code != 204 {
				t.Errorf("got %d %s", code, text)
			}
		})
	}
	done.Wait()
	got := map[string]bool{}
	for _, g := range s.appender.got {
		got[g] = true
	}
	if !maps.Equal(got, want) {
		t.Errorf("appended %v\nwant %v", got, want)
	}
}
