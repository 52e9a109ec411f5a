package api_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"

	"github.com/grafana/regexp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"

	"github.com/promtsd/promtsd/adapter/api"
)

func TestHandler_HasExperimentalFeaturesOnlyIfEnabled(t *testing.T) {
	for name, query := range map[string]string{
		"promql-experimental-functions":   `sort_by_label(up, "job")`,
		"promql-extended-range-selectors": "rate(http_requests_total[5m] anchored)",
		"promql-binop-fill-modifiers":     "up + fill(0) up",
	} {
		for _, enabled := range []bool{false, true} {
			h := newHandler(t, func(c *api.Config) {
				if enabled {
					c.Features = []string{name}
				}
			})
			got := do(h, "POST", "/api/v1/query", url.Values{"query": {query}, "time": {seconds(dataEnd)}}.Encode())
			if (got.Code == http.StatusOK) != enabled {
				t.Errorf("%s, enabled %v: got %d %s", name, enabled, got.Code, got.Body)
			}
		}
	}
}

func TestHandler_LetsOnlyTheOriginsAskThatAreAllowed(t *testing.T) {
	h := newHandler(t, func(c *api.Config) { c.Origins = regexp.MustCompile(`^(?s:https://(a|b)\.example)$`) })
	for _, path := range []string{"query?query=1", "status/tsdb", "metadata", "labels", "features"} {
		for _, method := range []string{"GET", "OPTIONS"} {
			for origin, want := range map[string]string{
				"https://a.example": "https://a.example", "https://c.example": "", "https://a.example.org": "", "": "",
			} {
				r := httptest.NewRequest(method, "/api/v1/"+path, nil)
				if origin != "" {
					r.Header.Set("Origin", origin)
				}
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if got := w.Header().Get("Access-Control-Allow-Origin"); got != want || w.Code/100 != 2 {
					t.Errorf("%s %s from %q: got %d, allowed %q, want %q", method, path, origin, w.Code, got, want)
				}
			}
		}
	}
}

// In the text format native histograms have no place, but those with custom buckets become classic ones.
func TestFederate_ExposesHistograms(t *testing.T) {
	h := newHandler(t, func(c *api.Config) {
		app := c.OTLP.AppenderV2(t.Context())
		for name, sample := range map[string]*histogram.FloatHistogram{
			"native": tsdbutil.GenerateTestFloatHistogram(1), "custom": tsdbutil.GenerateTestCustomBucketsFloatHistogram(1),
			"gauge": tsdbutil.GenerateTestGaugeFloatHistogram(1),
		} {
			if _, err := app.Append(0, labels.FromStrings("__name__", name), 0, dataEnd, 0, nil, sample,
				storage.AOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := app.Commit(); err != nil {
			t.Fatal(err)
		}
	})
	federate := func(accept string) *dto.MetricFamily {
		r := httptest.NewRequest("GET", "/federate?"+url.Values{"match[]": {`{__name__=~"native|custom|gauge|up"}`}}.Encode(),
			nil)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		h.Federate(w, r)
		if w.Code != http.StatusOK {
			t.Fatalf("got %d %s", w.Code, w.Body)
		}
		families := map[string]*dto.MetricFamily{}
		decoder := expfmt.NewDecoder(w.Body, expfmt.ResponseFormat(w.Header()))
		for {
			family := new(dto.MetricFamily)
			if err := decoder.Decode(family); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			families[family.GetName()] = family
		}
		custom := families["custom"].GetMetric()[0].GetHistogram()
		if n := len(custom.GetBucket()); n < 4 {
			t.Errorf("%s: the histogram with custom buckets has %d: %v", accept, n, custom)
		}
		if n := len(families["up"].GetMetric()); n != 2 {
			t.Errorf("%s: %d series of up", accept, n)
		}
		if families["gauge"] != nil && families["gauge"].GetType() != dto.MetricType_GAUGE_HISTOGRAM {
			t.Errorf("%s: the gauge is a %v", accept, families["gauge"].GetType())
		}
		return families["native"]
	}
	if got := federate("text/plain"); got != nil {
		t.Errorf("as text: got %v", got)
	}
	got := federate("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	want := tsdbutil.GenerateTestFloatHistogram(1)
	native := got.GetMetric()[0].GetHistogram()
	if native.GetSampleCountFloat() != want.Count || !slices.Equal(native.GetPositiveCount(), want.PositiveBuckets) ||
		len(native.GetNegativeSpan()) != len(want.NegativeSpans) {
		t.Errorf("as protobuf: got %v, want %v", native, want)
	}
}
