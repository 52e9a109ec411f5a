package main

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"
	"github.com/alecthomas/units"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/store/pebble"
)

// fitted returns the memory that the flags of serve stand for, with some arguments under a memory limit.
func fitted(t *testing.T, limit int64, args ...string) map[string]int64 {
	t.Helper()
	app := kingpin.New("promtsd", "")
	name, _ := addServe(app)
	cmd := app.GetCommand(name)
	fit := fitMemory(cmd)
	if _, err := app.Parse(append([]string{name}, args...)); err != nil {
		t.Fatal(err)
	}
	if err := fit(limit); err != nil {
		t.Fatal(err)
	}
	memory := map[string]int64{}
	for _, s := range memoryShares() {
		value := cmd.GetFlag(s.flag).Model().Value.String()
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			bytes, err := units.ParseBase2Bytes(value)
			if err != nil {
				t.Fatalf("--%s=%s: %v", s.flag, value, err)
			}
			n = int64(bytes)
		}
		memory[s.flag] = n * s.each
	}
	return memory
}

func TestFitMemory_AllTogetherStayBelowTheLimit(t *testing.T) {
	for _, limit := range []int64{64 << 20, 900 << 20, 2 << 30, 4 << 30, 64 << 30} {
		sum := limit / queryShare
		for flag, bytes := range fitted(t, limit) {
			if bytes < 1<<20 {
				t.Errorf("limit %d: --%s is left %d bytes", limit, flag, bytes)
			}
			sum += bytes
		}
		if sum > limit/10*9 {
			t.Errorf("limit %d: the parts are %d together, and leave nothing for the rest", limit, sum)
		}
	}
	byDefault := fitted(t, math.MaxInt64)
	if byDefault["store.cache-bytes"] != 256<<20 || byDefault["write.max-buffered-bytes"] != 512<<20 {
		t.Errorf("without a limit: %v", byDefault)
	}
	if large := fitted(t, 64<<30); !slices.Equal(sorted(large), sorted(byDefault)) {
		t.Errorf("with a large limit %v, without one %v", large, byDefault)
	}
}

func sorted(of map[string]int64) (list []string) {
	for flag, bytes := range of {
		list = append(list, flag+"="+strconv.FormatInt(bytes, 10))
	}
	slices.Sort(list)
	return list
}

// What the store takes outside of Go's heap counts as memory of the process, too.
func TestServe_LeavesMemoryToTheStore(t *testing.T) {
	const limit, cache = 1 << 30, 100 << 20
	if (pebble.Config{CacheBytes: cache}).OutsideGo() == 0 {
		t.Skip("this was built without C: the store's memory is Go's")
	}
	t.Setenv("GOMEMLIMIT", strconv.Itoa(limit))
	p := promtest.StartPromtsd(t, promtest.PromtsdConfig{Args: []string{"--store.cache-bytes=100MiB"}})
	got, err := promtest.Metric(t.Context(), p.URL(), "go_gc_gomemlimit_bytes")
	if err != nil || got > limit-cache || got < limit*3/4 {
		t.Errorf("Go's runtime may have %.0f bytes of %d, %v; the store's cache has %d", got, limit, err, cache)
	}
}

func TestFitMemory_LeavesWhatWasGiven(t *testing.T) {
	got := fitted(t, 900<<20, "--store.cache-bytes=700MiB", "--index.max-series=3000000")
	if got["store.cache-bytes"] != 700<<20 || got["index.max-series"] != 3_000_000*400 {
		t.Errorf("what was given became %v", strings.Join(sorted(got), ", "))
	}
	if got["write.max-buffered-bytes"] > 900<<20/7 {
		t.Errorf("what was not given is %v", strings.Join(sorted(got), ", "))
	}
}
