package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/metadata"

	"github.com/promtsd/promtsd/adapter/api"
	"github.com/promtsd/promtsd/query/budget"
)

// Metadata and exemplars come in Prometheus's own form.
func TestHandler_ServesMetadataAndExemplars(t *testing.T) {
	h := newHandler(t, nil)
	const (
		up       = `"up":[{"type":"gauge","unit":"","help":"Whether it is up."}]`
		requests = `"http_requests_total":[{"type":"counter","unit":"requests","help":"Requests."}]`
	)
	at := seconds(dataStart)
	for _, c := range []struct{ path, want string }{
		{"metadata", `{"status":"success","data":{` + requests + "," + up + `}}`},
		{"metadata?limit=1", `{"status":"success","data":{` + requests + `}}`},
		{"metadata?limit=1&metric=up", `{"status":"success","data":{` + up + `}}`},
		{"metadata?limit_per_metric=1&metric=up", `{"status":"success","data":{` + up + `}}`},
		{"metadata?limit=0", `{"status":"success","data":{}}`},
		{"metadata?metric=nosuch", `{"status":"success","data":{}}`},
		{"targets/metadata?metric=up",
			`{"status":"success","data":[{"target":{},"type":"gauge","help":"Whether it is up.","unit":""}]}`},
		{`targets/metadata?match_target={job="api"}`, `{"status":"success","data":[]}`},
		{"targets", `{"status":"success","data":{"activeTargets":[],"droppedTargets":[],"droppedTargetCounts":{}}}`},
		{"query_exemplars?query=sum(http_requests_total)&start=" + at + "&end=" + at,
			`{"status":"success","data":[{"seriesLabels":` +
				`{"__name__":"http_requests_total","instance":"a:80","job":"api"},"exemplars":[{"labels":{"trace_id":"abc"},"value":"1",` +
				`"timestamp":` + strings.TrimSuffix(at, ".000") + `}]}]}`},
		{"query_exemplars?query=up", `{"status":"success","data":[]}`},
	} {
		path := strings.NewReplacer("{", "%7B", "}", "%7D", `"`, "%22").Replace(c.path)
		if got := do(h, "GET", "/api/v1/"+path, ""); got.Code != http.StatusOK || got.Body.String() != c.want {
			t.Errorf("%s:\n got %d %s\nwant %s", c.path, got.Code, got.Body, c.want)
		}
	}
	for _, path := range []string{"metadata?limit=x", "metadata?limit_per_metric=x", "targets/metadata?match_target=%7B",
		"query_exemplars?query=("} {
		if got := do(h, "GET", "/api/v1/"+path, ""); got.Code != http.StatusBadRequest {
			t.Errorf("%s: got %d %s", path, got.Code, got.Body)
		}
	}
	if got := do(h, "PUT", "/api/v1/metadata", ""); got.Code != http.StatusMethodNotAllowed {
		t.Errorf("PUT metadata: got %d", got.Code)
	}
}

// endless has metadata without end.
type endless struct{}

func (endless) Metadata(_ context.Context, _ string, _ int, f func(string, metadata.Metadata) error) error {
	help := strings.Repeat("x", 1<<20)
	for {
		if err := f("m", metadata.Metadata{Help: help}); err != nil {
			return err
		}
	}
}

func TestHandler_BoundsMetadata(t *testing.T) {
	h := newHandler(t, func(c *api.Config) { c.Metadata = endless{} })
	got := do(h, "GET", "/api/v1/targets/metadata", "")
	if got.Code != http.StatusUnprocessableEntity || !strings.Contains(got.Body.String(), "set a limit") {
		t.Errorf("got %d %s", got.Code, got.Body)
	}
}

// many has metadata of so many families, each with a help of a kilobyte, and then ends with an error, if any.
type many struct {
	families int
	err      error
}

func (s many) Metadata(_ context.Context, _ string, limit int, f func(string, metadata.Metadata) error) error {
	help := strings.Repeat("x", 1<<10)
	for i := range s.families {
		if i == limit {
			return nil
		}
		if err := f(fmt.Sprint("m", i), metadata.Metadata{Help: help}); err != nil {
			return err
		}
	}
	return s.err
}

// The metadata of all families is answered with a buffer of memory, however much there is.
func TestHandler_AnswersAllMetadata(t *testing.T) {
	const families = 100_000
	h := newHandler(t, func(c *api.Config) { c.Metadata = many{families: families} })
	b, err := budget.New(budget.Config{Total: budget.MinTotal, Request: 1 << 20, Wait: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]int{"": families, "?limit=3": 3, "?limit_per_metric=1": families,
		"?limit=-1&limit_per_metric=0": families} {
		account := b.Open()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(budget.NewContext(t.Context(), account), "GET", "/api/v1/metadata"+
			query, nil))
		account.Close()
		var got struct {
			Status string
			Data   map[string][]metadata.Metadata
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK || got.Status != "success" ||
			len(got.Data) != want {
			t.Errorf("%q: got %d, %d families, %v", query, w.Code, len(got.Data), err)
		}
	}
}

// An answer that cannot be ended is no whole one.
func TestHandler_BreaksOffMetadata(t *testing.T) {
	h := newHandler(t, func(c *api.Config) { c.Metadata = many{1, errors.New("lost")} })
	if got := do(h, "GET", "/api/v1/metadata", ""); got.Code != http.StatusUnprocessableEntity ||
		strings.Contains(got.Body.String(), "success") {
		t.Errorf("an error at the beginning: got %d %s", got.Code, got.Body)
	}
	h = newHandler(t, func(c *api.Config) { c.Metadata = many{1000, errors.New("lost")} })
	server := httptest.NewServer(h)
	defer server.Close()
	answer, err := http.Get(server.URL + "/api/v1/metadata")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); err == nil {
		t.Errorf("an error in the middle: %d bytes came as if they were all", len(body))
	}
}
