package hbase_test

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/mapping/request"
)

// TestHBaseJournal_TakesBodiesOfEverySize sends bodies that are larger than HBase lets a cell be, up to what is
// allowed, and kills promtsd: the journal has them.
func TestHBaseJournal_TakesBodiesOfEverySize(t *testing.T) {
	h := promtest.NewTables(t, "large_bodies")
	h.Init(t)
	p := h.Serve(t, shortLease)
	want := remotetest.Model{}
	at := time.Now().UnixMilli()
	for _, size := range []int{3 << 20, 11 << 20, 32<<20 - 4096} {
		series := []remotetest.Series{{
			Labels:  []prompb.Label{{Name: "__name__", Value: "large"}, {Name: "bytes", Value: fmt.Sprint(size)}},
			Samples: []request.Sample{{T: at, V: float64(size)}},
		}}
		message, err := remotetest.EncodeV1(series)
		if err != nil {
			t.Fatal(err)
		}
		// What a message does not know is passed over, and kept in the journal.
		padding := make([]byte, size-len(message)-8)
		if _, err := crand.Read(padding); err != nil {
			t.Fatal(err)
		}
		message = protowire.AppendBytes(protowire.AppendTag(message, 1000, protowire.BytesType), padding)
		res, err := remotetest.Post(t.Context(), http.DefaultClient, p.URL()+"/api/v1/write",
			"application/x-protobuf", message)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != http.StatusNoContent {
			t.Fatalf("a body of %d bytes: %s: %s", size, res.Status, text)
		}
		want.Write(series)
	}
	p.Kill()
	p.Restart()
	remotetest.AssertReads(t, p.URL(), "large", want)
	p.Stop()
	if left := h.Cluster.Scan(h.JournalTable()); len(left) > 0 {
		t.Errorf("the journal has %d cells left", len(left))
	}
}

// TestHBaseJournal_QuarantineIsSeenByAll leaves a journal with an entry that is damaged, which one of two promtsd takes
// over: both warn, until the entry is dropped while they run.
func TestHBaseJournal_QuarantineIsSeenByAll(t *testing.T) {
	h := promtest.NewTables(t, "quarantine")
	h.Init(t)
	both := []*promtest.Process{h.Serve(t, shortLease), h.Serve(t, shortLease)}
	left := filepath.Join(t.TempDir(), "left.jsonl")
	lines := strings.NewReplacer("OWN", h.SystemTable(), "LOG", h.JournalTable()).Replace(
		`{"table":"LOG","row":"00000000000000aa0000000000000001","family":"p","qualifier":"","timestamp":1795253864620,"value":"00"}
{"table":"OWN","row":"7700000000000000aa","family":"p","qualifier":"6c65617365","timestamp":1,"value":"7b22686f6c646572223a3137302c2266726f6e74696572223a312c2262656174223a317d"}
`)
	if err := os.WriteFile(left, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	h.Command(t, "cells", "load", left)
	warned := func(want bool) {
		t.Helper()
		for _, p := range both {
			promtest.Until(t, "queries warn as they should", func(ctx context.Context) error {
				// Of the past, so that the answer cannot lack what a promtsd holds.
				query := p.URL() + "/api/v1/query?time=1795253800&query=up"
				res, err := http.Get(query)
				if err != nil {
					return err
				}
				defer res.Body.Close()
				text, err := io.ReadAll(res.Body)
				if strings.Contains(string(text), "quarantine") != want {
					err = errors.Join(err, fmt.Errorf("want a warning: %v; the answer is %s", want, text))
				}
				return err
			})
		}
	}
	warned(true)
	h.AwaitWriters(t, both...)
	if list := h.Command(t, "journal", "list"); !strings.Contains(list, "writer 00000000000000aa entry 1: in quarantine") {
		t.Errorf("the list is\n%s", list)
	}
	h.Command(t, "journal", "drop", "00000000000000aa", "1")
	warned(false)
	for _, p := range both {
		promtest.Until(t, "the gauge follows", func(ctx context.Context) error {
			n, err := promtest.Metric(ctx, p.URL(), "promtsd_journal_quarantined_entries")
			if err == nil && n != 0 {
				err = fmt.Errorf("it is %v", n)
			}
			return err
		})
	}
}
