package prometheus_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/prompb"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/request"
)

const (
	// grafanaRecord, set to anything, has TestGrafana record the calls and the picture anew, by Grafana's own code in a
	// browser; see testdata/grafana/server.mjs for what that takes.
	grafanaRecord = "PROMTSD_GRAFANA_RECORD"
	grafanaDir    = "../../../../testdata/grafana"

	grafanaStart  = 1_767_312_000_000 // 2026-01-02T00:00:00Z
	grafanaEnd    = grafanaStart + mapping.HourMs
	grafanaScrape = 15_000
)

// TestGrafana makes the calls that Grafana's Prometheus data source was recorded to make, of promtsd and of a real
// Prometheus that was sent the same samples: both have to answer the same.
func TestGrafana(t *testing.T) {
	promtsd, prometheus := startBoth(t)
	file := filepath.Join(grafanaDir, "calls.txt")
	if os.Getenv(grafanaRecord) != "" {
		recordGrafana(t, promtsd.URL(), file, filepath.Join(grafanaDir, "grafana.png"))
	}
	calls, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	for step := range strings.SplitSeq(strings.TrimSpace(string(calls)), "\n\n") {
		lines := strings.Split(step, "\n")
		t.Run(strings.TrimPrefix(lines[0], "# "), func(t *testing.T) {
			for _, line := range lines[1:] {
				made++
				got, want := grafanaCall(t, promtsd.URL(), line), grafanaCall(t, prometheus.URL(), line)
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%s\n got %v\nwant %v", line, got, want)
				}
			}
		})
	}
	if made < 50 {
		t.Errorf("%d calls were made", made)
	}
}

// startBoth starts promtsd, and a Prometheus that is sent the same samples: those of grafanaData.
func startBoth(t *testing.T, args ...string) (promtsd *promtest.Process, prometheus *promtest.Server) {
	t.Helper()
	promtsd = promtest.StartPromtsd(t, promtest.PromtsdConfig{Args: args})
	prometheus = promtest.Start(t, promtest.Config{Args: []string{
		"--web.enable-remote-write-receiver", "--enable-feature=exemplar-storage",
	}})
	for _, url := range []string{promtsd.URL(), prometheus.URL()} {
		res, err := remotetest.Write(t.Context(), http.DefaultClient, url, remotetest.MessageV2, grafanaData())
		if err != nil || res.StatusCode/100 != 2 {
			t.Fatalf("write to %s: %v, %v", url, res, err)
		}
	}
	return promtsd, prometheus
}

// grafanaAnswer is an answer as far as promtsd's and Prometheus's have to be equal.
type grafanaAnswer struct {
	status      int
	contentType string
	cors        string // the headers that let pages ask
	content     any
}

// grafanaCall makes one recorded call: METHOD PATH[?QUERY] [FORM].
func grafanaCall(t *testing.T, url, line string) grafanaAnswer {
	t.Helper()
	fields := append(strings.Fields(line), "")
	req, err := http.NewRequestWithContext(t.Context(), fields[0], url+fields[1], strings.NewReader(fields[2]))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Origin", "http://elsewhere.example")
	if fields[0] == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	answer := grafanaAnswer{status: res.StatusCode, contentType: res.Header.Get("Content-Type")}
	for _, name := range []string{"Origin", "Methods", "Headers"} {
		answer.cors += res.Header.Get("Access-Control-Allow-"+name) + "; "
	}
	if json.Unmarshal(body, &answer.content) != nil {
		answer.content = string(body)
	}
	object, _ := answer.content.(map[string]any)
	data, _ := object["data"].(map[string]any)
	if strings.Contains(fields[1], "/buildinfo") {
		for name := range data { // whose they are is no business of this test
			data[name] = "a text"
		}
	}
	// Vectors and series are of no order: Prometheus's own is that of a map, and of arrival.
	list, _ := data["result"].([]any)
	if data["resultType"] != "vector" {
		list = nil
	}
	if strings.Contains(fields[1], "/series") {
		list, _ = object["data"].([]any)
	}
	slices.SortFunc(list, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return answer
}

// recordGrafana has a browser run Grafana's code against promtsd.
func recordGrafana(t *testing.T, url, calls, picture string) {
	absolute := func(path string) string {
		path, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	script := "{ test -d node_modules || npm ci --ignore-scripts --no-audit --no-fund; } && exec npm run --silent record -- \"$@\""
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script, "record", url,
		strconv.Itoa(grafanaStart), strconv.Itoa(grafanaEnd), absolute(calls), absolute(picture))
	cmd.Dir = grafanaDir
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}

// grafanaData is an hour of two services: requests by status and route, how long they took, whether targets are up, and
// a metric whose names only UTF-8 allows; a sample each 15 s.
func grafanaData() (series []remotetest.Series) {
	add := func(value func(i int) float64, nameValues ...string) {
		var s remotetest.Series
		for i := 0; i < len(nameValues); i += 2 {
			s.Labels = append(s.Labels, prompb.Label{Name: nameValues[i], Value: nameValues[i+1]})
		}
		for i := range (grafanaEnd-grafanaStart)/grafanaScrape + 1 {
			s.Samples = append(s.Samples, request.Sample{T: grafanaStart + int64(i)*grafanaScrape, V: value(i)})
		}
		series = append(series, s)
	}
	// counter counts so many a scrape, in a wave of ten minutes that is one for all counters of a target.
	counter := func(target int, rate float64) func(int) float64 {
		total := 0.0
		return func(i int) float64 {
			noise := rand.New(rand.NewPCG(uint64(target), uint64(i))).Float64() - 0.5
			total += rate * (1 + 0.4*math.Sin(float64(i)*2*math.Pi/40+float64(target)) + 0.1*noise)
			return math.Floor(total)
		}
	}
	for n, target := range []struct {
		job, instance string
		rate          float64
	}{{"api", "10.0.0.1:8080", 900}, {"api", "10.0.0.2:8080", 700}, {"shop", "10.0.0.3:8080", 400}} {
		labels := func(name string, more ...string) []string {
			return append(append([]string{"__name__", name}, "instance", target.instance, "job", target.job), more...)
		}
		add(func(int) float64 { return 1 }, labels("up")...)
		for i, route := range []string{"/cart", "/items"} {
			rate := target.rate / float64(i+1)
			add(counter(n, rate), labels("http_requests_total", "route", route, "status", "200")...)
			add(counter(n, rate/50), labels("http_requests_total", "route", route, "status", "500")...)
		}
		share := 0.0
		for _, bucket := range []struct {
			le    string
			share float64
		}{{"0.05", 0.55}, {"0.1", 0.25}, {"0.25", 0.12}, {"0.5", 0.06}, {"1", 0.02}, {"+Inf", 0}} {
			share += bucket.share
			add(counter(n, target.rate*share), labels("http_request_duration_seconds_bucket", "le", bucket.le)...)
		}
	}
	add(func(i int) float64 { return float64(i % 17) }, "__name__", "queue.depth", "service.name", "shop")
	return series
}
