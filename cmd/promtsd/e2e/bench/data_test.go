package bench_test

import (
	"fmt"
	"math"
	"math/bits"
	"testing"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"

	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/mapping/request"
)

// scrapeMs is the time between two scrapes of what follows.
const scrapeMs = 15_000

// targetSeries is a series with 6 to 10 labels. As in a scrape, series of one target follow each other and share most
// of their labels: there are 250, five of each metric, on each pod of a cluster.
func targetSeries(n int) []prompb.Label {
	target, metric, variant := n/250, n%50, n/50%5
	subsystem := []string{"http_server_requests", "grpc_client_handled", "go_memstats_heap", "process_cpu", "jvm_gc_pause",
		"kafka_consumer_fetch", "db_connections", "cache_entries", "queue_depth", "container_network"}[metric%10]
	unit := []string{"total", "bytes", "seconds_sum", "count", "errors_total"}[metric/10]
	ls := []prompb.Label{
		{Name: "__name__", Value: subsystem + "_" + unit},
		{Name: "cluster", Value: "prod-eu-1"},
		{Name: "instance", Value: fmt.Sprintf("10.%d.%d.%d:8080", target%7, target/251%251, target%251)},
		{Name: "job", Value: fmt.Sprintf("service-%02d", target%31)},
		{Name: "namespace", Value: fmt.Sprintf("team-%d", target%13)},
		{Name: "pod", Value: fmt.Sprintf("service-%02d-7d9f8c6b5-%05x", target%31, target*7919)},
	}
	for i, name := range []string{"quantile", "route", "status", "verb"}[:variant] {
		ls = append(ls, prompb.Label{Name: name, Value: fmt.Sprintf("value-%d", (metric+i)%(i+3))})
	}
	return ls
}

// benchValues makes the samples of one series, which are the same in every run. Of eight series four are counters (of
// which two thirds count at random, the others by a constant step or hardly ever), two are integer gauges (bytes in
// whole pages, and small numbers), one has two or three decimals, and one has all the digits of a float64. Every tenth
// is scraped up to 3 ms early or late.
type benchValues struct {
	n     int // of the series
	kind  int // 0 to 7, of those eight
	whole int64
	real  float64
}

func newBenchValues(n int) benchValues {
	r := benchRandom(n, -1)
	s := benchValues{n: n, kind: n % 8, whole: int64(r % 10_000_000), real: float64(r>>11) / (1 << 46)}
	switch s.kind {
	case 4: // pages
		s.whole = int64(r % 1_000_000)
	case 5: // small
		s.whole = int64(r % 500)
	}
	return s
}

// newDecimalValues is newBenchValues, but a series of floats with all digits has decimals.
func newDecimalValues(n int) benchValues {
	s := newBenchValues(n)
	s.kind = min(s.kind, 6)
	return s
}

// next is the sample of a scrape, whose nominal time is t. Scrapes come in their order from 0 on, none left out.
func (s *benchValues) next(scrape int, t int64) request.Sample {
	r := benchRandom(s.n, scrape)
	jitter := s.n/8%10 == 0
	if jitter {
		t += int64(r>>56)%7 - 3
	}
	switch s.kind {
	case 4:
		s.whole = max(s.whole+int64(r%129)-64, 0)
		return request.Sample{T: t, V: float64(s.whole * 4096)}
	case 5:
		s.whole = max(s.whole+int64(r%5)-2, 0)
	case 6:
		s.whole += int64(r%101) - 50
		digits := []float64{100, 1000}[s.n/8%2]
		return request.Sample{T: t, V: float64(s.whole) / digits}
	case 7:
		s.real += float64(int64(r)) / math.MaxInt64
		return request.Sample{T: t, V: s.real}
	default:
		switch counter := s.n/8*4 + s.kind; {
		case counter%3 != 0:
			s.whole += int64(r % 1001)
		case counter%2 == 0:
			s.whole += int64(s.n%100) + 1
		case r%50 == 0:
			s.whole++
		}
	}
	return request.Sample{T: t, V: float64(s.whole)}
}

// drawn is how many bits next drew at random for its sample v, which no lossless form can do without.
func (s *benchValues) drawn(v float64) (bits float64) {
	if s.n/8%10 == 0 {
		bits = math.Log2(7)
	}
	switch s.kind {
	case 4:
		return bits + math.Log2(129)
	case 5:
		return bits + math.Log2(5)
	case 6:
		return bits + math.Log2(101)
	case 7:
		v = math.Abs(v)
		return bits + math.Log2(2/(math.Nextafter(v, math.Inf(1))-v)) // the float64s from 1 below to 1 above
	default:
		switch counter := s.n/8*4 + s.kind; {
		case counter%3 != 0:
			return bits + math.Log2(1001)
		case counter%2 == 0:
			return bits
		default:
			return bits + (math.Log2(50)+49*math.Log2(50./49))/50
		}
	}
}

// drawnBytes is what drawn says of an average sample. All kinds of series are among the first 960 in their shares.
func drawnBytes(values func(n int) benchValues, scrapes int) float64 {
	const series = 960
	bits := 0.0
	for n := range series {
		s := values(n)
		for scrape := range scrapes {
			bits += s.drawn(s.next(scrape, 0).V)
		}
	}
	return bits / 8 / float64(series*scrapes)
}

// benchRandom is 64 random bits for each scrape of each series: the finaliser of SplitMix64.
func benchRandom(n, scrape int) uint64 {
	x := bits.RotateLeft64(uint64(n), 32) + uint64(scrape+1)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// benchBodies makes the bodies of requestSamples series, one for each scrape, with the encoders of Prometheus's sender.
type benchBodies struct {
	start  int64
	scrape int
	series []benchValues

	v1            prompb.WriteRequest // one of the two
	v2            *writev2.Request
	content, body []byte
}

// newBenchBodies makes bodies of a message for the series from the first on, scraped every scrapeMs from start.
func newBenchBodies(message string, values func(n int) benchValues, first int, start int64) *benchBodies {
	m := &benchBodies{start: start}
	for n := first; n < first+requestSamples; n++ {
		m.series = append(m.series, values(n))
	}
	if message == remotetest.MessageV1 {
		for _, s := range m.series {
			m.v1.Timeseries = append(m.v1.Timeseries, prompb.TimeSeries{
				Labels: targetSeries(s.n), Samples: make([]prompb.Sample, 1),
			})
		}
		return m
	}
	m.v2 = new(writev2.Request)
	symbols := writev2.NewSymbolTable()
	for _, s := range m.series {
		ts := writev2.TimeSeries{Samples: make([]writev2.Sample, 1)}
		for _, l := range targetSeries(s.n) {
			ts.LabelsRefs = append(ts.LabelsRefs, symbols.Symbolize(l.Name), symbols.Symbolize(l.Value))
		}
		m.v2.Timeseries = append(m.v2.Timeseries, ts)
	}
	m.v2.Symbols = symbols.Symbols()
	return m
}

// next is the body of the next scrape; it is valid until the one after it is made.
func (m *benchBodies) next() (body []byte, err error) {
	t := m.start + int64(m.scrape)*scrapeMs
	for i := range m.series {
		p := m.series[i].next(m.scrape, t)
		if m.v2 == nil {
			m.v1.Timeseries[i].Samples[0] = prompb.Sample{Timestamp: p.T, Value: p.V}
		} else {
			m.v2.Timeseries[i].Samples[0] = writev2.Sample{Timestamp: p.T, Value: p.V}
		}
	}
	m.scrape++
	if m.v2 == nil {
		m.content, err = m.v1.Marshal()
	} else {
		m.content, err = m.v2.OptimizedMarshal(m.content)
	}
	m.body = snappy.Encode(m.body[:cap(m.body)], m.content)
	return m.body, err
}

// TestBenchBodies_SayTheSameInBothMessages also sees that the data is of the kind that was meant.
func TestBenchBodies_SayTheSameInBothMessages(t *testing.T) {
	const first, start, scrapes = 2000, 1_700_000_000_000, 50
	v1, v2 := newBenchBodies(remotetest.MessageV1, newBenchValues, first, start),
		newBenchBodies(remotetest.MessageV2, newBenchValues, first, start)
	wholes, early, known := 0, 0, map[string]bool{}
	for scrape := range scrapes {
		one, two := new(prompb.WriteRequest), new(writev2.Request)
		for _, c := range []struct {
			bodies  *benchBodies
			message interface{ Unmarshal([]byte) error }
		}{{v1, one}, {v2, two}} {
			body, err := c.bodies.next()
			if err != nil {
				t.Fatal(err)
			}
			content, err := snappy.Decode(nil, body)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.message.Unmarshal(content); err != nil {
				t.Fatal(err)
			}
		}
		if len(one.Timeseries) != requestSamples || len(two.Timeseries) != requestSamples {
			t.Fatalf("%d and %d series in a request", len(one.Timeseries), len(two.Timeseries))
		}
		var builder labels.ScratchBuilder
		for i, ts := range one.Timeseries {
			ls, err := two.Timeseries[i].ToLabels(&builder, two.Symbols)
			if want := remotetest.SortedLabels(targetSeries(first + i)); err != nil || !labels.Equal(ls, want) {
				t.Fatalf("labels in 2.0: got %s, %v, want %s", ls, err, want)
			}
			if got := remotetest.SortedLabels(ts.Labels); !labels.Equal(got, ls) || got.Len() < 6 || got.Len() > 10 {
				t.Fatalf("labels in 1.0: got %s, want %s, 6 to 10 of them", got, ls)
			}
			known[ls.String()] = true
			p, q := ts.Samples[0], two.Timeseries[i].Samples[0]
			late := p.Timestamp - start - int64(scrape)*scrapeMs
			if len(ts.Samples) != 1 || p.Timestamp != q.Timestamp || p.Value != q.Value || late < -3 || late > 3 {
				t.Fatalf("scrape %d: got %v in 1.0, %v in 2.0", scrape, ts.Samples, q)
			}
			if p.Value == math.Trunc(p.Value) {
				wholes++
			}
			if late != 0 {
				early++
			}
		}
	}
	if len(known) != requestSamples {
		t.Errorf("%d different series, want %d", len(known), requestSamples)
	}
	// Three quarters, and the decimals that happen to end in zeros; six sevenths of a tenth.
	const samples = requestSamples * scrapes
	if wholes < samples*75/100 || wholes > samples*76/100 || early < samples*8/100 || early > samples*9/100 {
		t.Errorf("of %d samples %d are integers, %d off their time", samples, wholes, early)
	}
}
