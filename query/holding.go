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

// giveBack gives all of it back. It may be called again.
func (h *holding) giveBack() {
	h.account.Give(h.bytes)
	*h = holding{}
}

const (
	pointBytes = 16 // of mapping.Points
	runBytes   = 2 * int64(unsafe.Sizeof(run{}))
	rowBytes   = int64(unsafe.Sizeof([]byte{}) + unsafe.Sizeof(0))
)

// hold takes what a block has planned from the account, and gives back what it held before.
func (b *block) hold(ctx context.Context) error {
	b.giveBack()
	return b.take(ctx, int64(len(b.patterns)+len(b.keys)+b.slabs.used*slabBytes)+int64(len(b.wanted))*rowBytes+
		int64(len(b.members))*int64(unsafe.Sizeof(member{}))+int64(len(b.held))*int64(unsafe.Sizeof(heldRow{})))
}
