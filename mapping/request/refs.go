package request

import "encoding/binary"

// LabelsOf returns the label bytes of the series at a position. Those of a series that is told by references are made
// when they are asked for first.
func (r *Write) LabelsOf(series int) []byte {
	s := &r.Series[series]
	if s.Labels == nil && s.RefsFrom < s.RefsTo {
		start := len(r.Scratch)
		r.Scratch = r.AppendLabels(r.Scratch, r.Refs[s.RefsFrom:s.RefsTo])
		s.Labels = r.Scratch[start:len(r.Scratch):len(r.Scratch)]
	}
	return s.Labels
}

// AppendLabels appends the label bytes that references make. Each must be one of the symbols.
func (r *Write) AppendLabels(dst []byte, refs []uint32) []byte {
	for ; len(refs) > 0; refs = refs[2:] {
		dst = AppendSymbols(dst, r.Symbols[refs[0]], r.Symbols[refs[1]])
	}
	return dst
}

// AppendSymbols is AppendLabel for a name and a value that have their lengths before them already.
func AppendSymbols(dst, name, value []byte) []byte {
	dst = append(dst, 0x0a)
	dst = binary.AppendUvarint(dst, uint64(2+len(name)+len(value)))
	dst = append(dst, 0x0a)
	dst = append(dst, name...)
	dst = append(dst, 0x12)
	return append(dst, value...)
}

// PairBytes is the most that AppendSymbols appends beside a name and a value.
const PairBytes = 3 + binary.MaxVarintLen32

// LabelBytes is how many label bytes the references of a series make, or a little more. Each must be one of the
// symbols.
func (r *Write) LabelBytes(refs []uint32) int {
	n := len(refs) / 2 * PairBytes
	for _, ref := range refs {
		n += len(r.Symbols[ref])
	}
	return n
}
