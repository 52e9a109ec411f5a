package wire

import (
	"bytes"
	"encoding/binary"
)

// MethodMulti takes a MultiRequest: for each of some regions, actions, of which each is one mutation or get of one row.
//
//	MultiRequest = { 1: RegionAction }* { 2: nonce group }
//	RegionAction = { 1: region } { 2: atomic } { 3: Action }*
//	Action       = { 1: index } ( { 2: mutation } | { 3: get } )
//
// The cells of all mutations stand in the cell block in the order of the actions. A server runs the region actions of
// a request one behind the other in one thread, so one request for each region is better. It counts actions, not
// cells: by default it complains in its log above MaxActions.
const MethodMulti = "Multi"

// MaxActions is the number of actions of a request above which servers complain (hbase.rpc.rows.warning.threshold).
const MaxActions = 5000

// BeginRegionAction opens a region's part of a MultiRequest; AppendGetAction or AppendMutationAction follow, and
// EndMessage with the returned mark closes it. With atomic, all of its mutations, which must be of one row, take effect
// together or not at all.
func BeginRegionAction(dst, region []byte, atomic bool) ([]byte, int) {
	dst, mark := BeginMessage(dst, 1)
	dst, at := BeginMessage(dst, 1)
	dst = EndMessage(AppendRegionSpecifier(dst, region), at)
	if atomic {
		dst = AppendBoolField(dst, 2, true)
	}
	return dst, mark
}

// AppendGetAction appends a get of row; selection is an encoded Selection. The result comes under the same index, which
// is unique within the region action.
func AppendGetAction(dst []byte, index int, row, selection []byte) []byte {
	dst, action := BeginMessage(dst, 3)
	dst = AppendUintField(dst, 1, uint64(index))
	dst, get := BeginMessage(dst, 3)
	dst = EndMessage(appendGet(dst, row, selection), get)
	return EndMessage(dst, action)
}

// AppendMutationAction appends a mutation, whose cells the caller appends to the block.
func AppendMutationAction(dst []byte, index int, m *Mutation) []byte {
	dst, action := BeginMessage(dst, 3)
	dst = AppendUintField(dst, 1, uint64(index))
	dst = AppendMessageField(dst, 2, m)
	return EndMessage(dst, action)
}

// AppendRegionCondition makes the region action that is open, an atomic one, depend on a condition (2.4 and later).
func AppendRegionCondition(dst []byte, c *Condition) []byte { return AppendMessageField(dst, 4, c) }

// AppendNonceGroup appends the nonce group that goes with the nonces of the mutations, behind the last region action.
func AppendNonceGroup(dst []byte, group uint64) []byte { return AppendUintField(dst, 2, group) }

// MutationBatch collects puts and deletes of one region. Adding a cell costs no allocation once the batch has grown;
// Reset keeps what it has grown to. Cells of one row added one behind the other share an action, which halves the work
// of the server. The zero value is empty and ready. It is not safe for concurrent use.
type MutationBatch struct {
	cells   []byte // the cell block
	actions []batchAction
	count   int
	rowAt   int // where the row of the last action stands in cells
	rowLen  int
}

// batchAction is an action: the cells from the end of the action before it to its own.
type batchAction struct {
	end   int // in cells
	count int32
	typ   MutationType
}

// Put adds a cell. The parts are in the bounds of AppendCell.
func (b *MutationBatch) Put(row []byte, family string, qualifier []byte, timestamp int64, value []byte) {
	b.begin(Put, row)
	b.cells = AppendCell(b.cells, row, family, qualifier, timestamp, CellPut, value)
	b.end()
}

// Delete adds the removal of all versions of a cell up to timestamp.
func (b *MutationBatch) Delete(row []byte, family string, qualifier []byte, timestamp int64) {
	b.begin(Delete, row)
	b.cells = AppendCell(b.cells, row, family, qualifier, timestamp, CellDeleteColumn, nil)
	b.end()
}

// begin makes the last action one that a cell of row can join.
func (b *MutationBatch) begin(typ MutationType, row []byte) {
	if n := len(b.actions); n > 0 && b.actions[n-1].typ == typ &&
		bytes.Equal(b.cells[b.rowAt:b.rowAt+b.rowLen], row) {
		return
	}
	b.actions = append(b.actions, batchAction{end: len(b.cells), typ: typ})
	b.rowAt, b.rowLen = len(b.cells)+rowOffset, len(row)
}

// rowOffset is where the row stands in a cell.
const rowOffset = cellPrefix + 4 + 4 + 2

func (b *MutationBatch) end() {
	last := &b.actions[len(b.actions)-1]
	last.end = len(b.cells)
	last.count++
	b.count++
}

// BatchAction is one action of a batch. Its slices point into the batch and are valid until that is reset.
type BatchAction struct {
	Type  MutationType
	Row   []byte
	Block []byte // its cells, as a cell block
	Cells int    // how many
}

// Action is the i-th action; its index in the request and the response is i.
func (b *MutationBatch) Action(i int) BatchAction {
	start := 0
	if i > 0 {
		start = b.actions[i-1].end
	}
	a := b.actions[i]
	block := b.cells[start:a.end:a.end]
	row := rowOffset + int(binary.BigEndian.Uint16(block[rowOffset-2:]))
	return BatchAction{Type: a.typ, Row: block[rowOffset:row:row], Block: block, Cells: int(a.count)}
}

// Add adds an action of another batch, as one action of its own.
func (b *MutationBatch) Add(a BatchAction) {
	b.rowAt, b.rowLen = len(b.cells)+rowOffset, len(a.Row)
	b.cells = append(b.cells, a.Block...)
	b.actions = append(b.actions, batchAction{end: len(b.cells), typ: a.Type, count: int32(a.Cells)})
	b.count += a.Cells
}

// Actions is the number of actions.
func (b *MutationBatch) Actions() int { return len(b.actions) }

// Cells is the number of cells.
func (b *MutationBatch) Cells() int { return b.count }

// Block is the cell block that goes with the batch's region action. It is valid until the batch is changed.
func (b *MutationBatch) Block() []byte { return b.cells }

// Reset empties the batch.
func (b *MutationBatch) Reset() {
	*b = MutationBatch{cells: b.cells[:0], actions: b.actions[:0]}
}

// AppendRegionAction appends the batch as a region's part of a MultiRequest; its Block goes into the cell block at the
// same place among those of other regions. The indices of its actions are 0, 1, ...
func (b *MutationBatch) AppendRegionAction(dst, region []byte, durability Durability) []byte {
	const most = 24 // bytes of an action: tags, lengths and three varints
	dst = reserve(dst, len(region)+16+most*len(b.actions))
	dst, mark := BeginRegionAction(dst, region, false)
	for i := range b.actions {
		a := &b.actions[i]
		mutation := 3 + uvarintLen(uint64(a.count))
		if durability != TableDurability {
			mutation += 2
		}
		dst = append(dst, 3<<3|typeBytes, byte(1+uvarintLen(uint64(i))+2+mutation), 1<<3|typeVarint)
		dst = binary.AppendUvarint(dst, uint64(i))
		dst = append(dst, 2<<3|typeBytes, byte(mutation), 2<<3|typeVarint, byte(a.typ))
		if durability != TableDurability {
			dst = append(dst, 6<<3|typeVarint, byte(durability))
		}
		dst = append(dst, 8<<3|typeVarint)
		dst = binary.AppendUvarint(dst, uint64(a.count))
	}
	return EndMessage(dst, mark)
}
