package wire

import (
	"fmt"

	"github.com/promtsd/promtsd/mapping"
)

// The forms of a journaled body (mapping.WriteRequest.Form): the block that a sender sent, by its protocol.
const (
	FormV1 byte = 1 // remote write 1.0
	FormV2 byte = 2 // remote write 2.0
)

// A BlockDecoder reads blocks that were accepted before. It keeps its memory, and serves one caller at a time.
type BlockDecoder struct {
	decoder Decoder
	content []byte
}

// maxBlockContent bounds what a block may inflate to; no block that was accepted has more.
const maxBlockContent = 1 << 30

// Decode inflates a block and fills req from it, as it was done when the block came. The labels point into memory that the
// next call uses again.
func (d *BlockDecoder) Decode(form byte, block []byte, req *mapping.WriteRequest) error {
	var err error
	if d.content, err = Inflate(d.content, block, maxBlockContent); err != nil {
		return err
	}
	switch form {
	case FormV1:
		_, err = d.decoder.DecodeV1(d.content, req)
	case FormV2:
		_, err = d.decoder.DecodeV2(d.content, req)
	default:
		err = fmt.Errorf("%w: form %d is not known: a newer promtsd wrote it", ErrMalformed, form)
	}
	return err
}
