package rpc_test

import (
	"testing"

	"github.com/promtsd/promtsd/store/hbase/rpc"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// BenchmarkCall measures a connection with calls in flight from as many goroutines as GOMAXPROCS times 8, against a
// server in this process, whose cost is in the figures.
func BenchmarkCall(b *testing.B) {
	for _, bench := range []struct {
		name  string
		param int
		cells int
	}{{"get", 100, 0}, {"batch of 3000 cells", 36_000, 240_000}} {
		b.Run(bench.name, func(b *testing.B) {
			answer := make([]byte, 64)
			s := serve(b, nil, func(p *peer, q request) { p.answer(q, answer, nil) })
			c, err := rpc.Dial(b.Context(), rpc.Config{Addr: s.listener.Addr().String(), Service: wire.ClientService})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			request := &rpc.Request{Method: "Multi", Param: [][]byte{make([]byte, bench.param)}}
			if bench.cells > 0 {
				request.Cells = [][]byte{make([]byte, bench.cells)}
			}
			b.ReportAllocs()
			b.SetBytes(int64(bench.param + bench.cells))
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					response, err := c.Call(b.Context(), request)
					if err != nil {
						b.Error(err)
						return
					}
					response.Release()
				}
			})
		})
	}
}
