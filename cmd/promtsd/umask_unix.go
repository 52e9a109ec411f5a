//go:build unix

package main

import "syscall"

// restrictFiles has all files that the process makes, the store's included, be read by its own user and group only.
func restrictFiles() { syscall.Umask(syscall.Umask(0) | 0o027) }
