package child

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"
)

// pollInterval is the pause between two looks at a condition that cannot be waited for.
const pollInterval = 50 * time.Millisecond

// ErrHopeless is what a condition of Until wraps when it cannot become true any more.
var ErrHopeless = errors.New("it will not happen any more")

// Until polls cond until it returns nil, or an error that wraps ErrHopeless, for as long as patience lasts; its own
// error is cond's last one.
func Until(ctx context.Context, patience time.Duration, cond func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := cond(ctx)
		if err == nil || errors.Is(err, ErrHopeless) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("gave up (%w); the last look said: %w", ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// FreePort finds a TCP port of 127.0.0.1 that nobody listens on, below the range from which systems take the ports of
// outgoing connections. In that range a client that keeps trying to reach a killed server can meet itself, and the
// server finds its port taken when it comes back.
func FreePort() (int, error) {
	const low, high, tries = 10000, 32000, 100
	var err error
	for range tries {
		port := low + rand.IntN(high-low)
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("find a free port from %d to %d: %w", low, high, err)
}

// Lock waits until this process is the only one that holds the lock file, so that of several test binaries that want
// the same thing one makes it and the others wait. The system lets go of the lock when its holder dies.
func Lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { file.Close() }, nil
}
