package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zlib"
)

// Compression is how cell blocks of a connection are compressed, in both directions. Gzip and Zlib are plain streams.
// Snappy has Hadoop's block format, in which the chunks of a block together hold as many bytes as the block announces:
//
//	+--------------+------------+-------------------+------------+-------------------+
//	| uncompressed | compressed | raw snappy        | compressed | raw snappy        |  next block ...
//	| 4            | 4          | compressed        | 4          | compressed        |
//	+--------------+------------+-------------------+------------+-------------------+
type Compression uint8

// Compressions. Gzip and Zlib need nothing on the server's side, Snappy its library.
const (
	NoCompression Compression = iota
	Gzip
	Zlib
	Snappy
)

// snappyChunk bounds the plain bytes of a chunk. Hadoop reads chunks into buffers of 256 KiB
// (io.compression.codec.snappy.buffersize), and fails on one that does not fit.
const snappyChunk = 128 << 10

// Class is the Hadoop codec that a connection header names, empty for NoCompression.
func (c Compression) Class() string {
	switch c {
	case Gzip:
		return "org.apache.hadoop.io.compress.GzipCodec"
	case Zlib:
		return "org.apache.hadoop.io.compress.DefaultCodec"
	case Snappy:
		return "org.apache.hadoop.io.compress.SnappyCodec"
	default:
		return ""
	}
}

// Compress appends the block that is the concatenation of pieces to dst, compressed.
func (c Compression) Compress(dst []byte, pieces ...[]byte) ([]byte, error) {
	switch c {
	case Gzip, Zlib:
		return c.deflate(dst, pieces)
	case Snappy:
		return snappyBlocks(dst, pieces), nil
	default:
		for _, p := range pieces {
			dst = append(dst, p...)
		}
		return dst, nil
	}
}

// Decompress appends the plain bytes of block to dst. It is an error when they are more than limit.
func (c Compression) Decompress(dst, block []byte, limit int) ([]byte, error) {
	switch c {
	case Gzip, Zlib:
		return c.inflate(dst, block, limit)
	case Snappy:
		return snappyPlain(dst, block, limit)
	default:
		if len(block) > limit {
			return nil, tooLarge(limit)
		}
		return append(dst, block...), nil
	}
}

func tooLarge(limit int) error {
	return fmt.Errorf("decompress cell block: %w: more than %d bytes", ErrMalformed, limit)
}

func (c Compression) deflate(dst []byte, pieces [][]byte) ([]byte, error) {
	out := bytes.NewBuffer(dst)
	var w io.WriteCloser = zlib.NewWriter(out)
	if c == Gzip {
		w = gzip.NewWriter(out)
	}
	for _, p := range pieces {
		if _, err := w.Write(p); err != nil {
			return nil, fmt.Errorf("compress cell block: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compress cell block: %w", err)
	}
	return out.Bytes(), nil
}

func (c Compression) inflate(dst, block []byte, limit int) ([]byte, error) {
	var r io.ReadCloser
	var err error
	if c == Gzip {
		r, err = gzip.NewReader(bytes.NewReader(block))
	} else {
		r, err = zlib.NewReader(bytes.NewReader(block))
	}
	if err != nil {
		return nil, fmt.Errorf("decompress cell block: %w: %w", ErrMalformed, err)
	}
	out := bytes.NewBuffer(dst)
	n, err := out.ReadFrom(io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return nil, fmt.Errorf("decompress cell block: %w: %w", ErrMalformed, err)
	}
	if n > int64(limit) {
		return nil, tooLarge(limit)
	}
	return out.Bytes(), nil
}

// snappyBlocks makes a block of one chunk from every snappyChunk bytes of a piece.
func snappyBlocks(dst []byte, pieces [][]byte) []byte {
	var chunk []byte
	for _, p := range pieces {
		for len(p) > 0 {
			part := p[:min(len(p), snappyChunk)]
			p = p[len(part):]
			chunk = snappy.Encode(chunk[:cap(chunk)], part)
			dst = binary.BigEndian.AppendUint32(dst, uint32(len(part)))
			dst = binary.BigEndian.AppendUint32(dst, uint32(len(chunk)))
			dst = append(dst, chunk...)
		}
	}
	return dst
}

func snappyPlain(dst, block []byte, limit int) ([]byte, error) {
	limit += len(dst)
	for len(block) > 0 {
		size, rest, err := takeLength(block)
		if err != nil {
			return nil, err
		}
		block = rest
		for end := len(dst) + size; len(dst) < end; {
			n, rest, err := takeLength(block)
			if err != nil {
				return nil, err
			}
			if n > len(rest) {
				return nil, fmt.Errorf("decompress cell block: %w: chunk of %d bytes, %d left", ErrMalformed, n,
					len(rest))
			}
			chunk := rest[:n]
			block = rest[n:]
			plain, err := snappy.DecodedLen(chunk)
			if err != nil || plain > end-len(dst) || plain == 0 {
				return nil, fmt.Errorf("decompress cell block: %w: bad snappy chunk of %d bytes", ErrMalformed, n)
			}
			if len(dst)+plain > limit {
				return nil, tooLarge(limit)
			}
			if dst, err = appendSnappy(dst, chunk, plain); err != nil {
				return nil, err
			}
		}
	}
	return dst, nil
}

// maxSnappyRatio is beyond what snappy's format can reach (64 bytes from a copy of 3); a chunk that announces more is
// not given the memory.
const maxSnappyRatio = 64

func appendSnappy(dst, chunk []byte, plain int) ([]byte, error) {
	if plain > maxSnappyRatio*len(chunk) {
		return nil, fmt.Errorf("decompress cell block: %w: snappy chunk of %d bytes announces %d", ErrMalformed,
			len(chunk), plain)
	}
	dst = reserve(dst, plain)
	out, err := snappy.Decode(dst[len(dst):len(dst)+plain], chunk)
	if err != nil {
		return nil, fmt.Errorf("decompress cell block: %w: %w", ErrMalformed, err)
	}
	return dst[:len(dst)+len(out)], nil
}

func takeLength(b []byte) (n int, rest []byte, err error) {
	if len(b) < 4 || binary.BigEndian.Uint32(b) > 1<<31-1 {
		return 0, nil, fmt.Errorf("decompress cell block: %w: bad length with %d bytes left", ErrMalformed, len(b))
	}
	return int(binary.BigEndian.Uint32(b)), b[4:], nil
}
