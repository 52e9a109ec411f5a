package request

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxFormatted is about how many bytes of labels a message shows.
const MaxFormatted = 200

// FormatSeries renders label bytes for a message, as name{label="value"}, cut off after some 200 bytes.
func FormatSeries(labelBytes []byte) string {
	var name string
	var rest strings.Builder
	_ = ParseLabels(labelBytes, func(n, v []byte) error { // what can be read of bad bytes is shown
		switch {
		case string(n) == "__name__":
			name = clip(string(v))
		case rest.Len() < MaxFormatted:
			if rest.Len() > 0 {
				rest.WriteString(", ")
			}
			fmt.Fprintf(&rest, "%s=%q", clip(strings.ToValidUTF8(string(n), "\uFFFD")), clip(string(v)))
		}
		return nil
	})
	return strings.ToValidUTF8(name, "\uFFFD") + "{" + rest.String() + "}"
}

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
