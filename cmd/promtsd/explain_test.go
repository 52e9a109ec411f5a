package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/mapping/request"
)

// A running promtsd explains with what it has in memory: the index, and samples that are not stored yet.
func TestExplain_OfARunningPromtsd(t *testing.T) {
	p := promtest.StartPromtsd(t, promtest.PromtsdConfig{})
	hour := time.Now().Truncate(time.Hour)
	now := hour.UnixMilli()
	res, err := remotetest.Write(t.Context(), http.DefaultClient, p.URL(), remotetest.MessageV2, []remotetest.Series{{
		Labels:  []prompb.Label{{Name: "__name__", Value: "up"}, {Name: "job", Value: "node"}},
		Samples: []request.Sample{{T: now, V: 1}, {T: now + 1, V: 0}, {T: now + 2, V: 1}},
	}})
	if err != nil || res.StatusCode/100 != 2 {
		t.Fatalf("write: %v, %v", res, err)
	}
	out, err := promtest.PromtsdCommand(t, "explain", "--url="+p.URL(), "--analyze", `{job="node"}`,
		"--start="+hour.Format(time.RFC3339), "--end="+hour.Add(time.Minute).Format(time.RFC3339)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"series: 1, found by the index's memory among 1 candidates", "with 3 samples",
		`get 1 row: up{job="node"} 20`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("got %s\nwant %s", out, want)
		}
	}
	for query, want := range map[string]int{
		"selector=up&start=1&end=2":                    http.StatusOK,
		"selector={&start=1&end=2":                     http.StatusBadRequest,
		"selector=up&start=2&end=1":                    http.StatusBadRequest,
		"selector=up&start=1&end=next+week":            http.StatusBadRequest,
		"start=1&end=2":                                http.StatusBadRequest,
		"selector=up&start=-9223372036854775809&end=1": http.StatusBadRequest,
	} {
		res, err := http.Get(p.URL() + explainPath + "?" + query)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: got %s, want %d", query, res.Status, want)
		}
	}
}
