package promstore

import (
	"context"
	"errors"
	"slices"
	"unsafe"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/query/budget"
)

// errClosed is the error of a set whose querier was closed before it began.
var errClosed = errors.New("select series: the querier is closed")

// set reads one series after the other from a query.SeriesSet into memory. It begins to read at its first Next: the
// engine makes the sets of all selectors of a query before it reads any, and each reads ahead.
type set struct {
	q             *querier
	ctx           context.Context
	account       *budget.Account
	mint, maxt    int64
	labelsOnly    bool
	windows       *query.Windows // chunks beside them are not kept
	result        result         // what the engine will make of a series
	again         bool           // it has begun again, with the sample before each window, for native histograms
	matchers      []*labels.Matcher
	limit         int // series; 0: any number
	shard, shards uint64

	inner    query.SeriesSet // nil before begin, and if it failed
	begun    bool
	ended    bool
	given    int
	current  *series
	last     labels.Labels // of the series given last
	err      error
	warnings annotations.Annotations

	extent  extent // of the samples of the series being read
	window  int64  // bytes taken for the largest window
	encoder query.ChunkEncoder
	pieces  []piece // of the series being read
	slab    []byte  // what chunks are cut from
}

// piece is a chunk of the series being read.
type piece struct {
	minT, maxT int64
	encoding   chunkenc.Encoding
	data       []byte
}

const (
	slabBytes = 64 << 10

	// What a series and a chunk cost besides labels and encoded samples.
	seriesBytes = int(unsafe.Sizeof(series{}))
	chunkBytes  = int(unsafe.Sizeof(chunks.Meta{}) + unsafe.Sizeof(chunkenc.XORChunk{}) + unsafe.Sizeof(piece{}))

	// answerTimes is how many times as much memory as labels themselves an answer takes that is made of labels alone.
	answerTimes = 4
)

// begin selects the series.
func (s *set) begin() {
	s.begun = true
	if s.mint > s.maxt {
		s.ended = true
		return
	}
	var inner query.SeriesSet
	var err error
	switch {
	case s.labelsOnly && s.shards == 0:
		inner, err = s.q.source.Series(s.ctx, s.mint, s.maxt, s.limit, s.matchers)
	case s.labelsOnly: // any series may be of another shard
		inner, err = s.q.source.Series(s.ctx, s.mint, s.maxt, 0, s.matchers)
	case s.again:
		inner, err = s.q.source.SelectWindows(s.ctx, s.mint, s.maxt, s.windows.WithBefore(), s.matchers)
	default:
		inner, err = s.q.source.SelectWindows(s.ctx, s.mint, s.maxt, s.windows, s.matchers)
	}
	if err != nil {
		s.err, s.ended = err, true
		return
	}
	s.inner = inner
	if s.warnings.Merge(warningsOf(inner)); !s.q.enter(s) {
		inner.Close()
		s.err, s.ended = errClosed, true
	}
}

// end closes the inner set. Its warnings are asked for again: there may be more than at the beginning.
func (s *set) end(err error) {
	s.err, s.ended, s.current = err, true, nil
	s.warnings.Merge(warningsOf(s.inner))
	if s.q.leave(s) {
		s.inner.Close()
	}
	s.slab, s.pieces = nil, nil
}

func (s *set) Next() bool {
	if !s.begun {
		s.begin()
	}
	if s.ended {
		return false
	}
	for s.limit <= 0 || s.given < s.limit {
		var err error
		if s.inner.Next() {
			ls := s.inner.Labels()
			if s.shards > 0 && labels.StableHash(ls)%s.shards != s.shard {
				continue
			}
			if s.again && s.given > 0 && labels.Compare(ls, s.last) <= 0 {
				continue // it was given before the set began again
			}
			var current *series
			if current, err = s.read(ls); err == nil {
				s.current, s.last = current, ls
				s.given++
				return true
			}
		} else if err = s.inner.Err(); err == nil {
			break
		}
		if !errors.Is(err, query.ErrHistogram) || s.again {
			s.end(err)
			return false
		}
		if s.beginAgain(); s.ended {
			return false
		}
	}
	s.end(nil)
	return false
}

// beginAgain begins again with the samples before windows, for the series that are still to be given.
func (s *set) beginAgain() {
	s.warnings.Merge(warningsOf(s.inner))
	if s.q.leave(s) {
		s.inner.Close()
	}
	s.encoder.Reset()
	s.again = true
	s.begin()
}

// read takes the samples of the inner set's series.
func (s *set) read(ls labels.Labels) (*series, error) {
	size := seriesBytes + int(ls.ByteSize())
	if s.labelsOnly {
		size += answerTimes * int(ls.ByteSize())
	}
	if err := s.take(size); err != nil {
		return nil, err
	}
	out := &series{labels: ls}
	if s.labelsOnly {
		return out, nil
	}
	s.pieces, s.extent = s.pieces[:0], extent{}
	for p := s.inner.Points(); p != nil; p = s.inner.Points() {
		s.extent.add(p)
		if err := s.encoder.Encode(p, s.keep); err != nil {
			return nil, err
		}
	}
	size = s.result.bytes(ls, s.extent)
	if window := s.result.windowBytes(s.extent); window > s.window {
		size += int(window - s.window)
		s.window = window
	}
	if err := s.take(size); err != nil {
		return nil, err
	}
	// An error inside a series ends its points like their end does.
	if err := s.inner.Err(); err != nil {
		return nil, err
	}
	if err := s.encoder.Flush(s.keep); err != nil {
		return nil, err
	}
	xor := make([]chunkenc.XORChunk, len(s.pieces))
	out.chunks = make([]chunks.Meta, len(s.pieces))
	for i, p := range s.pieces {
		out.chunks[i] = chunks.Meta{Chunk: &xor[i], MinTime: p.minT, MaxTime: p.maxT}
		if p.encoding == chunkenc.EncXOR {
			xor[i].Reset(p.data)
			continue
		}
		histograms, err := chunkenc.FromData(p.encoding, p.data)
		if err != nil {
			return nil, err
		}
		out.chunks[i].Chunk = histograms
	}
	return out, nil
}

// take takes memory until the querier is closed.
func (s *set) take(bytes int) error {
	err := s.account.Take(s.ctx, int64(bytes))
	if err == nil {
		s.q.taken.Add(int64(bytes))
	}
	return err
}

// keep copies a chunk of the current series.
func (s *set) keep(c query.Chunk) error {
	if !s.windows.Overlap(c.MinT, c.MaxT) {
		return nil
	}
	n := len(c.Data)
	if err := s.take(chunkBytes + n); err != nil {
		return err
	}
	if cap(s.slab)-len(s.slab) < n {
		s.slab = make([]byte, 0, max(slabBytes, n))
	}
	at := len(s.slab)
	s.slab = append(s.slab, c.Data...)
	s.pieces = append(s.pieces, piece{c.MinT, c.MaxT, c.Encoding, slices.Clip(s.slab[at:])})
	return nil
}

func (s *set) Err() error                        { return s.err }
func (s *set) Warnings() annotations.Annotations { return s.warnings }

type sampleSet struct{ *set }

func (s sampleSet) At() storage.Series { return s.current }

type chunkSet struct{ *set }

func (s chunkSet) At() storage.ChunkSeries { return chunkSeries{s.current} }
