package hbasetest

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Table describes a table to create. Its families keep one version.
type Table struct {
	// Name is the table's name.
	Name string
	// Families are the names of its column families, at least one.
	Families []string
	// Splits are the first rows of all its regions but the first; none by default.
	Splits [][]byte
}

// Cell is a cell as HBase's own Java client sees it.
type Cell struct {
	Row       []byte
	Family    string
	Qualifier []byte
	// Timestamp is in milliseconds; a cell to be put with ServerTime leaves it to the region server.
	Timestamp int64
	Value     []byte
}

// ServerTime is the timestamp of a cell that takes the region server's clock when it is put.
const ServerTime = -1

// CreateTables creates tables by HBase's own Java client, and returns when they can be used.
func (c *Cluster) CreateTables(tables ...Table) {
	c.t.Helper()
	for _, table := range tables {
		splits := make([]string, len(table.Splits))
		for i, split := range table.Splits {
			splits[i] = hex.EncodeToString(split)
		}
		words := []string{"create", table.Name, strings.Join(table.Families, ","), strings.Join(splits, ",")}
		// Without splits the last word is empty, and the client takes it for absent.
		if _, err := c.sys.client.ask(strings.Join(words, " ")); err != nil {
			c.t.Fatalf("create table %s: %v", table.Name, err)
		}
	}
}

// Put stores cells by HBase's own Java client and returns when all are acknowledged.
func (c *Cluster) Put(table string, cells []Cell) {
	c.t.Helper()
	question := []string{fmt.Sprintf("put %s %d", table, len(cells))}
	for _, cell := range cells {
		question = append(question, fmt.Sprintf("%s %s %s %d %s",
			word(cell.Row), word([]byte(cell.Family)), word(cell.Qualifier), cell.Timestamp, word(cell.Value)))
	}
	if _, err := c.sys.client.ask(question...); err != nil {
		c.t.Fatalf("put %d cells into %s: %v", len(cells), table, err)
	}
}

// Scan returns all cells of a table in the order of HBase, read by HBase's own Java client.
func (c *Cluster) Scan(table string) []Cell {
	c.t.Helper()
	lines, err := c.sys.client.ask("scan " + table)
	if err != nil {
		c.t.Fatalf("scan %s: %v", table, err)
	}
	cells := make([]Cell, len(lines))
	for i, line := range lines {
		if cells[i], err = parseCell(line); err != nil {
			c.t.Fatalf("scan %s: %v", table, err)
		}
	}
	return cells
}

// RowsRead is how many rows the regions of a table have met so far, for gets and scans, whether they were sent or a
// filter passed over them.
func (c *Cluster) RowsRead(table string) int {
	c.t.Helper()
	lines, err := c.sys.client.ask("reads " + table)
	if err != nil {
		c.t.Fatalf("count the rows read of %s: %v", table, err)
	}
	n, err := strconv.Atoi(lines[0])
	if err != nil {
		c.t.Fatalf("count the rows read of %s: %v", table, err)
	}
	return n
}

// word writes bytes as the Java client does.
func word(b []byte) string {
	if len(b) == 0 {
		return "-"
	}
	return hex.EncodeToString(b)
}

// parseCell reads a cell as the Java client writes it.
func parseCell(line string) (Cell, error) {
	words := strings.Split(line, " ")
	if len(words) != 5 {
		return Cell{}, fmt.Errorf("parse cell %q: it has %d words, not 5", line, len(words))
	}
	var parts [5][]byte
	for _, i := range []int{0, 1, 2, 4} {
		if words[i] == "-" {
			continue
		}
		var err error
		if parts[i], err = hex.DecodeString(words[i]); err != nil {
			return Cell{}, fmt.Errorf("parse cell %q: %w", line, err)
		}
	}
	timestamp, err := strconv.ParseInt(words[3], 10, 64)
	if err != nil {
		return Cell{}, fmt.Errorf("parse cell %q: %w", line, err)
	}
	return Cell{parts[0], string(parts[1]), parts[2], timestamp, parts[4]}, nil
}
