package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtsd/promtsd/adapter/api"
)

// --query.max-series bounds the series of an answer, and not those that were looked at for it.
func TestHandler_LabelsOfMoreSeriesThanAllowed(t *testing.T) {
	h := newLimitedHandler(t, 10, func(c *api.Config) {
		app := c.OTLP.AppenderV2(t.Context())
		for i := range 1000 {
			ls := labels.FromStrings("__name__", "many", "job", fmt.Sprintf("job-%d", i%3), "id", fmt.Sprintf("%03d", i))
			if _, err := app.Append(0, ls, 0, dataEnd, 1, nil, nil, storage.AOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := app.Commit(); err != nil {
			t.Fatal(err)
		}
	})
	for _, c := range []struct {
		path string
		want int
		cut  bool // Prometheus's warning is there
	}{
		{"labels", 5, false},
		{"labels?match[]=many", 3, false},
		{"labels?limit=1&match[]=many", 1, true},
		{"label/job/values?match[]=many", 3, false},
		{"label/job/values?limit=2&match[]=many", 2, true},
		{"label/id/values", 1000, false},
		{"label/id/values?limit=30", 30, true},
		{"label/id/values?limit=30&match[]=%7Bjob=%22job-1%22%7D", 30, true},
		{"label/__name__/values?match[]=many", 1, false},
		{"series?match[]=many&limit=3", 3, true},
		{"series?match[]=many&limit=9", 9, true},
		{"series?match[]=many&match[]=up&limit=3", 3, true},
	} {
		got := do(h, "GET", "/api/v1/"+c.path, "")
		var answer struct {
			Data     []json.RawMessage
			Warnings []string
		}
		if err := json.Unmarshal(got.Body.Bytes(), &answer); err != nil || got.Code != http.StatusOK {
			t.Fatalf("%s: got %d %s", c.path, got.Code, got.Body)
		}
		cut := slices.Equal(answer.Warnings, []string{"results truncated due to limit"})
		if len(answer.Data) != c.want || cut != c.cut {
			t.Errorf("%s: got %d %.200s with warnings %q, want %d", c.path, len(answer.Data), answer.Data, answer.Warnings,
				c.want)
		}
	}
	if got := do(h, "GET", "/api/v1/status/tsdb?limit=1", ""); !strings.Contains(got.Body.String(), `"numSeries":1004,`) ||
		!strings.Contains(got.Body.String(), `"seriesCountByMetricName":[{"name":"many","value":1000}]`) {
		t.Errorf("status/tsdb: got %d %s", got.Code, got.Body)
	}
	for _, path := range []string{"series?match[]=many", "series?match[]=many&limit=20"} {
		got := do(h, "GET", "/api/v1/"+path, "")
		if got.Code != http.StatusUnprocessableEntity || !strings.Contains(got.Body.String(), "--query.max-series") {
			t.Errorf("%s: got %d %s", path, got.Code, got.Body)
		}
	}
}
