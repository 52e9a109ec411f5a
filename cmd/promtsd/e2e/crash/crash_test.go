// Package crash_test kills promtsd, stops it and fills its disk under load. Whatever was acknowledged is read back.
package crash_test

import (
	"io"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/promtsd/promtsd/cmd/promtsd/e2e/crowd"
	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
)

// hurried is a crowd that sends as fast as it is answered, or nearly.
var hurried = crowd.Config{Pause: time.Millisecond}

// TestCrash_NoAcknowledgedSampleIsLost kills promtsd again and again while samples of new and of known series arrive.
func TestCrash_NoAcknowledgedSampleIsLost(t *testing.T) {
	t.Parallel()
	promtsd := promtest.StartPromtsd(t, promtest.PromtsdConfig{})
	c, stop := crowd.Start(t, hurried, promtsd.URL())
	for range 10 {
		c.Await(t, 1+rand.IntN(100))
		promtsd.Kill()
		promtsd.Restart()
	}
	c.Await(t, 20)
	stop()
	c.Report(t, true)
	c.Check(t, remotetest.ResponseTypes...)
	promtsd.Kill()
	promtsd.Restart()
	c.Check(t, remotetest.ResponseTypes...)
	c.Report(t, false)
}

// TestDrain_FinishesWhatItAccepted ends promtsd by SIGTERM in mid-load.
func TestDrain_FinishesWhatItAccepted(t *testing.T) {
	t.Parallel()
	promtsd := promtest.StartPromtsd(t, promtest.PromtsdConfig{})
	c, stop := crowd.Start(t, hurried, promtsd.URL())
	for range 3 {
		c.Await(t, 1+rand.IntN(100))
		promtsd.Stop() // and its status is 0
		if res, err := http.Get(promtsd.URL() + "/-/ready"); err == nil {
			text, _ := io.ReadAll(res.Body)
			res.Body.Close()
			t.Errorf("after its end promtsd answers %s: %s", res.Status, text)
		}
		promtsd.Restart()
	}
	c.Await(t, 20)
	stop()
	c.Report(t, true)
	c.Check(t, remotetest.ResponseTypes...)
	c.Report(t, false)
}
