// Package query is the read path: matchers and a time range become series, the series a plan of store calls, and the
// rows of the data table samples again.
//
// A Querier asks the index for the series that match, and returns a SeriesSet. The set reads block by block, one block
// ahead of its consumer. A block goes through four steps:
//
//	extent    which groups of series and which hours it is of
//	plan      the rows that there may be, and for the rows of each metric the cheaper method: gets or a scan
//	tasks     parts of the plan; each is one call of the store, by one of a few goroutines
//	result    the samples in the order of series and time
//
// Before the tasks the Buffer is asked for samples that are not in the store yet.
//
// A Querier is safe for concurrent use; a SeriesSet belongs to one goroutine. The package has no locks: a block belongs
// to the goroutine that reads it until that has sent it to the set. Memory is taken from the account of the context
// (package budget) before it is used, and taking it may wait; the function given to Buffer.Buffered does not wait.
package query

import (
	"errors"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtsd/promtsd/mapping"
)

// ErrLimit marks a query that asks for more than a limit allows; the text names the limit and its flag.
var ErrLimit = errors.New("query limit exceeded")

// ErrHistogram ends a set of SelectWindows that meets a native histogram: whether its count began anew is told by the
// one before it, which may be one that is left out. SelectWindows has to be asked again, with Windows.WithBefore.
var ErrHistogram = errors.New("native histogram in a window")

// SeriesSet iterates over series in the order of their labels, and over the samples of each in runs. It is not safe for
// concurrent use. Close must be called, and may be called at any moment; it stops what still runs.
type SeriesSet interface {
	// Next moves to the next series that has samples in the range. False means the end, or an error: see Err.
	Next() bool
	// Labels are those of the current series.
	Labels() labels.Labels
	// Points returns the next run of samples of the current series, inside the range, ascending, without repeats and
	// not empty; nil means the end of the series, or an error: see Err. It is valid until the next call.
	Points() *mapping.Points
	// Err is what ended the iteration early, nil if nothing did.
	Err() error
	// Warnings say, when the iteration is over, which samples may be missing and why.
	Warnings() []error
	// Close releases the set.
	Close()
}
