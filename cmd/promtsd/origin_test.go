package main

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
)

// What a page of another origin has a browser send is refused where it writes, unless the origin is trusted. Queries
// are what --web.cors.origin is for.
func TestServe_RefusesWritesFromPagesOfOtherOrigins(t *testing.T) {
	promtsd := promtest.StartPromtsd(t, promtest.PromtsdConfig{Args: []string{
		"--web.trusted-origin=https://ops.example", "--web.enable-otlp-receiver",
	}})
	own := strings.TrimSuffix(promtsd.URL(), "/")
	query := url.Values{"query": {"1"}}.Encode()
	for _, c := range []struct {
		path, contentType, body, origin string
		refused                         bool
	}{
		{"/api/v1/write", "text/plain", "", "https://evil.example", true},
		{"/api/v1/read", "text/plain", "", "https://evil.example", true},
		{"/api/v1/otlp/v1/metrics", "application/json", "{}", "https://evil.example", true},
		{"/api/v1/admin/tsdb/delete_series", "application/x-www-form-urlencoded", "match[]=up", "https://evil.example", true},
		{"/api/v1/otlp/v1/metrics", "application/json", "{}", "https://ops.example", false},
		{"/api/v1/otlp/v1/metrics", "application/json", "{}", own, false},
		{"/api/v1/otlp/v1/metrics", "application/json", "{}", "", false},
		{"/api/v1/query", "application/x-www-form-urlencoded", query, "https://evil.example", false},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, promtsd.URL()+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", c.contentType)
		if c.origin != "" {
			req.Header.Set("Origin", c.origin)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if (res.StatusCode == http.StatusForbidden) != c.refused || !c.refused && res.StatusCode != http.StatusOK {
			t.Errorf("%+v: got %s", c, res.Status)
		}
	}
}
