// Package bench_test has the benchmarks of whole programs: promtsd and Prometheus as receivers of the same samples, as
// readers and at rest, promtsd's start after a kill, a million active series, and HBase's cost for each write mode.
package bench_test

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
)

// benchPatience is how long a receiver may take to become idle, and to end.
const benchPatience = 5 * time.Minute

// receiver is a server that is sent samples: a peer of the benchmarks.
type receiver struct {
	name  string
	start func(testing.TB) *promtest.Process
	// part says of a file, by its path below the process's directory, whether it is log, data or other.
	part func(path string) string
}

// receivers are promtsd with an embedded store, and Prometheus, each with its defaults. They do not promise the same:
// promtsd's answer means that the samples are on the disk, Prometheus's that they were given to the operating system,
// since its log is not synced for a request. Neither does Prometheus sort or pack what it got until there are three
// hours of it, so that its figures leave that work out.
func receivers() []receiver {
	extension := func(path string) string {
		return cmp.Or(map[string]string{".log": "log", ".sst": "data"}[filepath.Ext(path)], "other")
	}
	below := func(path string) string {
		dir, rest, _ := strings.Cut(path, string(filepath.Separator))
		if dir != "data" {
			return "other"
		}
		if strings.HasPrefix(rest, "wal"+string(filepath.Separator)) {
			return "log"
		}
		return "data"
	}
	return []receiver{
		{"promtsd", func(t testing.TB) *promtest.Process {
			return promtest.StartPromtsd(t, promtest.PromtsdConfig{Args: promtest.FlagsFromEnv()})
		}, extension},
		{"prometheus", func(t testing.TB) *promtest.Process {
			return promtest.Start(t, promtest.Config{Args: []string{"--web.enable-remote-write-receiver"}}).Process
		}, below},
	}
}

// figures are what a receiver cost.
type figures struct {
	samples  float64
	sent     int64         // bytes of bodies
	elapsed  time.Duration // until the last answer
	answered time.Duration // CPU until then
	idle     time.Duration // CPU until the process had nothing left to do and had put all away at its end
	peakRSS  int64
	disk     map[string]int64

	// Of a second life, which finds what the first one left.
	ready    time.Duration
	reopened time.Duration    // CPU until it had nothing left to do, and ended
	rest     map[string]int64 // on the disk after that
}

// measure has r receive the load, ends it, and runs it once more, to see that all is there.
func (r receiver) measure(b *testing.B, load benchLoad, sources []benchSource) (f figures) {
	disk := func(p *promtest.Process) map[string]int64 {
		use, err := promtest.DiskUse(p.Dir(), r.part)
		if err != nil {
			b.Fatal(err)
		}
		return use
	}
	await := func(p *promtest.Process) {
		if !p.AwaitQuiet(benchPatience) {
			b.Logf("%s is still busy after %s", r.name, benchPatience)
		}
	}

	p := r.start(b)
	before, began := p.Usage(), time.Now()
	bodies, err := load.send(b.Context(), p.URL(), sources)
	f.elapsed = time.Since(began)
	if err != nil {
		b.Fatal(err)
	}
	if bodies.refused > 0 {
		b.Logf("%s put off requests %d times by 503 or 429", r.name, bodies.refused)
	}
	f.sent = bodies.bytes
	f.answered = p.Usage().CPU - before.CPU
	await(p)
	after := p.StopMeasured(benchPatience)
	f.idle, f.peakRSS = after.CPU-before.CPU, after.PeakRSS
	f.samples, f.disk = float64(load.samples()), disk(p)

	began = time.Now()
	p.Restart()
	f.ready = time.Since(began)
	await(p)
	f.reopened = p.Usage().CPU
	load.check(b, p.URL())
	p.StopMeasured(benchPatience)
	f.rest = disk(p)
	return f
}

func (f figures) report(b *testing.B) {
	b.ReportMetric(0, "ns/op") // of starts and pauses, mostly
	b.ReportMetric(f.samples/f.elapsed.Seconds(), "samples/s")
	b.ReportMetric(f.answered.Seconds()/f.samples*1e6, "CPU-s/M-answered")
	b.ReportMetric(f.idle.Seconds()/f.samples*1e6, "CPU-s/M-idle")
	b.ReportMetric(float64(f.peakRSS)/(1<<20), "peak-MiB")
	b.ReportMetric(float64(f.sent)/f.samples, "sent-B/sample")
	total := 0.0
	for _, part := range []string{"log", "data", "other"} {
		b.ReportMetric(float64(f.disk[part])/f.samples, part+"-B/sample")
		total += float64(f.rest[part])
	}
	b.ReportMetric(f.ready.Seconds(), "restart-s")
	b.ReportMetric(f.reopened.Seconds(), "restart-CPU-s")
	b.ReportMetric(total/f.samples, "rest-B/sample")
}

// BenchmarkReceive sends the same requests to promtsd and to Prometheus: an hour of 10,000 series and ten minutes of
// 100,000, by as many connections as Prometheus's sender has shards at such a rate.
//
//	go test ./cmd/promtsd -run '^$' -bench Receive -benchtime 1x -timeout 1h
func BenchmarkReceive(b *testing.B) {
	for _, size := range []struct{ series, scrapes int }{{10_000, 240}, {100_000, 40}} {
		for _, protocol := range []struct{ name, message string }{
			{"1.0", remotetest.MessageV1}, {"2.0", remotetest.MessageV2},
		} {
			load := newBenchLoad(b, protocol.message, size.series, size.scrapes)
			bodies := sync.OnceValues(load.prepare) // made once, by the first peer that is selected
			for _, r := range receivers() {
				b.Run(fmt.Sprintf("%s/%s/%d", r.name, protocol.name, size.series), func(b *testing.B) {
					for range b.N {
						groups, err := bodies()
						if err != nil {
							b.Fatal(err)
						}
						r.measure(b, load, groups.sources()).report(b)
					}
				})
			}
		}
	}
}

// BenchmarkRest sends a day of 10,000 series to promtsd, and finds what it takes on the disk once it is idle. The
// requests are made beside, so that samples/s counts that, too. Of rest-B/sample, drawn-B/sample is the part that is
// random in the data itself, names, keys and the first sample of each row not counted: less would be loss. It is mostly
// that of the floats of all digits, an eighth of the series; so there is a day with decimals in their place, too.
//
//	go test ./cmd/promtsd -run '^$' -bench Rest -benchtime 1x -timeout 1h
func BenchmarkRest(b *testing.B) {
	for name, values := range map[string]func(int) benchValues{"digits": newBenchValues, "decimals": newDecimalValues} {
		b.Run(name, func(b *testing.B) {
			load := newBenchLoad(b, remotetest.MessageV2, 10_000, 24*240)
			load.values = values
			for range b.N {
				receivers()[0].measure(b, load, load.making()).report(b)
			}
			b.ReportMetric(drawnBytes(values, load.scrapes), "drawn-B/sample")
		})
	}
}

// BenchmarkRecover kills promtsd and Prometheus after an hour of 10,000 series, or nine samples of a million, and finds
// how long they take to be ready again, with all that they had acknowledged.
//
//	go test ./cmd/promtsd -run '^$' -bench Recover -benchtime 1x
func BenchmarkRecover(b *testing.B) {
	for _, shape := range []struct {
		name            string
		series, samples int
	}{{"10k_series", 10_000, 240}, {"1M_series", 1_000_000, 9}} {
		b.Run(shape.name, func(b *testing.B) {
			benchRecover(b, newBenchLoad(b, remotetest.MessageV2, shape.series, shape.samples))
		})
	}
}

func benchRecover(b *testing.B, load benchLoad) {
	for _, r := range receivers() {
		b.Run(r.name, func(b *testing.B) {
			for range b.N {
				p := r.start(b)
				if _, err := load.send(b.Context(), p.URL(), load.making()); err != nil {
					b.Fatal(err)
				}
				p.Kill()
				began := time.Now()
				p.Restart()
				ready, cost := time.Since(began), p.Usage()
				load.check(b, p.URL())
				p.StopMeasured(benchPatience)
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(load.samples())/ready.Seconds(), "samples/s")
				b.ReportMetric(ready.Seconds(), "ready-s")
				b.ReportMetric(cost.CPU.Seconds(), "ready-CPU-s")
				b.ReportMetric(float64(cost.PeakRSS)/(1<<20), "ready-peak-MiB")
			}
		})
	}
}
