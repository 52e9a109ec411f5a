package prometheus_test

import (
	"testing"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
)

func TestHBase_PrometheusReadsBackWhatItWrote(t *testing.T) {
	for name, message := range map[string]string{"e2e_v1": remotetest.MessageV1, "e2e_v2": remotetest.MessageV2} {
		t.Run(message, func(t *testing.T) {
			t.Parallel()
			h := promtest.NewTables(t, name)
			h.Init(t, "--salt.width=1", "--salt.buckets=4")
			readsBackWhatItWrote(t, h.Serve(t), message)
		})
	}
}

func TestHBase_PrometheusFindsExemplarsAndMetadata(t *testing.T) {
	t.Parallel()
	h := promtest.NewTables(t, "e2e_beside")
	h.Init(t, "--salt.width=1", "--salt.buckets=4")
	findsExemplarsAndMetadata(t, h.Serve(t, "--write.lease-ttl=2s"), remotetest.MessageV1)
}
