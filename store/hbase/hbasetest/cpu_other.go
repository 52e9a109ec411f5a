//go:build !linux

package hbasetest

import "time"

// processorTime has no simple counterpart here.
func processorTime(int) (time.Duration, error) { return 0, nil }
