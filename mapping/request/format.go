package request

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/promtsd/promtsd/mapping"
)

// MaxFormatted is about how many bytes of labels a message shows.
const MaxFormatted = 200

// FormatSeries renders label bytes for a message, as name{label="value"}, cut off after some 200 bytes. Of bad bytes it
// shows what can be read.
func FormatSeries(labelBytes []byte) string {
	metric := ""
	_ = ParseLabels(labelBytes, func(name, value []byte) error {
		if string(name) == "__name__" {
			metric = clip(string(value))
		}
		return nil
	})
	return mapping.FormatSeries(strings.ToValidUTF8(metric, "\uFFFD"), func(yield func(name, value string) bool) {
		length := 0
		_ = ParseLabels(labelBytes, func(n, v []byte) error {
			if string(n) == "__name__" {
				return nil
			}
			name, value := clip(strings.ToValidUTF8(string(n), "\uFFFD")), clip(string(v))
			if length += len(name) + len(value); !yield(name, value) || length >= MaxFormatted {
				return errStop
			}
			return nil
		})
	})
}

var errStop = errors.New("enough was read")

func clip(s string) string {
	if len(s) <= MaxFormatted {
		return s
	}
	n := MaxFormatted
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
