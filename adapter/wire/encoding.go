package wire

import (
	"fmt"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/request"
)

// The encodings of a journaled body (request.Write.Encoding): the block that a sender sent, by its protocol. Package
// request numbers the others.
const (
	EncodingV1 byte = 1 // remote write 1.0
	EncodingV2 byte = 2 // remote write 2.0
)

// A BlockDecoder reads blocks that were accepted before. It keeps its memory, and serves one caller at a time.
type BlockDecoder struct {
	decoder Decoder
	content []byte
}

// maxBlockContent bounds what a block may inflate to; no block that was accepted has more.
const maxBlockContent = 1 << 30

// Decode inflates a block and fills req from it, as it was done when the block came. The labels point into memory that
// the next call uses again. mapping.ErrNewer says that the encoding is not known.
func (d *BlockDecoder) Decode(encoding byte, block []byte, req *request.Write) error {
	decode := d.decoder.DecodeV1
	switch encoding {
	case EncodingV1:
	case EncodingV2:
		decode = d.decoder.DecodeV2
	default:
		return fmt.Errorf("%w: encoding %d of its body is not known", mapping.ErrNewer, encoding)
	}
	var err error
	if d.content, err = Inflate(d.content, block, maxBlockContent); err == nil {
		_, err = decode(d.content, req)
	}
	return err
}
