package pebble

import "time"

// RunLength is a toy packing for the tests of the package's front.
var RunLength = runLength

// WaitForBackground waits until nothing works in the background, while nothing else is called.
func (s *Store) WaitForBackground() { s.commits.Wait() }

// WithHungAfter is the Config with another time after which a disk counts as hung.
func (c Config) WithHungAfter(d time.Duration) Config {
	c.hungAfter = d
	return c
}
