package families

// MaxKnown is maxKnown.
const MaxKnown = maxKnown

// Known is how many families the Writer knows.
func (w *Writer) Known() int { return len(w.known) }
