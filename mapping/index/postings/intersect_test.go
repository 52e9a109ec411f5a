package postings

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestIntersect_KeepsWhatIsInBoth(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		numbers := rapid.Map(rapid.SliceOf(rapid.Uint32Range(0, 50)), func(s []uint32) []uint32 {
			slices.Sort(s)
			return slices.Compact(s)
		})
		a, b := numbers.Draw(rt, "a"), numbers.Draw(rt, "b")
		want := slices.DeleteFunc(slices.Clone(a), func(n uint32) bool { return !slices.Contains(b, n) })
		if got := intersect(a, b); !slices.Equal(got, want) {
			rt.Fatalf("%v and %v: got %v, want %v", a, b, got, want)
		}
	})
}
