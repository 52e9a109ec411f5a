//go:build cgo

package pebble

const usesC = true
