package client_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/promtsd/promtsd/store/hbase/client"
)

func TestIncrement_CountsEachOnce(t *testing.T) {
	c := dial(t, nil)
	at := client.Coord{Table: table(t, c), Row: []byte("row"), Family: "f", Qualifier: []byte("n")}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var sums []int64
	for range 20 {
		wg.Go(func() {
			for range 5 {
				sum, err := c.Increment(t.Context(), at, 2)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				sums = append(sums, sum)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(sums)
	for i, sum := range sums {
		if want := int64(2 * (i + 1)); sum != want {
			t.Fatalf("sum %d is %d, want %d: %v", i, sum, want, sums)
		}
	}
	if got, err := c.Increment(t.Context(), at, -200); err != nil || got != 0 {
		t.Errorf("got %d and error %v, want 0", got, err)
	}
}

func TestCheckAndPutAll_OneWinsEachCell(t *testing.T) {
	c := dial(t, nil)
	name := table(t, c, "000100")
	const cells = 200
	wins := make([][]bool, 4)
	var wg sync.WaitGroup
	for w := range wins {
		wg.Go(func() {
			checks := make([]client.Check, cells)
			for i := range checks {
				checks[i] = client.Check{
					Coord: client.Coord{Table: name, Row: key(i), Family: "f", Qualifier: []byte("q")},
					Value: fmt.Append(nil, w),
				}
			}
			var err error
			if wins[w], err = c.CheckAndPutAll(t.Context(), checks); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	rows := scan(t, c, client.Scan{Table: name})
	if len(rows) != cells {
		t.Fatalf("got %d rows, want %d", len(rows), cells)
	}
	for i, row := range rows {
		var winners []int
		for w := range wins {
			if wins[w][i] {
				winners = append(winners, w)
			}
		}
		if len(winners) != 1 || !strings.HasPrefix(row, fmt.Sprintf("%s: f.q@", key(i))) ||
			!strings.HasSuffix(row, fmt.Sprintf("=%d", winners[0])) {
			t.Errorf("cell %d: winners %v, and stored is %q", i, winners, row)
		}
	}
}

func TestCheckAndPut_ComparesTheValue(t *testing.T) {
	c := dial(t, nil)
	at := client.Coord{Table: table(t, c), Row: []byte("row"), Family: "f"}
	for _, test := range []struct {
		expect string
		value  string
		want   bool
	}{{"x", "a", false}, {"", "a", true}, {"", "b", false}, {"b", "c", false}, {"a", "c", true}, {"c", "c", true}} {
		check := client.Check{Coord: at, Value: []byte(test.value)}
		if test.expect != "" {
			check.Expect = []byte(test.expect)
		}
		if got, err := c.CheckAndPut(t.Context(), check); got != test.want || err != nil {
			t.Errorf("%q over %q: got %t and error %v, want %t", test.value, test.expect, got, err, test.want)
		}
	}
}
