package query

import (
	"fmt"

	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtsd/promtsd/mapping"
)

// MaxChunkSamples is the number of samples at which a chunk is cut, which is where Prometheus cuts its own.
const MaxChunkSamples = 120

// Chunk is a run of samples of one series in Prometheus's XOR encoding (chunkenc.EncXOR): at least one sample, the first
// at MinT and the last at MaxT, in milliseconds since 1970.
type Chunk struct {
	MinT, MaxT int64
	Data       []byte
}

// ChunkEncoder turns the samples of one series after the other into chunks. The zero value is ready. It keeps its memory
// and serves one caller at a time.
type ChunkEncoder struct {
	chunk      *chunkenc.XORChunk
	appender   chunkenc.Appender
	samples    int // in the chunk
	minT, maxT int64
}

// Encode adds a run of samples and calls emit with each chunk that becomes full. The rest stays for the next run or
// Flush. The data of a chunk is valid until emit returns; an error from emit ends the call, and Reset must follow.
func (e *ChunkEncoder) Encode(p *mapping.Points, emit func(Chunk) error) error {
	for i, t := range p.T {
		if e.samples == 0 {
			if err := e.begin(t); err != nil {
				return err
			}
		}
		e.appender.Append(0, t, p.V[i])
		e.maxT = t
		if e.samples++; e.samples == MaxChunkSamples {
			if err := e.Flush(emit); err != nil {
				return err
			}
		}
	}
	return nil
}

// Flush calls emit with what has been left over, if there is anything. It belongs at the end of each series.
func (e *ChunkEncoder) Flush(emit func(Chunk) error) error {
	if e.samples == 0 {
		return nil
	}
	e.samples = 0
	return emit(Chunk{MinT: e.minT, MaxT: e.maxT, Data: e.chunk.Bytes()})
}

// Reset drops what has been left over.
func (e *ChunkEncoder) Reset() { e.samples = 0 }

func (e *ChunkEncoder) begin(t int64) (err error) {
	if e.chunk == nil {
		e.chunk = chunkenc.NewXORChunk()
	} else {
		header := e.chunk.Bytes()[:2]
		header[0], header[1] = 0, 0
		e.chunk.Reset(header)
	}
	if e.appender, err = e.chunk.Appender(); err != nil {
		return fmt.Errorf("begin a chunk at %d ms: %w", t, err)
	}
	e.minT = t
	return nil
}
