package mapping_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// goldenPut is a point that OpenTSDB was sent. The value is what a float64 can hold of it.
type goldenPut struct {
	text   string
	metric string
	tags   map[string]string
	ms     int64
	value  float64
}

// puts are the accepted puts of input.txt, and the number of those that were not.
func (set *goldenSet) puts() (puts []goldenPut, refused int) {
	for i, line := range set.input {
		answer := ""
		if i+1 < len(set.input) {
			answer, _ = strings.CutPrefix(set.input[i+1], "# < ")
		}
		if text, ok := strings.CutPrefix(line, "T put "); ok {
			put, ok := parseTelnetPut(text)
			if !ok || strings.HasPrefix(answer, "put: ") {
				refused++
				continue
			}
			puts = append(puts, put)
		}
		if text, ok := strings.CutPrefix(line, "H POST /api/put"); ok {
			_, body, _ := strings.Cut(text, " ")
			accepted, n := parseHTTPPuts(body, answer)
			puts = append(puts, accepted...)
			refused += n
		}
	}
	return puts, refused
}

func parseTelnetPut(text string) (put goldenPut, ok bool) {
	words := strings.Split(text, " ")
	if len(words) < 4 {
		return put, false
	}
	tags := map[string]string{}
	for _, word := range words[3:] {
		key, value, _ := strings.Cut(word, "=")
		if word != "" {
			tags[key] = value
		}
	}
	return newGoldenPut("put "+text, words[0], strings.ReplaceAll(words[1], ".", ""), words[2], tags)
}

func newGoldenPut(text, metric, timestamp, value string, tags map[string]string) (put goldenPut, ok bool) {
	put = goldenPut{text: text, metric: metric, tags: tags}
	ms, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || ms <= 0 || metric == "" || len(tags) == 0 {
		return put, false
	}
	if put.ms = ms; ms < 1<<32 {
		put.ms *= 1000
	}
	put.value, ok = parseJavaNumber(value)
	return put, ok
}

var javaSuffix = regexp.MustCompile(`[fdFD]$`)

// parseJavaNumber reads a number as OpenTSDB does: without a point or exponent, it is an integer.
func parseJavaNumber(s string) (float64, bool) {
	if !strings.ContainsAny(s, ".eE") {
		i, err := strconv.ParseInt(s, 10, 64)
		return float64(i), err == nil
	}
	v, err := strconv.ParseFloat(javaSuffix.ReplaceAllString(s, ""), 64)
	return v, err == nil
}

// jsonPut is a point in an HTTP put; OpenTSDB takes strings for numbers and numbers for strings.
type jsonPut struct {
	Metric    string
	Timestamp json.RawMessage
	Value     json.RawMessage
	Tags      map[string]json.RawMessage
}

func parseHTTPPuts(body, answer string) (puts []goldenPut, refused int) {
	code, answerBody, _ := strings.Cut(answer, " ")
	var result struct {
		Failed int
		Errors []struct{ Datapoint jsonPut }
	}
	_ = json.Unmarshal([]byte(answerBody), &result) // answers of another form say of no point that it was refused
	points := decodePoints(body)
	if code != "200" && code != "204" && result.Failed == 0 || result.Failed > len(result.Errors) {
		return nil, len(points)
	}
	bad := map[string]bool{}
	for _, e := range result.Errors {
		if put, ok := e.Datapoint.put(); ok {
			bad[put.text] = true
		}
	}
	for _, p := range points {
		if put, ok := p.put(); ok && !bad[put.text] {
			puts = append(puts, put)
		} else {
			refused++
		}
	}
	return puts, refused
}

// decodePoints reads the first JSON value, as OpenTSDB does.
func decodePoints(body string) (points []jsonPut) {
	var first json.RawMessage
	if json.NewDecoder(strings.NewReader(body)).Decode(&first) != nil {
		return nil
	}
	if !bytes.HasPrefix(bytes.TrimSpace(first), []byte("[")) {
		first = json.RawMessage("[" + string(first) + "]")
	}
	if json.Unmarshal(first, &points) != nil {
		return nil
	}
	return points
}

func (p jsonPut) put() (goldenPut, bool) {
	tags := map[string]string{}
	for key, value := range p.Tags {
		tags[key] = unquote(value)
	}
	timestamp, _, _ := strings.Cut(unquote(p.Timestamp), ".")
	text := fmt.Sprint("http put ", p.Metric, " ", timestamp, " ", unquote(p.Value), " ", tags)
	return newGoldenPut(text, p.Metric, timestamp, unquote(p.Value), tags)
}

func unquote(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}
