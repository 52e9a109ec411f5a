package promstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/query/budget"
)

// Appender stores write requests; ingest.Appender is one. It may be called by many goroutines at once.
type Appender interface {
	// Append makes the samples of req durable and readable. What can never be stored is in the result; an error means
	// that the whole request may be sent again.
	Append(ctx context.Context, req *request.Write) (request.Result, error)
}

// Appendable is a storage.AppendableV2 on the write path. An appender gathers samples and writes them at Commit as one
// request, with their exemplars and the metadata of their metric families. Samples may come in any order, and
// RejectOutOfOrder is not heeded; start timestamps are passed over.
//
// Samples that can never be stored do not keep the others from being stored: Commit then returns a *RefusedError. Any
// other error of Commit means that everything may be sent again. Exemplars that are refused are only counted, as
// Prometheus does.
type Appendable struct {
	Appender Appender
	// of the labels, samples and histograms of an appender, as they wait for Commit; 0: any number. Beyond, ErrTooLarge
	MaxBytes int
}

// AppenderV2 returns an appender, which serves one goroutine.
func (a Appendable) AppenderV2(ctx context.Context) storage.AppenderV2 {
	return &appender{ctx: ctx, to: a.Appender, maxBytes: a.MaxBytes}
}

// RefusedError says that samples of a request were refused for good; the others are stored.
type RefusedError struct {
	Result request.Result
}

// Error names how many samples were refused, and why the first few were.
func (e *RefusedError) Error() string {
	refused := 0
	for _, n := range e.Result.Refused {
		refused += n
	}
	texts := make([]string, len(e.Result.Examples))
	for i, example := range e.Result.Examples {
		texts[i] = example.Error()
	}
	return fmt.Sprintf("%d samples stored, %d refused: %s", e.Result.Written+e.Result.Histograms, refused,
		strings.Join(texts, "; "))
}

// Is makes it a storage.ErrOutOfBounds, by which Prometheus's handlers know what must not be sent again.
func (e *RefusedError) Is(target error) bool { return target == storage.ErrOutOfBounds }

type appender struct {
	ctx  context.Context
	to   Appender
	req  request.Write
	last labels.Labels // of the request's last series
	lastMetadata
	done bool

	bytes, maxBytes int
}

// What a series, and what a sample takes beside its bytes.
const (
	labelSetBytes = 128
	sampleBytes   = 16
)

// take counts bytes that the request grows by.
func (a *appender) take(n int) error {
	if a.bytes += n; a.maxBytes > 0 && a.bytes > a.maxBytes {
		return fmt.Errorf("%w: its labels and samples have more than %d bytes", budget.ErrTooLarge, a.maxBytes)
	}
	return nil
}

var errDone = errors.New("append samples: the appender was committed or rolled back")

func (a *appender) Append(
	ref storage.SeriesRef, ls labels.Labels, _, t int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram,
	opts storage.AppendV2Options,
) (storage.SeriesRef, error) {
	if a.done {
		return 0, errDone
	}
	r := &a.req
	if len(r.Series) == 0 || !labels.Equal(ls, a.last) {
		var raw []byte
		ls.Range(func(l labels.Label) { raw = request.AppendLabel(raw, l.Name, l.Value) })
		if err := a.take(labelSetBytes + 2*len(raw)); err != nil {
			return 0, err
		}
		a.last = ls.Copy()
		r.Series = append(r.Series, request.Series{Labels: raw, From: len(r.Samples), To: len(r.Samples)})
	}
	a.appendAttached(ls, opts)
	if h != nil || fh != nil {
		m := mapping.Histogram{Int: h, Float: fh}.Message(t)
		message, err := m.Marshal()
		if err != nil {
			return 0, fmt.Errorf("append histogram to %s: %w", ls, err)
		}
		if err := a.take(sampleBytes + len(message)); err != nil {
			return 0, err
		}
		r.Histograms = append(r.Histograms, request.Histogram{Series: len(r.Series) - 1, Message: message})
		return ref, nil
	}
	if err := a.take(sampleBytes); err != nil {
		return 0, err
	}
	r.Samples = append(r.Samples, request.Sample{T: t, V: v})
	r.Series[len(r.Series)-1].To++
	return ref, nil
}

func (a *appender) Commit() error {
	if a.done {
		return errDone
	}
	a.done = true
	result, err := a.to.Append(a.ctx, &a.req)
	if err != nil {
		return err
	}
	if len(result.Refused) > 0 {
		return &RefusedError{result}
	}
	return nil
}

func (a *appender) Rollback() error {
	a.done = true
	return nil
}
