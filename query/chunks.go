package query

import (
	"fmt"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtsd/promtsd/mapping"
)

// MaxChunkSamples is the number of samples at which a chunk is cut, which is where Prometheus cuts its own.
const MaxChunkSamples = 120

// Chunk is a run of samples of one series in one of Prometheus's encodings, chunkenc.EncXOR for numbers, EncHistogram
// or EncFloatHistogram for native histograms: at least one sample, the first at MinT and the last at MaxT, in
// milliseconds since 1970.
type Chunk struct {
	MinT, MaxT int64
	Encoding   chunkenc.Encoding
	Data       []byte
}

// ChunkEncoder turns the samples of one series after the other into chunks. The zero value is ready. It keeps its
// memory and serves one caller at a time.
type ChunkEncoder struct {
	encoding   chunkenc.Encoding // of the current chunk
	xor        xorChunk          // it, if it is of numbers
	chunk      chunkenc.Chunk    // it, if it is of histograms
	appender   chunkenc.Appender // of the same
	samples    int               // in the chunk
	minT, maxT int64
}

// Encode adds a run of samples and calls emit with each chunk that becomes full. The rest stays for the next run or
// Flush. The data of a chunk is valid until emit returns; an error from emit ends the call, and Reset must follow.
func (e *ChunkEncoder) Encode(p *mapping.Points, emit func(Chunk) error) error {
	for i := 0; i < len(p.T); {
		if h := p.Histogram(i); !h.IsZero() {
			if err := e.encodeHistogram(p.T[i], h, emit); err != nil {
				return err
			}
			i++
			continue
		}
		to := len(p.T)
		if i < len(p.H) {
			to = i + 1
		}
		if err := e.encodeNumbers(p.T[i:to], p.V[i:to], emit); err != nil {
			return err
		}
		i = to
	}
	return nil
}

func (e *ChunkEncoder) encodeNumbers(ts []int64, vs []float64, emit func(Chunk) error) error {
	if e.samples > 0 && e.encoding != chunkenc.EncXOR {
		if err := e.Flush(emit); err != nil {
			return err
		}
	}
	for len(ts) > 0 {
		if e.samples == 0 {
			e.xor.reset()
			e.encoding, e.minT = chunkenc.EncXOR, ts[0]
		}
		n := min(len(ts), MaxChunkSamples-e.samples)
		e.xor.append(ts[:n], vs[:n])
		e.maxT = ts[n-1]
		ts, vs = ts[n:], vs[n:]
		if e.samples += n; e.samples == MaxChunkSamples {
			if err := e.Flush(emit); err != nil {
				return err
			}
		}
	}
	return nil
}

// encodeHistogram adds one histogram. A chunk ends where the count begins anew, and where its buckets do not fit.
func (e *ChunkEncoder) encodeHistogram(t int64, h mapping.Histogram, emit func(Chunk) error) (err error) {
	encoding := chunkenc.EncHistogram
	if h.Float != nil {
		encoding = chunkenc.EncFloatHistogram
	}
	var before chunkenc.Appender // of the chunk before, with which the new one's first histogram is compared
	if e.samples > 0 && (e.encoding != encoding || e.samples >= MaxChunkSamples) {
		if e.encoding != chunkenc.EncXOR {
			before = e.appender
		}
		if err := e.Flush(emit); err != nil {
			return err
		}
	}
	if e.samples == 0 {
		if e.chunk, err = chunkenc.NewEmptyChunk(encoding); err == nil {
			e.appender, err = e.chunk.Appender()
		}
		if err != nil {
			return fmt.Errorf("begin a chunk of histograms at %d ms: %w", t, err)
		}
		e.encoding, e.minT = encoding, t
	}
	var next chunkenc.Chunk
	var recoded bool
	var hint histogram.CounterResetHint
	appender := e.appender
	if h.Float != nil {
		own := *h.Float // the appender changes its buckets
		hint = own.CounterResetHint
		next, recoded, appender, err = appender.AppendFloatHistogram(before, 0, t, &own, false)
	} else {
		own := *h.Int
		hint = own.CounterResetHint
		next, recoded, appender, err = appender.AppendHistogram(before, 0, t, &own, false)
	}
	if err == nil && next != nil && !recoded {
		err = e.Flush(emit)
		e.minT = t
	}
	if err != nil {
		return fmt.Errorf("encode histogram at %d ms: %w", t, err)
	}
	if next != nil {
		e.chunk = next
	}
	if e.samples == 0 && hint == histogram.NotCounterReset && before == nil {
		// The appender takes this hint from no first histogram, because it does not know what it follows.
		e.chunk.Bytes()[counterResetAt] |= byte(chunkenc.NotCounterReset)
	}
	e.appender, e.maxT = appender, t
	e.samples++
	return nil
}

// counterResetAt is the byte of a chunk of histograms whose first two bits are the counter-reset hint of its first one.
const counterResetAt = 2

// Flush calls emit with what has been left over, if there is anything. It belongs at the end of each series.
func (e *ChunkEncoder) Flush(emit func(Chunk) error) error {
	if e.samples == 0 {
		return nil
	}
	e.samples = 0
	c := Chunk{MinT: e.minT, MaxT: e.maxT, Encoding: e.encoding}
	if e.encoding == chunkenc.EncXOR {
		c.Data = e.xor.bytes()
	} else {
		c.Data = e.chunk.Bytes()
	}
	return emit(c)
}

// Reset drops what has been left over.
func (e *ChunkEncoder) Reset() { e.samples = 0 }
