package uid_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/store/storetest"
)

func BenchmarkCached(b *testing.B) {
	const n = 100_000
	r := newRegistry(b, config(newFake()))
	names := numbered(tagv, n)
	uids := assign(b, r, names...)
	b.Run("UID", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			if _, ok := r.CachedUID(mapping.Tagv, names[i%n].Text); !ok {
				b.Fatal("not cached")
			}
			i += 7919
		}
	})
	b.Run("UIDHot", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			if _, ok := r.CachedUID(mapping.Tagv, names[i%64].Text); !ok {
				b.Fatal("not cached")
			}
			i++
		}
	})
	b.Run("Text", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			if _, ok := r.CachedText(mapping.Tagv, uids[i%n]); !ok {
				b.Fatal("not cached")
			}
			i += 7919
		}
	})
	b.Run("UIDParallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i += 7919 {
				r.CachedUID(mapping.Tagv, names[i%n].Text)
			}
		})
	})
}

func BenchmarkAssignNew(b *testing.B) {
	const n = 2000
	b.ReportAllocs()
	round := 0
	names := make([]uid.Name, n)
	for b.Loop() {
		b.StopTimer()
		// An empty table each time: it is not the fake's growth that is to be measured.
		r := storetest.Must(uid.New(config(newFake())))
		for i := range names {
			names[i] = tagv(fmt.Sprintf("instance-%d-%d:9100", round, i))
		}
		round++
		b.StartTimer()
		if _, err := r.Assign(context.Background(), names); err != nil {
			b.Fatal(err)
		}
		r.Close()
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "names/s")
}
