package query

import (
	"cmp"
	"context"
	"slices"
	"unsafe"
)

// buffered is what a block knows of the samples that are acknowledged and not in the data table yet.
type buffered struct {
	tsuids [][]byte // of the members of the plan
	rows   []bufferedRow
	slabs  slabs // their keys and points
}

// bufferedRow is a row of which points are buffered.
type bufferedRow struct {
	member, head int // of the plan
	base         uint32
	group        int
	key, points  []byte // points is a point list
}

// compare orders rows as their keys do, which are longer to compare.
func (r bufferedRow) compare(o bufferedRow) int {
	return cmp.Or(cmp.Compare(r.head, o.head), cmp.Compare(r.base, o.base), cmp.Compare(r.member, o.member))
}

const bufferedBytes = 2 * int64(unsafe.Sizeof(bufferedRow{}))

// readBuffered asks for the buffered points of the block's rows. That comes before the store is read: what is flushed
// between the two is then met twice, and not missed. Memory is taken before points are copied. Where that would have to
// wait, the points are counted and not copied; then it waits for as much memory as was lacking, and asks again. So
// whoever has the points is not held up.
func (b *block) readBuffered(ctx context.Context, s *set) (warnings []error, err error) {
	b.buffered.tsuids = b.buffered.tsuids[:0]
	for _, m := range b.members {
		b.buffered.tsuids = append(b.buffered.tsuids, m.tsuid)
	}
	schema := s.q.Settings.Schema
	for lacking := int64(0); ; {
		b.buffered.rows = b.buffered.rows[:0]
		b.buffered.slabs.reset()
		base := b.plan.bytes() + int64(b.buffered.slabs.bytes)
		if err := b.setTo(ctx, base+lacking); err != nil || s.q.Buffer == nil || b.begin == b.end {
			return warnings, err
		}
		spare := lacking
		lacking = 0
		take := func(bytes int64) bool {
			if bytes <= spare {
				spare -= bytes
				return true
			}
			return b.tryTake(ctx, bytes)
		}
		from, to := s.hours[b.begin], s.hours[b.end-1]
		warnings = s.q.Buffer.Buffered(ctx, b.buffered.tsuids, from, to, func(i int, base uint32, points []byte) {
			if !s.overlap(base) {
				return
			}
			m := &b.members[i]
			n := len(m.row) + len(points)
			if lacking > 0 || !take(bufferedBytes+int64(b.buffered.slabs.growth(n))) {
				lacking += bufferedBytes + int64(n)
				return
			}
			copied := append(append(b.buffered.slabs.make(n), m.row...), points...)
			key := copied[:len(m.row):len(m.row)]
			schema.SetBaseTime(key, base)
			b.buffered.rows = append(b.buffered.rows, bufferedRow{i, m.head, base, m.group, key, copied[len(m.row):]})
		})
		if lacking == 0 {
			slices.SortStableFunc(b.buffered.rows, bufferedRow.compare)
			return warnings, nil
		}
		lacking += int64(len(b.buffered.rows))*bufferedBytes + slabBytes
	}
}
