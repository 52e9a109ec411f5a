package crowd

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/mapping/request"
)

// lostJournal is what promtsd logs when it has lost its journal.
const lostJournal = "another has taken its journal over; beginning a new one"

// tookOver is what promtsd logs when it has taken a journal over.
var tookOver = regexp.MustCompile(`msg="took a journal over".* writer=([0-9a-f]{16})`)

// TakenOver counts who took over whose journal, by writer.
func TakenOver(all ...*promtest.Process) map[string]int {
	times := map[string]int{}
	for _, p := range all {
		for _, found := range tookOver.FindAllStringSubmatch(p.Log(), -1) {
			times[found[1]]++
		}
	}
	return times
}

// AssertTakenOver checks that the journals of these writers were taken over exactly once, and nobody's more often. On a
// busy machine a lease may run out whose writer lives.
func AssertTakenOver(t *testing.T, all []*promtest.Process, writers ...string) {
	t.Helper()
	times := TakenOver(all...)
	for _, w := range writers {
		if times[w] == 0 {
			t.Errorf("the journal of writer %s was not taken over", w)
		}
	}
	for w, n := range times {
		if n > 1 {
			t.Errorf("the journal of writer %s was taken over %d times", w, n)
		}
	}
}

// WaitingSeries has a promtsd write a series, so that it knows all of its names.
func WaitingSeries(t *testing.T, p *promtest.Process) []remotetest.Series {
	t.Helper()
	series := []remotetest.Series{{
		Labels:  []prompb.Label{{Name: "__name__", Value: "waiting"}},
		Samples: []request.Sample{{T: time.Now().UnixMilli(), V: 1}},
	}}
	if err := remotetest.WriteInTurn(t.Context(), p.URL(), 0, series); err != nil {
		t.Fatal(err)
	}
	return series
}

// RefusedWhenResumed lets a promtsd run on that has lost its lease, with requests that wait for it. It must not
// acknowledge them before it has a new journal; some, or all, may come when it has one.
func RefusedWhenResumed(t *testing.T, p *promtest.Process, series []remotetest.Series) {
	t.Helper()
	const requests = 8
	var sending, answered sync.WaitGroup
	sending.Add(requests)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) { sending.Done() },
	})
	var statuses [requests]int
	for i := range requests {
		answered.Go(func() {
			res, err := remotetest.Write(ctx, client, p.URL(), remotetest.MessageV1, series)
			if err != nil {
				t.Error(err)
				return
			}
			if statuses[i] = res.StatusCode; res.StatusCode/100 == 2 && !strings.Contains(p.Log(), lostJournal) {
				t.Errorf("a request was answered %s before a new journal was begun", res.Status)
			}
		})
	}
	sending.Wait()
	p.Resume()
	answered.Wait()
	for _, status := range statuses {
		if status/100 != 2 && status != http.StatusServiceUnavailable {
			t.Errorf("requests that waited for a promtsd that had lost its lease were answered %v, want 503 or 204", statuses)
		}
	}
	promtest.Until(t, "the promtsd has begun a new journal", func(ctx context.Context) error {
		_, err := promtest.Get(ctx, http.DefaultClient, p.URL()+"/-/ready")
		if err == nil && !strings.Contains(p.Log(), lostJournal) {
			err = fmt.Errorf("the log does not say %q", lostJournal)
		}
		return err
	})
}
