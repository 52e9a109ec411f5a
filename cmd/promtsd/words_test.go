package main_test

import (
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// retired are private words for which the field has another. None is a part of an identifier, of a comment or of a
// document any more. DESIGN.md's glossary has the words to use.
var retired = map[string]string{
	"curve":      "delta-of-delta",
	"errand":     "read task",
	"frontier":   "checkpoint",
	"judge":      "decide; retry policy",
	"judged":     "decided",
	"lane":       "flush worker; connection slot",
	"recall":     "select from memory",
	"recalled":   "selected from memory",
	"remedy":     "action",
	"road":       "access path; buffered or write-through mode",
	"settle":     "commit; flush",
	"settled":    "committed; flushed",
	"shelf":      "postings",
	"shelves":    "postings",
	"turnedaway": "rejected",
	"verdict":    "decision",
}

// retiredNames are retired as parts of identifiers only: in a sentence they are plain English.
var retiredNames = map[string]string{
	"adoption": "takeover",
	"beat":     "revision",
	"beside":   "exemplars, metadata",
	"doubt":    "unknown outcome",
	"lot":      "series group",
	"seat":     "slot",
}

func TestWords_RetiredOnesAreGone(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var problems []string
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == ".git" || name == "testdata" || name == "node_modules"):
			return filepath.SkipDir
		case name == "words_test.go":
		case strings.HasSuffix(name, ".go"):
			problems = append(problems, goProblems(t, path)...)
		case strings.HasSuffix(name, ".md"):
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for i, line := range strings.Split(string(text), "\n") {
				problems = append(problems, wordProblems(fmt.Sprintf("%s:%d", path, i+1), line, false)...)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(problems)
	for _, p := range slices.Compact(problems) {
		t.Error(strings.TrimPrefix(p, root+"/"))
	}
}

// goProblems lists retired words in the identifiers and comments of a Go file.
func goProblems(t *testing.T, path string) (problems []string) {
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var s scanner.Scanner
	file := token.NewFileSet().AddFile(path, -1, len(src))
	s.Init(file, src, nil, scanner.ScanComments)
	for {
		pos, tok, text := s.Scan()
		switch tok {
		case token.EOF:
			return problems
		case token.IDENT, token.COMMENT:
			problems = append(problems, wordProblems(fmt.Sprintf("%s:%d", path, file.Line(pos)), text, tok == token.IDENT)...)
		}
	}
}

// wordProblems lists the retired words of a text, and what to say instead.
func wordProblems(where, text string, identifier bool) (problems []string) {
	for _, word := range wordsOf(text) {
		for _, base := range []string{word, strings.TrimSuffix(word, "s")} {
			say, ok := retired[base]
			if !ok && identifier {
				say, ok = retiredNames[base]
			}
			if ok {
				problems = append(problems, fmt.Sprintf("%s: %q: say %s", where, word, say))
				break
			}
		}
	}
	return problems
}

// wordsOf splits a text into its words, in lower case: identifiers at their capitals.
func wordsOf(text string) (words []string) {
	var word []rune
	end := func() {
		if len(word) > 0 {
			words = append(words, strings.ToLower(string(word)))
		}
		word = word[:0]
	}
	for _, r := range text {
		switch {
		case !unicode.IsLetter(r):
			end()
			continue
		case unicode.IsUpper(r) && len(word) > 0 && unicode.IsLower(word[len(word)-1]):
			end()
		}
		word = append(word, r)
	}
	end()
	return words
}

func TestWordsOf(t *testing.T) {
	got := wordsOf("The lastBeat of HTTPRoads, fooLot42seat")
	if want := []string{"the", "last", "beat", "of", "httproads", "foo", "lot", "seat"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
