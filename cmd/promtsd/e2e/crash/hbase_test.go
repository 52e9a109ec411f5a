package crash_test

import (
	"testing"
	"time"

	"github.com/promtsd/promtsd/cmd/promtsd/e2e/crowd"
	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
)

func TestHBase_NothingAcknowledgedIsLostByKillOfOneOfTwo(t *testing.T) {
	t.Parallel()
	h := promtest.NewTables(t, "kill_one")
	h.Init(t, "--salt.width=1", "--salt.buckets=4")
	first, second := h.Serve(t, "--write.lease-ttl=2s"), h.Serve(t, "--write.lease-ttl=2s")
	c, stop := crowd.Start(t, hurried, first.URL(), second.URL())
	for range 4 {
		c.Await(t, 100)
		first.Kill()
		promtest.Sleep(t.Context(), 200*time.Millisecond) // the second is alone
		first.Restart()
	}
	c.Await(t, 50)
	first.Kill()
	c.Await(t, 50)
	stop()
	// The second is to have taken the journal of the first over.
	h.AwaitWriters(t, second)
	c.Report(t, true)
	c.CheckOne(t, 1, remotetest.ResponseTypes...)
	first.Restart()
	c.CheckOne(t, 0, remotetest.ResponseTypes...)
	c.Report(t, false)
}
