package hbase_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"

	"github.com/promtsd/promtsd/adapter/peer"
	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/mapping/request"
)

// TestHBasePeer_SeesBehindTLSAndPasswords has two promtsd see what each holds where the listener for peers wants
// certificates and passwords, and refuses to start where they could not ask.
func TestHBasePeer_SeesBehindTLSAndPasswords(t *testing.T) {
	h := promtest.NewTables(t, "peer_tls")
	h.Init(t)
	files := promtest.NewWebFiles(t)
	flags := []string{"--peer.web.config.file=" + files.Path("both"), "--peer.http.config.file=" + files.Path("all")}
	one, other := h.Serve(t, flags...), h.Serve(t, flags...)
	h.AwaitWriters(t, one, other)
	want := remotetest.Model{}
	for turn, p := range []*promtest.Process{one, other} {
		series := []remotetest.Series{{
			Labels:  []prompb.Label{{Name: "__name__", Value: "held"}, {Name: "by", Value: fmt.Sprint(turn)}},
			Samples: []request.Sample{{T: time.Now().UnixMilli(), V: float64(turn)}},
		}}
		if err := remotetest.WriteInTurn(t.Context(), p.URL(), turn, series); err != nil {
			t.Fatal(err)
		}
		want.Write(series)
	}
	for _, p := range []*promtest.Process{one, other} {
		remotetest.AssertReads(t, p.URL(), "held", want)
		if n, err := promtest.ReadWarnings(t.Context(), p.URL()); err != nil || n != 0 {
			t.Errorf("%v answers have warnings (%v), want none", n, err)
		}
		if res, err := http.Post("http://"+p.Addr()+peer.Path, "", strings.NewReader("123456781234")); err != nil ||
			res.StatusCode == http.StatusOK {
			t.Errorf("at its address for clients it answers peers: %v, %v", res, err)
		}
		if strings.Contains(p.Log(), "secret") {
			t.Error("its log has the password")
		}
	}

	for name, file := range map[string]string{"TLS": "tls", "a password": "users", "certificates": "mutual"} {
		t.Run("refused without a client configuration for "+name, func(t *testing.T) {
			addr, err := promtest.FreeAddr()
			if err != nil {
				t.Fatal(err)
			}
			host, _, err := net.SplitHostPort(addr)
			if err != nil {
				t.Fatal(err)
			}
			out, err := promtest.PromtsdCommand(t, "serve", "--store.url="+h.URL(), "--table.promtsd="+h.SystemTable(),
				"--web.listen-address="+addr, "--peer.listen-address="+host+":0", "--web.config.file="+
					files.Path(file)).CombinedOutput()
			if err == nil || !strings.Contains(string(out), "other promtsd could not ask this one") {
				t.Errorf("it ends with %v, and says\n%s", err, out)
			}
		})
	}
	if found := h.Leases(t); len(found) != 2 {
		t.Errorf("the leases are %v", found)
	}
}
