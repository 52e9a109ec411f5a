package crash_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
)

func TestHBase_NothingAcknowledgedIsLostByKillOfOneOfTwo(t *testing.T) {
	t.Parallel()
	h := promtest.NewTables(t, "kill_one")
	h.Init(t, "--salt.width=1", "--salt.buckets=4")
	first, second := h.Serve(t, "--write.lease-ttl=2s"), h.Serve(t, "--write.lease-ttl=2s")
	l, stop := startLoad(t, first.URL(), second.URL())
	for range 4 {
		l.await(t, 100)
		l.during(func() {
			first.Kill()
			promtest.Sleep(t.Context(), 200*time.Millisecond) // the second is alone
			first.Restart()
		})
	}
	l.await(t, 50)
	l.during(func() { first.Kill() })
	l.await(t, 50)
	l.during(stop)
	// The second is to have taken the journal of the first over.
	h.AwaitWriters(t, second)
	delete(l.refused, http.StatusServiceUnavailable) // before a promtsd is ready
	if len(l.refused) > 0 {
		t.Errorf("answers other than 2xx, by status: %v", l.refused)
	}
	l.check(t, second.URL())
	first.Restart()
	l.check(t, first.URL())
}
