package promstore

import (
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// series is one series with its samples in chunks, ascending and without overlap. It does not change.
type series struct {
	labels labels.Labels
	chunks []chunks.Meta
}

func (s *series) Labels() labels.Labels { return s.labels }

// Iterator returns an iterator over the samples, which is the given one if it came from this package.
func (s *series) Iterator(used chunkenc.Iterator) chunkenc.Iterator {
	it, ok := used.(*iterator)
	if !ok {
		it = new(iterator)
	}
	it.Iterator, it.rest = exhausted, s.chunks
	return it
}

// chunkSeries is a series as its chunks.
type chunkSeries struct{ *series }

func (s chunkSeries) Iterator(chunks.Iterator) chunks.Iterator {
	return storage.NewListChunkSeriesIterator(s.chunks...)
}

// millis is a time in milliseconds. It has a name because go vet takes Seek(int64) for a misspelt io.Seeker.
type millis = int64

var exhausted = chunkenc.NewNopIterator()

// iterator walks over the samples of chunks. Its methods are those of the current chunk's iterator, but for Next and
// Seek, which go on to the next chunk.
type iterator struct {
	chunkenc.Iterator
	used chunkenc.Iterator // the current chunk's, to be used again for the next
	minT int64             // of the current chunk
	maxT int64             // of the current chunk
	rest []chunks.Meta     // the chunks after the current one

	// goesOn says that the first native histogram of the current chunk goes on counting where the one before it ended,
	// whether that is in the range or not. Prometheus's own iterators do not say so of any first one: they cannot know
	// that no chunk is missing.
	goesOn bool
}

func (it *iterator) Next() chunkenc.ValueType {
	for {
		if kind := it.Iterator.Next(); kind != chunkenc.ValNone || it.Err() != nil {
			return kind
		}
		if !it.nextChunk() {
			return chunkenc.ValNone
		}
	}
}

func (it *iterator) Seek(t millis) chunkenc.ValueType {
	if it.Iterator != exhausted && t <= it.maxT {
		return it.Iterator.Seek(t)
	}
	for len(it.rest) > 0 && it.rest[0].MaxTime < t {
		it.rest = it.rest[1:]
	}
	if !it.nextChunk() {
		return chunkenc.ValNone
	}
	return it.Iterator.Seek(t)
}

// nextChunk moves to before the first sample of the next chunk.
func (it *iterator) nextChunk() bool {
	if len(it.rest) == 0 {
		it.Iterator = exhausted
		return false
	}
	next := it.rest[0]
	it.used = next.Chunk.Iterator(it.used)
	it.Iterator, it.minT, it.maxT, it.rest = it.used, next.MinTime, next.MaxTime, it.rest[1:]
	counts, ok := next.Chunk.(interface {
		GetCounterResetHeader() chunkenc.CounterResetHeader
	})
	it.goesOn = ok && counts.GetCounterResetHeader() == chunkenc.NotCounterReset
	return true
}

func (it *iterator) AtHistogram(reuse *histogram.Histogram) (millis, *histogram.Histogram) {
	t, h := it.Iterator.AtHistogram(reuse)
	it.hint(t, &h.CounterResetHint)
	return t, h
}

func (it *iterator) AtFloatHistogram(reuse *histogram.FloatHistogram) (millis, *histogram.FloatHistogram) {
	t, h := it.Iterator.AtFloatHistogram(reuse)
	it.hint(t, &h.CounterResetHint)
	return t, h
}

func (it *iterator) hint(t millis, hint *histogram.CounterResetHint) {
	if it.goesOn && t == it.minT && *hint == histogram.UnknownCounterReset {
		*hint = histogram.NotCounterReset
	}
}
