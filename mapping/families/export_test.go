package families

// The bounds of a Writer.
const (
	MaxFamilies    = maxFamilies
	MaxBytes       = maxBytes
	SenderFamilies = senderFamilies
	SenderBytes    = senderBytes
)
