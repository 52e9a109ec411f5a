package torture_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/mapping/request"
)

// The kinds of senders.
const (
	ordered     = iota // each series a counter, at one time after the other, and exemplars; to any node
	conflicting        // the same times again and again with other values, and other metadata; always to one node
	churning           // new series all the time; to any node
	histograms         // as ordered, native histograms
	overOTLP           // as ordered, by OTLP
	senderKinds
)

// tortureSender writes series of its own, and has one request under way at a time, which it repeats until it is
// acknowledged, as Prometheus does. Every value of a sender is another one.
type tortureSender struct {
	*torture
	group
	kind   int
	random *rand.Rand
	client *http.Client
	series []*chronicle
	start  int64 // time of the first points of the era
	step   int64 // between points, in milliseconds
	turn   int   // requests of the era
	value  float64
	// A write whose answer was lost may take effect as long as the node lives that it was sent to; until then nothing
	// else is written at its time. By series and time: how many lives have to have ended.
	unsure      map[*chronicle]map[int64]int
	annotations map[*chronicle]*chronicle // exemplars and metadata of series
}

// contents are what senders of a kind send.
func contents(kind int) []content {
	switch kind {
	case ordered:
		return []content{ofSamples, ofExemplars}
	case conflicting:
		return []content{ofSamples, ofMetadata}
	}
	return []content{ofSamples}
}

func (s *tortureSender) begin(era int) {
	s.era, s.turn = era, 0
	s.unsure = map[*chronicle]map[int64]int{}
	// So long ago that no step of a clock makes it the future, and so long that hours end while the sender writes.
	s.start = time.Now().Add(-3*time.Hour - time.Duration(s.random.Int64N(int64(30*time.Hour)))).UnixMilli()
	s.step = 500 + s.random.Int64N(15_000)
	s.series, s.annotations = nil, map[*chronicle]*chronicle{}
	names := []string{"torture_a", "torture_b", "torture_ü"}
	if s.kind == overOTLP {
		names[2] = "torture_c" // by default names are escaped on this way
	}
	if s.kind == churning {
		return
	}
	for n := range 6 {
		c := s.add(names[n%len(names)], n)
		if s.kind == ordered {
			s.annotations[c] = s.history.add(group{s.sender, era, ofExemplars}, c.labels)
		}
	}
	if s.kind == conflicting {
		family := fmt.Sprintf("torture_family_%d_%d", s.sender, era)
		s.annotations[s.add(family, 6)] = s.history.add(group{s.sender, era, ofMetadata},
			[]prompb.Label{{Name: "__name__", Value: family}})
	}
}

// add makes a new series: few labels or many, with short values or long.
func (s *tortureSender) add(name string, n int) *chronicle {
	ls := []prompb.Label{
		{Name: "__name__", Value: name}, {Name: "era", Value: strconv.Itoa(s.era)}, {Name: "job", Value: "torture"},
		{Name: "n", Value: strconv.Itoa(n)}, {Name: "sender", Value: strconv.Itoa(s.sender)},
	}
	switch n % 7 {
	case 3:
		ls = append(ls, prompb.Label{Name: "text", Value: strings.Repeat("ж ", 40)})
	case 5:
		for i := range 20 {
			ls = append(ls, prompb.Label{Name: fmt.Sprintf("x%02d", i), Value: strconv.Itoa((n + i) % 3)})
		}
	}
	c := s.history.add(s.group, ls)
	s.series = append(s.series, c)
	return c
}

// request makes the next request.
func (s *tortureSender) request() (writes []write) {
	s.turn++
	point := func(c *chronicle, t int64) {
		s.value++
		v := s.value
		if s.kind != histograms && s.turn%4 == 0 {
			v += 0.1 // neither an integer nor a float of four bytes
		}
		writes = append(writes, write{c, t, v})
	}
	switch s.kind {
	case conflicting:
		for _, c := range s.series {
			before := len(writes)
			for n := range 20 { // over the end of an hour, often
				t := s.start + int64(n)*s.step*8
				if s.random.IntN(3) == 0 && !s.mayYetCome(c, t) {
					point(c, t)
				}
			}
			if family := s.annotations[c]; family != nil && len(writes) > before && !s.mayYetCome(family, 0) {
				point(family, 0)
			}
		}
	case churning:
		for n := range 3 {
			c := s.add("torture_churn", s.turn*3+n)
			point(c, s.start+int64(s.turn)*s.step)
		}
	default:
		for _, c := range s.series {
			for n := range 2 {
				point(c, s.start+int64(s.turn*2+n)*s.step)
			}
			if exemplars := s.annotations[c]; exemplars != nil && s.random.IntN(4) == 0 {
				point(exemplars, s.start+int64(s.turn*2)*s.step)
			}
		}
	}
	return writes
}

// mayYetCome tells whether a write whose answer was lost may still take effect.
func (s *tortureSender) mayYetCome(c *chronicle, t int64) bool {
	lives, ok := s.unsure[c][t]
	if ok && s.home().life() > lives {
		delete(s.unsure[c], t)
		ok = false
	}
	return ok
}

// home is the node that a sender asks first.
func (s *tortureSender) home() *tortureNode { return s.nodes[s.sender%len(s.nodes)] }

// run sends requests until there are enough, and sees to it that the last one is acknowledged.
func (s *tortureSender) run(ctx context.Context) {
	defer s.client.CloseIdleConnections()
	for !s.enough.Load() && ctx.Err() == nil {
		writes := s.request()
		if len(writes) == 0 {
			promtest.Sleep(ctx, 50*time.Millisecond)
			continue
		}
		s.history.sending(writes)
		if !s.deliver(ctx, writes) {
			return
		}
		s.history.acknowledged(writes)
		s.counts.add("acknowledged", 1)
		promtest.Sleep(ctx, rand.N(60*time.Millisecond))
	}
}

// deliver sends a request again and again; it fails when ctx ends, or on an answer that says never.
func (s *tortureSender) deliver(ctx context.Context, writes []write) bool {
	wait := 20 * time.Millisecond
	for try := 0; ctx.Err() == nil; try++ {
		node := s.home()
		if s.kind != conflicting {
			node = s.nodes[(s.sender+try)%len(s.nodes)]
		}
		status, text, err := s.post(ctx, node, writes)
		switch {
		case err != nil:
			s.counts.add("no answer", 1)
			s.noteUnknown(node, writes)
		case status/100 == 2:
			return true
		case status/100 == 4 && status != http.StatusTooManyRequests:
			s.problem("a write of sender %d was answered %d: %s", s.sender, status, text)
			return false
		default:
			s.counts.add(strconv.Itoa(status), 1)
		}
		promtest.Sleep(ctx, wait)
		wait = min(2*wait, time.Second)
	}
	return false
}

// noteUnknown notes that a request may take effect at any time while its node lives.
func (s *tortureSender) noteUnknown(node *tortureNode, writes []write) {
	if s.kind != conflicting {
		return // it writes nothing else at the same times
	}
	lives := node.life()
	for _, w := range writes {
		if s.unsure[w.series] == nil {
			s.unsure[w.series] = map[int64]int{}
		}
		s.unsure[w.series][w.t] = lives
	}
}

// post sends a request through the front of a node.
func (s *tortureSender) post(ctx context.Context, node *tortureNode, writes []write) (status int, text string,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second+rand.N(8*time.Second))
	defer cancel()
	var res *http.Response
	switch s.kind {
	case histograms:
		res, err = s.postHistograms(ctx, node, writes)
	case overOTLP:
		res, err = s.postOTLP(ctx, node, writes)
	default:
		message := []string{remotetest.MessageV1, remotetest.MessageV2}[s.turn%2]
		res, err = remotetest.Write(ctx, s.client, node.front.url(), message, seriesOf(writes))
	}
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), err
}

// seriesOf is the request as it is sent. Points of one series stand together, and what is beside them follows.
func seriesOf(writes []write) (series []remotetest.Series) {
	var of *chronicle
	for _, w := range writes {
		if w.series.content == ofSamples && w.series != of {
			of = w.series
			series = append(series, remotetest.Series{Labels: of.labels})
		}
		last, p := &series[len(series)-1], request.Sample{T: w.t, V: w.value}
		switch w.series.content {
		case ofSamples:
			last.Samples = append(last.Samples, p)
		case ofExemplars:
			last.Exemplars = append(last.Exemplars, p)
		case ofMetadata:
			last.Help = remotetest.TextOf(w.value)
		}
	}
	return series
}

// postHistograms sends points as native histograms of so many observations.
func (s *tortureSender) postHistograms(ctx context.Context, node *tortureNode, writes []write) (*http.Response,
	error) {
	var message prompb.WriteRequest
	for _, w := range writes {
		h := tsdbutil.GenerateTestFloatHistogram(1)
		h.Count = w.value
		h.ZeroCount, h.PositiveBuckets, h.NegativeBuckets = w.value, nil, nil
		h.PositiveSpans, h.NegativeSpans = nil, nil
		message.Timeseries = append(message.Timeseries, prompb.TimeSeries{
			Labels: w.series.labels, Histograms: []prompb.Histogram{prompb.FromFloatHistogram(w.t, h)},
		})
	}
	content, err := message.Marshal()
	if err != nil {
		return nil, err
	}
	return remotetest.Post(ctx, s.client, node.front.url()+"/api/v1/write", "application/x-protobuf", content)
}

// postOTLP sends points as gauges.
func (s *tortureSender) postOTLP(ctx context.Context, node *tortureNode, writes []write) (*http.Response, error) {
	metrics := pmetric.NewMetrics()
	resource := metrics.ResourceMetrics().AppendEmpty()
	list := resource.ScopeMetrics().AppendEmpty().Metrics()
	for _, w := range writes {
		metric := list.AppendEmpty()
		point := metric.SetEmptyGauge().DataPoints().AppendEmpty()
		point.SetTimestamp(pcommon.NewTimestampFromTime(time.UnixMilli(w.t)))
		point.SetDoubleValue(w.value)
		for _, l := range w.series.labels {
			switch l.Name {
			case "__name__":
				metric.SetName(l.Value)
			case "job":
				resource.Resource().Attributes().PutStr("service.name", l.Value)
			default:
				point.Attributes().PutStr(l.Name, l.Value)
			}
		}
	}
	body, err := pmetricotlp.NewExportRequestFromMetrics(metrics).MarshalProto()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, node.front.url()+"/api/v1/otlp/v1/metrics",
		bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	return s.client.Do(req)
}
