package client_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/promtsd/promtsd/store/hbase/client"
)

// lossy is a connection that loses the answer that comes next, and breaks, once lose is set.
type lossy struct {
	net.Conn
	lose   *atomic.Bool
	losing func() // called before the connection breaks
}

func (l *lossy) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if n > 0 && l.lose.CompareAndSwap(true, false) {
		l.losing()
		_ = l.Conn.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

// The answer to an increment is lost, and until it is repeated others count on, and the table is flushed. A server that
// recognizes the repetition answers what it finds of the cell as it was then, which is the number in the file before:
// one that somebody has already.
func TestIncrement_GivesNoNumberTwiceWhenAnswersAreLost(t *testing.T) {
	others := dial(t, nil)
	at := client.Coord{Table: table(t, others), Row: []byte("row"), Family: "f", Qualifier: []byte("n")}
	var sums []int64
	increment := func(c *client.Client) {
		sum, err := c.Increment(t.Context(), at, 10)
		if err != nil {
			t.Error(err)
		}
		sums = append(sums, sum)
	}
	flush := func() {
		if err := others.FlushTable(t.Context(), at.Table); err != nil {
			t.Error(err)
		}
	}
	for range 3 {
		increment(others)
	}
	flush()
	var lose atomic.Bool
	c := dial(t, func(cfg *client.Config) {
		cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &lossy{conn, &lose, func() {
				for range 3 {
					increment(others)
				}
				flush()
			}}, err
		}
	})
	increment(c)
	lose.Store(true)
	increment(c)
	increment(c)
	if lose.Load() || len(sums) != 9 {
		t.Fatalf("no answer was lost: %v", sums)
	}
	for i, sum := range sums[1:] {
		if sum <= sums[i] {
			t.Fatalf("sums do not ascend: %v", sums)
		}
	}
}
