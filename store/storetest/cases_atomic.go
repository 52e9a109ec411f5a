package storetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/promtsd/promtsd/store"
)

const (
	racers = 8  // goroutines of a race
	rounds = 25 // calls of each
)

// race runs f on many goroutines and waits for them.
func race(f func(racer int)) {
	var wg sync.WaitGroup
	for i := range racers {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

func coord(row, qualifier string) store.Coord {
	return store.Coord{Table: "data", Row: []byte(row), Family: "f", Qualifier: []byte(qualifier)}
}

// check makes one check; it reports errors and then says false.
func (f *fixture) check(row, qualifier string, expect, value []byte) bool {
	f.Helper()
	put, err := f.CheckAndPut(f.Context(), []store.Check{{Coord: coord(row, qualifier), Expect: expect, Value: value}})
	if err != nil || len(put) != 1 {
		f.Errorf("CheckAndPut(%s %s, %q -> %q) = %v, %v", row, qualifier, expect, value, put, err)
		return false
	}
	return put[0]
}

// remove makes one check that removes; it reports errors and then says false.
func (f *fixture) remove(row, qualifier string, expect []byte) bool {
	f.Helper()
	done, err := f.CheckAndPut(f.Context(), []store.Check{{Coord: coord(row, qualifier), Expect: expect, Delete: true}})
	if err != nil || len(done) != 1 {
		f.Errorf("CheckAndPut(%s %s, %q -> none) = %v, %v", row, qualifier, expect, done, err)
		return false
	}
	return done[0]
}

func (f *fixture) increment(row, qualifier string, delta int64) int64 {
	f.Helper()
	sum, err := f.Increment(f.Context(), coord(row, qualifier), delta)
	if err != nil {
		f.Errorf("Increment(%s %s, %d): %v", row, qualifier, delta, err)
	}
	return sum
}

func number(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func atomicCases() []testCase {
	return []testCase{
		{"increment counts from nothing", func(f *fixture) {
			for _, c := range []struct{ delta, want int64 }{{0, 0}, {1, 1}, {41, 42}, {-50, -8}, {1 << 40, 1<<40 - 8}} {
				if got := f.increment("r", "n", c.delta); got != c.want {
					f.Errorf("Increment(%d) = %d, want %d", c.delta, got, c.want)
				}
			}
			if got, _ := f.value("r", "n"); got != string(number(1<<40-8)) {
				f.Errorf("the cell holds %x, want %x", got, number(1<<40-8))
			}
		}},
		{"increment goes on from a put", func(f *fixture) {
			f.apply(func(b *store.Batch) { b.Put("data", []byte("r"), "f", []byte("n"), 0, number(7)) })
			if got := f.increment("r", "n", 3); got != 10 {
				f.Errorf("Increment = %d, want 10", got)
			}
		}},
		{"increment refuses what is no number", func(f *fixture) {
			f.apply(func(b *store.Batch) {
				b.Put("data", []byte("r"), "f", []byte("text"), 0, []byte("1"))
				b.Put("data", []byte("r"), "f", []byte("empty"), 0, nil)
				b.Put("data", []byte("r"), "f", []byte("long"), 0, make([]byte, 9))
			})
			for _, q := range []string{"text", "empty", "long"} {
				if _, err := f.Increment(f.Context(), coord("r", q), 1); !errors.Is(err, store.ErrInvalid) {
					f.Errorf("Increment of %s = %v, want ErrInvalid", q, err)
				}
			}
			if _, err := f.Increment(f.Context(), coord("", "q"), 1); !errors.Is(err, store.ErrInvalid) {
				f.Errorf("Increment of the empty row = %v, want ErrInvalid", err)
			}
		}},
		{"racing increments return distinct numbers", func(f *fixture) {
			got := make([][]int64, racers)
			race(func(racer int) {
				for range rounds {
					got[racer] = append(got[racer], f.increment("r", "n", 1))
				}
			})
			all := slices.Sorted(slices.Values(slices.Concat(got...)))
			for i, n := range all {
				if n != int64(i+1) {
					f.Fatalf("number %d is %d: %v", i+1, n, all)
				}
			}
			for _, numbers := range got {
				if !slices.IsSorted(numbers) {
					f.Errorf("one caller saw the numbers %v", numbers)
				}
			}
		}},
		{"check and put sees absent, equal and different", func(f *fixture) {
			f.apply(func(b *store.Batch) { b.Put("data", []byte("r"), "f", []byte("empty"), 0, nil) })
			for i, c := range []struct {
				qualifier     string
				expect, value []byte
				want          bool
			}{
				{"q", []byte("x"), []byte("0"), false},
				{"q", []byte{}, []byte("0"), true},
				{"q", []byte("0"), []byte("1"), true},
				{"q", nil, []byte("2"), false},
				{"q", []byte("2"), []byte("3"), false},
				{"q", []byte("11"), []byte("3"), false},
				{"q", []byte{}, []byte("3"), false},
				{"q", []byte("1"), []byte("1"), true},
				{"q", []byte("1"), nil, true},
				{"q", []byte("1"), []byte("4"), false},
				{"q", nil, []byte("5"), true},
				{"empty", []byte("6"), []byte("6"), false},
				{"empty", []byte{}, []byte("7"), true},
				{"absent", nil, []byte("8"), true},
			} {
				if got := f.check("r", c.qualifier, c.expect, c.value); got != c.want {
					f.Errorf("%d: CheckAndPut(%s, %q -> %q) = %t, want %t", i, c.qualifier, c.expect, c.value, got, c.want)
				}
			}
			f.wantRows("get", f.get([]string{"r"}), "r f:absent=8 f:empty=7 f:q=5")
		}},
		{"checks of one call are independent", func(f *fixture) {
			f.put("a q 1", "b q 1")
			checks := []store.Check{
				{Coord: coord("b", "q"), Expect: []byte("1"), Value: []byte("2")},
				{Coord: coord("a", "q"), Value: []byte("2")},
				{Coord: coord("c", "q"), Value: []byte("2")},
				{Coord: coord("a", "p"), Value: []byte("2")},
			}
			got, err := f.CheckAndPut(f.Context(), checks)
			if want := []bool{true, false, true, true}; err != nil || !slices.Equal(got, want) {
				f.Errorf("CheckAndPut = %v, %v, want %v", got, err, want)
			}
			f.wantRows("scan", f.scan(store.Scan{}), "a f:p=2 f:q=1", "b f:q=2", "c f:q=2")
			if got, err := f.CheckAndPut(f.Context(), nil); err != nil || len(got) != 0 {
				f.Errorf("CheckAndPut(nil) = %v, %v", got, err)
			}
		}},
		{"check and put after a delete finds nothing", func(f *fixture) {
			f.apply(func(b *store.Batch) { b.Put("data", []byte("r"), "f", []byte("q"), 10, []byte("1")) })
			f.apply(func(b *store.Batch) { b.Delete("data", []byte("r"), "f", []byte("q"), 11) })
			if !f.check("r", "q", nil, []byte("2")) {
				f.Error("CheckAndPut on a deleted cell = false, want true")
			}
		}},
		{"a check removes what it expects", func(f *fixture) {
			f.put("r other 1")
			f.check("r", "q", nil, []byte("1"))
			f.check("r", "q", []byte("1"), []byte("2"))
			for i, c := range []struct {
				qualifier, expect string
				want              bool
			}{{"q", "1", false}, {"absent", "1", false}, {"q", "2", true}, {"q", "2", false}, {"q", "1", false},
				{"other", "1", true}} {
				if got := f.remove("r", c.qualifier, []byte(c.expect)); got != c.want {
					f.Errorf("%d: the removal of %s where it is %q = %t, want %t", i, c.qualifier, c.expect, got, c.want)
				}
			}
			f.wantRows("get", f.get([]string{"r"}))
			for name, c := range map[string]store.Check{
				"nothing expected": {Coord: coord("r", "q"), Delete: true},
				"a value":          {Coord: coord("r", "q"), Delete: true, Expect: []byte("1"), Value: []byte("1")},
			} {
				if _, err := f.CheckAndPut(f.Context(), []store.Check{c}); !errors.Is(err, store.ErrInvalid) {
					f.Errorf("a removal with %s = %v, want ErrInvalid", name, err)
				}
			}
		}},
		{"a check removes what a clock ahead of the store's has stamped", func(f *fixture) {
			later := time.Now().Add(time.Hour).UnixMilli()
			for step := range 3 {
				row := fmt.Sprint("r", step)
				f.apply(func(b *store.Batch) { b.Put("data", []byte(row), "f", []byte("q"), later, []byte("0")) })
				for i := range step { // which are stamped no earlier
					f.check(row, "q", fmt.Append(nil, i), fmt.Append(nil, i+1))
				}
				if !f.remove(row, "q", fmt.Append(nil, step)) {
					f.Errorf("%d: not removed", step)
				}
			}
			f.wantRows("scan", f.scan(store.Scan{}))
		}},
		{"one of the racers for a removal wins", func(f *fixture) {
			for cell := range rounds {
				row := fmt.Sprint("r", cell)
				f.check(row, "q", nil, []byte("1"))
				var won [racers]bool
				race(func(racer int) {
					if racer%2 == 0 {
						won[racer] = f.remove(row, "q", []byte("1"))
					} else {
						won[racer] = f.check(row, "q", []byte("1"), []byte{byte(racer)})
					}
				})
				value, ok := f.value(row, "q")
				for racer, w := range won {
					if racer%2 == 1 && w != (ok && value == string([]byte{byte(racer)})) || racer%2 == 0 && w && ok {
						f.Errorf("winners %v of a cell that holds %q (%t)", won, value, ok)
					}
				}
			}
		}},
		{"one of the racers for an absent cell wins", func(f *fixture) {
			for cell := range rounds {
				row, won := fmt.Sprint("r", cell), make([]bool, racers)
				race(func(racer int) { won[racer] = f.check(row, "q", nil, []byte{byte(racer)}) })
				value, _ := f.value(row, "q")
				for racer, w := range won {
					if w != (value == string([]byte{byte(racer)})) {
						f.Errorf("winners %v of a cell that holds %q", won, value)
					}
				}
			}
		}},
		{"racing compare-and-swap loses no update", func(f *fixture) {
			f.apply(func(b *store.Batch) { b.Put("data", []byte("r"), "f", []byte("n"), 0, number(0)) })
			race(func(racer int) {
				for range rounds {
					if racer%2 == 0 {
						f.increment("r", "n", 1)
						continue
					}
					for !f.Failed() {
						old, _ := f.value("r", "n")
						next := number(int64(binary.BigEndian.Uint64([]byte(old))) + 1)
						if f.check("r", "n", []byte(old), next) {
							break
						}
					}
				}
			})
			if got, _ := f.value("r", "n"); got != string(number(racers*rounds)) {
				f.Errorf("the cell holds %x after %d increments", got, racers*rounds)
			}
		}},
		{"a put is never lost between the halves of a check", func(f *fixture) {
			// One racer puts once, with a timestamp above all that the others give; they swap 0 for 0, as often as they like.
			// A swap that read before the put and wrote after it would take the put back.
			later := time.Now().Add(time.Hour).UnixMilli()
			for cell := range rounds {
				row := fmt.Sprint("r", cell)
				f.put(row + " q 0")
				race(func(racer int) {
					if racer == 0 {
						f.apply(func(b *store.Batch) { b.Put("data", []byte(row), "f", []byte("q"), later, []byte("1")) })
						return
					}
					for range 5 {
						f.check(row, "q", []byte("0"), []byte("0"))
					}
				})
				if got, _ := f.value(row, "q"); got != "1" {
					f.Fatalf("the cell holds %q after a put of 1", got)
				}
			}
		}},
	}
}
