//go:build !unix

package main

func restrictFiles() {}
