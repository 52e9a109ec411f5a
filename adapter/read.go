package adapter

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/promtsd/promtsd/adapter/wire"
	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/query/budget"
)

// readBuffers is the memory of one read request, to be used again.
type readBuffers struct {
	samples wire.SamplesResponse
	out     *bufio.Writer
	chunks  query.ChunkEncoder
}

// heldBack is how much of a streamed answer is held back, so that an error up to there can still become a status.
const heldBack = 256 << 10

// fullFrame is how many samples of a streamed answer are held without a whole frame: they take little memory.
const fullFrame = 1 << 15

func newReadBuffers(limits ReadLimits) *readBuffers {
	return &readBuffers{
		samples: wire.SamplesResponse{MaxBytes: limits.MaxResponseBytes},
		out:     bufio.NewWriterSize(nil, heldBack),
	}
}

// serveRead answers a remote-read request.
func (h *Handler) serveRead(w http.ResponseWriter, r *http.Request) {
	begin := h.config.Now()
	responseType, out := "unknown", &responseWriter{w: h.paceAnswer(w)}
	answer := h.admit(w, r)
	if answer == nil {
		answer = checkEncoding(r)
	}
	if answer == nil {
		responseType, answer = h.read(h.pace(w, r), out)
	}
	out.w.end()
	label := answer.label()
	switch {
	case out.failed:
		label = canceled
	case out.began && answer.code != http.StatusOK && label != canceled:
		label = aborted
	}
	h.metrics.readBytes.Add(float64(out.w.bytes))
	h.metrics.readRequests.WithLabelValues(responseType, label).Inc()
	h.metrics.readDuration.WithLabelValues(responseType).Observe(h.config.Now().Sub(begin).Seconds())
	if label == aborted || label == "500" {
		h.config.Logger.Error("remote read failed", "err", answer.text, "client", r.RemoteAddr)
	}
	switch {
	case !out.began:
		answer.send(w)
	case answer.code != http.StatusOK:
		// The status is gone. Breaking the connection is the only way to say that the answer is not whole.
		panic(http.ErrAbortHandler)
	}
}

// read reads the request, waits for its turn and writes the answer: a request that comes slowly has no turn.
func (h *Handler) read(r *http.Request, out *responseWriter) (responseType string, answer *reply) {
	account := h.config.Memory.Open()
	defer account.Close()
	ctx := budget.NewContext(r.Context(), account)
	held := h.inFlight.lease(r)
	defer held.release()
	body := bodyReader{limit: h.config.Read.MaxRequestBytes, flag: flagMaxReadRequestBytes, lease: held}
	block, answer := body.read(ctx, nil, r)
	if answer != nil {
		return "unknown", answer
	}
	h.metrics.readWaiting.Inc()
	err := h.reads.Enter(ctx, held.client)
	h.metrics.readWaiting.Dec()
	if err != nil {
		refused := replyToRead(ctx, fmt.Errorf("wait for other reads, %s allows %d: %w", flagMaxConcurrentReads,
			h.reads.Most(), err))
		return "unknown", &refused
	}
	defer h.reads.Leave(held.client)

	content, answer := body.inflate(nil, block)
	if answer != nil {
		return "unknown", answer
	}
	request, err := wire.ParseReadRequest(content)
	if err != nil {
		refused := replyToRead(ctx, err)
		return "unknown", &refused
	}
	h.metrics.readQueries.Add(float64(len(request.Queries)))

	buffers := h.responses.Get().(*readBuffers)
	defer h.responses.Put(buffers)
	if request.Type == wire.Streamed {
		err = h.streamChunks(ctx, buffers, request.Queries, out)
	} else {
		err = h.sendSamples(ctx, buffers, request.Queries, out)
	}
	if err != nil {
		failed := replyToRead(ctx, err)
		return string(request.Type), &failed
	}
	return string(request.Type), &reply{code: http.StatusOK}
}

// each calls f with the set once for each series of a query; f may take its points.
func (h *Handler) each(ctx context.Context, q wire.ReadQuery, f func(query.SeriesSet) error) error {
	if q.MinT > q.MaxT {
		return nil
	}
	set, err := h.config.Querier.Select(ctx, q.MinT, q.MaxT, q.LabelsOnly, q.Matchers)
	if err != nil {
		return err
	}
	defer set.Close()
	defer h.warn(set)
	for set.Next() {
		h.metrics.readSeries.Inc()
		if err := f(set); err != nil {
			return err
		}
		// An error inside a series ends its points like their end does.
		if err := errors.Join(set.Err(), ctx.Err()); err != nil {
			return err
		}
	}
	return set.Err()
}

// tellEvery is how often the log says that samples may be missing: every dashboard asks again and again.
const tellEvery = 10 * time.Second

// warn tells of samples that may be missing in an answer: the protocol has no place for that.
func (h *Handler) warn(set query.SeriesSet) {
	warnings := set.Warnings()
	if len(warnings) == 0 {
		return
	}
	h.metrics.readWarnings.Add(float64(len(warnings)))
	h.told.Do(func() {
		for _, w := range warnings {
			h.config.Logger.Warn("samples may be missing in the answer to a remote read", "err", w)
		}
	})
}

// sendSamples answers in the SAMPLES response type, which is whole before its first byte is sent, and in memory until
// then: deflated.
func (h *Handler) sendSamples(ctx context.Context, b *readBuffers, queries []wire.ReadQuery,
	out *responseWriter) error {
	samples := 0
	b.samples.Take = func(bytes int64) error { return budget.From(ctx).Take(ctx, bytes) }
	b.samples.Reset()
	defer b.samples.Reset()
	for _, q := range queries {
		b.samples.Query()
		err := h.each(ctx, q, func(set query.SeriesSet) error {
			if err := b.samples.Series(set.Labels()); err != nil {
				return err
			}
			for p := set.Points(); p != nil; p = set.Points() {
				if samples += p.Len(); samples > h.config.Read.MaxSamples {
					return fmt.Errorf("%w: exceeded sample limit (%d): ask for less, allow more by %s, or accept "+
						"STREAMED_XOR_CHUNKS", query.ErrLimit, h.config.Read.MaxSamples, flagMaxReadSamples)
				}
				if err := b.samples.Points(p); err != nil {
					return err
				}
			}
			return nil
		})
		if errors.Is(err, wire.ErrTooLarge) {
			return fmt.Errorf("%w by %s: ask for less, allow more, or accept STREAMED_XOR_CHUNKS", err, flagMaxResponseBytes)
		}
		if err != nil {
			return err
		}
	}
	deflated, err := b.samples.Finish()
	if err != nil {
		return err
	}
	size := 0
	for _, part := range deflated {
		size += len(part)
	}
	h.metrics.readSamples.Add(float64(samples))
	header := out.w.Header()
	header.Set("Content-Type", "application/x-protobuf")
	header.Set("Content-Encoding", "snappy")
	header.Set("Content-Length", strconv.Itoa(size))
	for _, part := range deflated {
		if _, err := out.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// streamChunks answers in the streamed response type: memory for a frame, however long the answer is.
func (h *Handler) streamChunks(ctx context.Context, b *readBuffers, queries []wire.ReadQuery,
	out *responseWriter) error {
	account := budget.From(ctx)
	if err := account.Take(ctx, heldBack); err != nil {
		return err
	}
	samples := 0
	out.header = func(header http.Header) {
		// Clients compare this as a string.
		header.Set("Content-Type", "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse")
	}
	b.out.Reset(out)
	defer b.out.Reset(nil)
	b.chunks.Reset()
	frames := wire.NewFrameWriter(b.out, wire.DefaultFrameBytes)
	defer func() { h.metrics.readFrames.Add(float64(frames.Frames())) }()
	emit := func(c query.Chunk) error { return frames.Chunk(c.MinT, c.MaxT, c.Encoding, c.Data) }
	for i, q := range queries {
		err := h.each(ctx, q, func(set query.SeriesSet) error {
			if err := frames.Series(i, set.Labels()); err != nil {
				return err
			}
			for p := set.Points(); p != nil; p = set.Points() {
				if err := b.chunks.Encode(p, emit); err != nil {
					return err
				}
				h.metrics.readSamples.Add(float64(p.Len()))
				before := samples
				if samples += p.Len(); before < fullFrame && samples >= fullFrame {
					if err := account.Take(ctx, 2*wire.DefaultFrameBytes); err != nil {
						return err
					}
				}
			}
			return b.chunks.Flush(emit)
		})
		if err != nil {
			return err
		}
	}
	if err := errors.Join(frames.Finish(), b.out.Flush()); err != nil {
		return err
	}
	_, err := out.Write(nil) // an answer without a frame has a status, too
	return err
}

// A responseWriter writes the body of a successful answer, which the client must accept in time.
type responseWriter struct {
	w      *pacedWriter
	header func(http.Header) // called before the first byte
	began  bool
	failed bool // the client did not take it
}

func (o *responseWriter) Write(p []byte) (int, error) {
	if !o.began {
		o.began = true
		if o.header != nil {
			o.header(o.w.Header())
		}
		o.w.WriteHeader(http.StatusOK)
	}
	n, err := o.w.Write(p)
	if err != nil {
		o.failed = true
		return n, fmt.Errorf("send answer: %w", err)
	}
	return n, nil
}
