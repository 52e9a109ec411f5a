package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/metadata"

	"github.com/promtsd/promtsd/adapter/api"
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
		{"targets/metadata?metric=up", `{"status":"success","data":[{"target":{},"type":"gauge","help":"Whether it is up.","unit":""}]}`},
		{`targets/metadata?match_target={job="api"}`, `{"status":"success","data":[]}`},
		{"targets", `{"status":"success","data":{"activeTargets":[],"droppedTargets":[],"droppedTargetCounts":{}}}`},
		{"query_exemplars?query=sum(http_requests_total)&start=" + at + "&end=" + at, `{"status":"success","data":[{"seriesLabels":` +
			`{"__name__":"http_requests_total","instance":"a:80","job":"api"},"exemplars":[{"labels":{"trace_id":"abc"},"value":"1",` +
			`"timestamp":` + strings.TrimSuffix(at, ".000") + `}]}]}`},
		{"query_exemplars?query=up", `{"status":"success","data":[]}`},
	} {
		path := strings.NewReplacer("{", "%7B", "}", "%7D", `"`, "%22").Replace(c.path)
		if got := do(h, "GET", "/api/v1/"+path, ""); got.Code != http.StatusOK || got.Body.String() != c.want {
			t.Errorf("%s:\n got %d %s\nwant %s", c.path, got.Code, got.Body, c.want)
		}
	}
	for _, path := range []string{"metadata?limit=x", "metadata?limit_per_metric=x", "targets/metadata?match_target=%7B", "query_exemplars?query=("} {
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
	got := do(h, "GET", "/api/v1/metadata", "")
	if got.Code != http.StatusUnprocessableEntity || !strings.Contains(got.Body.String(), "set a limit") {
		t.Errorf("got %d %s", got.Code, got.Body)
	}
}
