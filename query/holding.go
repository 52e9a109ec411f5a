package query

import (
	"context"
	"unsafe"

	"github.com/promtsd/promtsd/query/budget"
)

// holding is memory that one part of a query holds, of the query's account.
type holding struct {
	account *budget.Account
	bytes   int64
}

// take adds to it.
func (h *holding) take(ctx context.Context, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	if h.account == nil {
		h.account = budget.From(ctx)
	}
	err := h.account.Take(ctx, bytes)
	if err == nil {
		h.bytes += bytes
	}
	return err
}

// tryTake adds to it, unless that would have to wait.
func (h *holding) tryTake(ctx context.Context, bytes int64) bool {
	if h.account == nil {
		h.account = budget.From(ctx)
	}
	ok := h.account.TryTake(bytes)
	if ok {
		h.bytes += bytes
	}
	return ok
}

// become makes it so many.
func (h *holding) become(ctx context.Context, bytes int64) error {
	if bytes < h.bytes {
		h.account.Give(h.bytes - bytes)
		h.bytes = bytes
		return nil
	}
	return h.take(ctx, bytes-h.bytes)
}

// giveBack gives all of it back. It may be called again.
func (h *holding) giveBack() {
	h.account.Give(h.bytes)
	*h = holding{}
}

const (
	pointBytes = 16 // of mapping.Points
	runBytes   = 2 * int64(unsafe.Sizeof(run{}))
	rowBytes   = int64(unsafe.Sizeof([]byte{}) + unsafe.Sizeof(0))
	heldBytes  = 2 * int64(unsafe.Sizeof(heldRow{}))
)

// planned is what a block holds but for held rows and samples.
func (b *block) planned() int64 {
	return int64(len(b.patterns)+len(b.keys)+b.slabs.bytes) + int64(len(b.wanted))*rowBytes +
		int64(len(b.members))*int64(unsafe.Sizeof(member{}))
}
