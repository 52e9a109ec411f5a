package pebble

// RunLength is a toy packing for the tests of the package's front.
var RunLength = runLength

// WaitForBackground waits until nothing works in the background, while nothing else is called.
func (s *Store) WaitForBackground() { s.commits.Wait() }
