package wire

import (
	"fmt"

	"github.com/promtsd/promtsd/mapping"
)

// The forms of a journaled body (mapping.WriteRequest.Form): the block that a sender sent, by its protocol.
// Others are mapping's.
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

// Decode inflates a block and fills req from it, as it was done when the block came. The labels point into memory that
// the next call uses again. mapping.ErrNewer says that the form is not known.
func (d *BlockDecoder) Decode(form byte, block []byte, req *mapping.WriteRequest) error {
	decode := d.decoder.DecodeV1
	switch form {
	case FormV1:
	case FormV2:
		decode = d.decoder.DecodeV2
	default:
		return fmt.Errorf("%w: form %d of its body is not known", mapping.ErrNewer, form)
	}
	var err error
	if d.content, err = Inflate(d.content, block, maxBlockContent); err == nil {
		_, err = decode(d.content, req)
	}
	return err
}
