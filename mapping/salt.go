package mapping

// Salt spreads the rows of a metric over regions. It is the number of a bucket, big-endian, and depends on the series
// alone, so that all hours of a series share a bucket:
//
//	bucket = |Arrays.hashCode(tsuid) rem buckets|
//
// where Arrays.hashCode is Java's over signed bytes, and rem is the remainder with the sign of the dividend. OpenTSDB
// lets the rows of global annotations, whose metric UID is all zero, keep salt 0.

// Bucket is the salt bucket of a series, 0 to SaltBuckets-1. Without salt it is 0.
func (s Schema) Bucket(tsuid []byte) int {
	if s.SaltWidth == 0 || allZero(tsuid[:min(s.MetricWidth, len(tsuid))]) {
		return 0
	}
	hash := int32(1)
	for _, c := range tsuid {
		hash = 31*hash + int32(int8(c))
	}
	// In 64 bits neither the remainder nor the sign change can overflow, whatever the number of buckets.
	bucket := int64(hash) % int64(s.SaltBuckets)
	if bucket < 0 {
		bucket = -bucket
	}
	return int(bucket)
}

// AppendSalt appends the bucket on SaltWidth bytes, which is what the row keys of a bucket begin with.
func (s Schema) AppendSalt(dst []byte, bucket int) []byte {
	for shift := 8 * (s.SaltWidth - 1); shift >= 0; shift -= 8 {
		dst = append(dst, byte(uint64(bucket)>>shift))
	}
	return dst
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
