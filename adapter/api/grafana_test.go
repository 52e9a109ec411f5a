package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
)

// call is one call of testdata/grafana.txt.
type call struct {
	line               int
	method, path, form string
	status             int
	want               [][2]string // path into the answer, value or kind
}

// Every call of testdata/grafana.txt is answered with the status and in the shape that it needs.
func TestHandler_AnswersGrafana(t *testing.T) {
	h := newHandler(t, nil)
	for _, c := range readCalls(t, strings.NewReplacer(
		"{start}", seconds(dataStart), "{end}", seconds(dataEnd), "{now}", seconds(clock.UnixMilli()))) {
		t.Run(fmt.Sprintf("line %d %s %s", c.line, c.method, c.path), func(t *testing.T) {
			answer := do(h, c.method, c.path, c.form)
			if answer.Code != c.status {
				t.Fatalf("got status %d, want %d: %s", answer.Code, c.status, answer.Body)
			}
			if got := answer.Header().Get("Content-Type"); got != "application/json" {
				t.Errorf("got content type %q", got)
			}
			var content any
			if err := json.Unmarshal(answer.Body.Bytes(), &content); err != nil {
				t.Fatalf("%v: %s", err, answer.Body)
			}
			for _, w := range c.want {
				got, ok := at(content, w[0])
				if !ok || !is(got, w[1]) {
					t.Errorf("%s: got %v (%v), want %s, in %s", w[0], got, ok, w[1], answer.Body)
				}
			}
		})
	}
}

func seconds(ms int64) string { return strconv.FormatFloat(float64(ms)/1000, 'f', 3, 64) }

// do makes one request.
func do(h http.Handler, method, path, form string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(form))
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func readCalls(t *testing.T, times *strings.Replacer) (calls []call) {
	content, err := os.ReadFile("testdata/grafana.txt")
	if err != nil {
		t.Fatal(err)
	}
	var c call
	for i, line := range strings.Split(times.Replace(string(content)), "\n") {
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "= "):
			fields := strings.Split(line, " ")
			if c.status, err = strconv.Atoi(fields[1]); err != nil {
				t.Fatalf("line %d: %v", i+1, err)
			}
			for rest := strings.TrimPrefix(line, "= "+fields[1]+" "); rest != ""; {
				var path, want string
				path, rest, _ = strings.Cut(rest, " ")
				if quoted, err := strconv.QuotedPrefix(rest); err == nil {
					want, rest = quoted, strings.TrimPrefix(rest[len(quoted):], " ")
				} else {
					want, rest, _ = strings.Cut(rest, " ")
				}
				c.want = append(c.want, [2]string{path, want})
			}
			calls = append(calls, c)
			c = call{}
		case c.method == "":
			c.line = i + 1
			c.method, c.path, _ = strings.Cut(line, " ")
		default:
			c.form = line
		}
	}
	if len(calls) < 30 {
		t.Fatalf("read %d calls", len(calls))
	}
	return calls
}

// at follows a path of keys and positions into JSON.
func at(content any, path string) (any, bool) {
	for step := range strings.SplitSeq(path, ".") {
		switch c := content.(type) {
		case map[string]any:
			found, ok := c[step]
			if !ok {
				return nil, false
			}
			content = found
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(c) {
				return nil, false
			}
			content = c[i]
		default:
			return nil, false
		}
	}
	return content, true
}

// is says whether a value is what a call wants: of the kind, or the very value.
func is(got any, want string) bool {
	list, isList := got.([]any)
	object, isObject := got.(map[string]any)
	switch want {
	case "string":
		_, ok := got.(string)
		return ok
	case "number":
		_, ok := got.(float64)
		return ok
	case "list":
		return isList
	case "list+":
		return isList && len(list) > 0
	case "list0":
		return isList && len(list) == 0
	case "object":
		return isObject
	case "object0":
		return isObject && len(object) == 0
	}
	text, _ := json.Marshal(got)
	return string(text) == want
}
