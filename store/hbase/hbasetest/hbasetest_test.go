package hbasetest_test

import (
	"fmt"
	"net"
	"os"
	"slices"
	"testing"

	"github.com/promtsd/promtsd/store/hbase/hbasetest"
)

var shared hbasetest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// cells returns n cells in the order of their rows, each with a value of its own.
func cells(n int) []hbasetest.Cell {
	cells := make([]hbasetest.Cell, n)
	for i := range cells {
		cells[i] = hbasetest.Cell{
			Row:       fmt.Appendf(nil, "%08x", uint32(i)*2654435761),
			Family:    "f",
			Qualifier: []byte{byte(i), byte(i >> 8)},
			Timestamp: 1_700_000_000_000 + int64(i),
			Value:     fmt.Append(nil, i),
		}
	}
	slices.SortFunc(cells, func(a, b hbasetest.Cell) int { return slices.Compare(a.Row, b.Row) })
	return cells
}

// assertCells compares what a table holds with what it shall hold, in order.
func assertCells(t *testing.T, got, want []hbasetest.Cell) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d cells, want %d", len(got), len(want))
	}
	for i := range want {
		if fmt.Sprint(got[i]) != fmt.Sprint(want[i]) {
			t.Fatalf("cell %d: got %+v, want %+v", i, got[i], want[i])
		}
	}
}

func TestStandalone_ServesAtItsAddresses(t *testing.T) {
	cluster := hbasetest.Join(t)
	for _, addr := range []string{cluster.ZK(), cluster.Master().Addr(), cluster.RegionServers()[0].Addr()} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Errorf("dial %s: %v", addr, err)
			continue
		}
		conn.Close()
	}
}

func TestStandalone_KeepsCells(t *testing.T) {
	cluster := hbasetest.Join(t)
	cluster.CreateTables(hbasetest.Table{Name: "keeps", Families: []string{"f"}, Splits: [][]byte{{'8'}}})
	want := append(cells(1000), hbasetest.Cell{Row: []byte{0xff}, Family: "f", Qualifier: nil, Timestamp: 1, Value: nil})
	cluster.Put("keeps", want)
	assertCells(t, cluster.Scan("keeps"), want)
}
