package promtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/promtsd/promtsd/store/hbase/hbasetest"
)

// Tables are the tables of one test in an HBase: their names begin with its own, and promtsd init makes them.
type Tables struct {
	Cluster *hbasetest.Cluster
	Name    string
}

// NewTables names tables in the HBase of the run, see hbasetest.Join. No other test may use the name.
func NewTables(t *testing.T, name string) Tables {
	t.Helper()
	return Tables{hbasetest.Join(t), name}
}

// DataTable is OpenTSDB's table of samples.
func (h Tables) DataTable() string { return h.Name }

// UIDTable is OpenTSDB's table of names.
func (h Tables) UIDTable() string { return h.Name + "-uid" }

// MetaTable is OpenTSDB's table of time series.
func (h Tables) MetaTable() string { return h.Name + "-meta" }

// SystemTable is promtsd's table of settings, leases and index.
func (h Tables) SystemTable() string { return h.Name + "-own" }

// JournalTable is promtsd's table of journals.
func (h Tables) JournalTable() string { return h.SystemTable() + "-journal" }

// ExemplarTable is promtsd's table of exemplars.
func (h Tables) ExemplarTable() string { return h.SystemTable() + "-exemplars" }

// URL is what --store.url takes for the HBase.
func (h Tables) URL() string { return "hbase://" + h.Cluster.ZK() + h.Cluster.ZNode() }

// Command runs a subcommand of promtsd on the tables and returns what it wrote.
func (h Tables) Command(t *testing.T, args ...string) string {
	t.Helper()
	cmd := PromtsdCommand(t, append(args, "--store.url="+h.URL(), "--table.promtsd="+h.SystemTable())...)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("promtsd %s: %v\n%s", args, err, exit.Stderr)
	}
	if err != nil {
		t.Fatalf("promtsd %s: %v", args, err)
	}
	return string(out)
}

// Init runs promtsd init, and returns its first lines, which are about the tables.
func (h Tables) Init(t *testing.T, flags ...string) string {
	t.Helper()
	names := []string{"--table.data=" + h.DataTable(), "--table.uid=" + h.UIDTable(), "--table.meta=" + h.MetaTable()}
	out := h.Command(t, slices.Concat([]string{"init"}, names, flags)...)
	return strings.Join(strings.SplitAfter(out, "\n")[:6], "")
}

// InitSaid is what Init returns: the state of each table, as they are listed. promtsd's own three are made together.
func (h Tables) InitSaid(data, uid, meta, own string) string {
	return fmt.Sprintf("table %s: %s\ntable %s: %s\ntable %s: %s\ntable %s: %s\ntable %s: %s\ntable %s: %s\n",
		h.DataTable(), data, h.UIDTable(), uid, h.MetaTable(), meta, h.SystemTable(), own, h.JournalTable(), own,
		h.ExemplarTable(), own)
}

// Serve starts a promtsd on the tables, with some more flags.
func (h Tables) Serve(t *testing.T, flags ...string) *Process {
	t.Helper()
	return StartPromtsd(t, PromtsdConfig{
		StoreURL: h.URL(), Args: append([]string{"--table.promtsd=" + h.SystemTable()}, flags...),
	})
}

// Leases lists the writers that have a lease, by host and port.
func (h Tables) Leases(t *testing.T) (writers map[string][]string) {
	t.Helper()
	writers = map[string][]string{}
	for _, c := range h.Cluster.Scan(h.SystemTable()) {
		if len(c.Row) != 9 || c.Row[0] != 'w' {
			continue
		}
		var lease struct{ Address string }
		if err := json.Unmarshal(c.Value, &lease); err != nil {
			t.Fatalf("lease in row %x: %v", c.Row, err)
		}
		_, host, _ := strings.Cut(lease.Address, "://")
		writers[host] = append(writers[host], fmt.Sprintf("%x", c.Row[1:]))
	}
	return writers
}

// AwaitWriters returns when only these promtsd have a lease, and each has one: nobody else's journal is left. It
// returns the names of their writers, in their order.
func (h Tables) AwaitWriters(t *testing.T, all ...*Process) (writers []string) {
	t.Helper()
	Until(t, "leases are of those who run", func(context.Context) error {
		found := h.Leases(t)
		writers = nil
		for _, p := range all {
			if len(found[p.Peer()]) == 1 {
				writers = append(writers, found[p.Peer()][0])
			}
		}
		if len(writers) < len(all) || len(found) > len(all) {
			return fmt.Errorf("the leases are %v", found)
		}
		return nil
	})
	return writers
}

// AssignedUIDs reads the UID table: name to UID, each name with its kind before it. It checks that each name's UID
// leads back to it, so that no UID is shared.
func (h Tables) AssignedUIDs(t *testing.T) map[string]string {
	t.Helper()
	forward, reverse := map[string]string{}, map[string]string{}
	for _, c := range h.Cluster.Scan(h.UIDTable()) {
		kind := string(c.Qualifier) + " "
		switch {
		case bytes.Equal(c.Row, []byte{0}) && c.Family == "id":
			continue // the counters
		case c.Family == "id":
			forward[kind+string(c.Row)] = string(c.Value)
		case c.Family == "name":
			reverse[kind+string(c.Row)] = string(c.Value)
		}
	}
	for name, uid := range forward {
		kind, text, _ := strings.Cut(name, " ")
		if back := reverse[kind+" "+uid]; back != text {
			t.Errorf("%s %q has the UID %x, which belongs to %q", kind, text, uid, back)
		}
	}
	return forward
}
