package prometheus_test

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// parityCalls are calls that promtsd has to answer as a Prometheus does that has the same samples: status, content
// type, the headers for browsers, and content. They are those that Grafana does not make.
const parityCalls = `
GET /api/v1/query_range?query=sum(rate(http_requests_total[step()*4]))&start=1767312000&end=1767315600&step=60
GET /api/v1/query?query=http_requests_total[5m-1m]&time=1767315600
GET /api/v1/query?query=http_requests_total+offset+(2*1m)&time=1767315600
GET /api/v1/query?query=max_of(1,2)&time=1
GET /api/v1/query?query=sort_by_label(up,"job")&time=1767315600
GET /api/v1/query?query=mad_over_time(queue[5m])&time=1767315600
GET /api/v1/query?query=limitk(2,up)&time=1767315600
GET /api/v1/query?query=up+or+fill(0)&time=1767315600
GET /api/v1/query?query=up+smoothed&time=1767315600
GET /api/v1/query?query=quantile_over_time(0.5,({__name__=~".%2B"})[1h:1s])&time=1767315600&timeout=1ms
GET /api/v1/query?query=up&time=1767315600&timeout=nonsense
GET /api/v1/query?query=up&time=nonsense
GET /api/v1/query?query=up{&time=1
GET /api/v1/query
GET /api/v1/query?query=up&time=1767315600&limit=1
GET /api/v1/query_range?query=up&start=2&end=1&step=1
GET /api/v1/query_range?query=up&start=1&end=100000&step=1
GET /api/v1/query_range?query=up[5m]&start=1&end=2&step=1
GET /api/v1/series
GET /api/v1/series?match[]=up&start=1767312000&end=1767315600&limit=1
GET /api/v1/labels?match[]={
GET /api/v1/label/job/values?limit=1&start=1767312000&end=1767315600
GET /api/v1/label/job/values?limit=-1
GET /api/v1/query_exemplars?query=up&start=2&end=1
GET /api/v1/format_query?query=foo/bar
GET /api/v1/parse_query?query=foo/bar+offset+1m
GET /api/v1/notifications
GET /api/v1/status/walreplay
POST /api/v1/status/walreplay
POST /api/v1/admin/tsdb/delete_series match[]=up
PUT /api/v1/admin/tsdb/clean_tombstones
POST /api/v1/admin/tsdb/snapshot
GET /api/v1/admin/tsdb/snapshot
GET /federate
GET /federate?match[]={
GET /federate?match[]=up
OPTIONS /api/v1/query
OPTIONS /api/v1/metadata
OPTIONS /api/v1/labels
OPTIONS /api/v1/status/tsdb
PUT /api/v1/query
`

// timedOut is an answer as text, without what the engine was doing when the query's time was over: that is up to
// chance.
func timedOut(answer any) string {
	return regexp.MustCompile(`query timed out in [a-z ]+`).ReplaceAllString(fmt.Sprintf("%#v", answer), "query timed out")
}

// TestAPI_AnswersAsPrometheusDoes makes calls of promtsd and of a real Prometheus that was sent the same samples.
func TestAPI_AnswersAsPrometheusDoes(t *testing.T) {
	promtsd, prometheus := startBoth(t, "--web.trusted-origin=http://elsewhere.example")
	for line := range strings.SplitSeq(strings.TrimSpace(parityCalls), "\n") {
		got, want := grafanaCall(t, promtsd.URL(), line), grafanaCall(t, prometheus.URL(), line)
		if !reflect.DeepEqual(got, want) && timedOut(got) != timedOut(want) {
			t.Errorf("%s\n got %v\nwant %v", line, got, want)
		}
	}
}
