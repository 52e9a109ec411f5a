package pack_test

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestAppend_CellsOfOpenTSDBComeBack packs what a real OpenTSDB stored; see testdata/opentsdb/README.md. Its cells have
// few points, so that most do not become smaller; therefore each is also taken many times over.
func TestAppend_CellsOfOpenTSDBComeBack(t *testing.T) {
	files, err := filepath.Glob("../../testdata/opentsdb/*/cells*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden cells: %v", err)
	}
	cells, packed, repeated := 0, 0, 0
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(bytes.NewReader(content))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			c, err := goldenCell(lines.Bytes())
			if err != nil {
				t.Fatalf("%s: cell %s: %v", file, lines.Bytes(), err)
			}
			if len(c.qualifier) < 4 || len(c.qualifier)%2 != 0 || len(c.value) == 0 {
				continue
			}
			cells++
			if checkAppend(t, c) {
				packed++
			}
			// The trailing byte stands once at the end.
			const times = 20
			end := len(c.value) - 1
			many := cell{
				qualifier: bytes.Repeat(c.qualifier, times),
				value:     append(bytes.Repeat(c.value[:end], times), c.value[end]),
			}
			if checkAppend(t, many) {
				repeated++
			}
		}
		if err := lines.Err(); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	if cells == 0 || repeated == 0 {
		t.Errorf("got %d cells, %d packed many times over, want more", cells, repeated)
	}
	t.Logf("of %d cells, %d are smaller packed, and %d are when taken many times over", cells, packed, repeated)
}

func goldenCell(line []byte) (cell, error) {
	var texts struct{ Qualifier, Value string }
	if err := json.Unmarshal(line, &texts); err != nil {
		return cell{}, err
	}
	qualifier, err := hex.DecodeString(texts.Qualifier)
	if err != nil {
		return cell{}, err
	}
	value, err := hex.DecodeString(texts.Value)
	return cell{qualifier: qualifier, value: value}, err
}
