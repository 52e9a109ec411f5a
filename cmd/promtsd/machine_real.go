//go:build !torture

package main

import "time"

func newMachine() machine { return machine{now: time.Now} }

// dropEvery is how often old samples are looked for. They are dropped by the hour.
const dropEvery = 10 * time.Minute
