package pebble

import "sync"

// pendingBytes bounds the batches of writes that have not ended, those whose callers gave up included: on a disk that
// does not answer, each stays in memory.
const pendingBytes = 64 << 20

// pendingWrites counts the writes that have not ended. The zero value is ready.
type pendingWrites struct {
	mu    sync.Mutex
	bytes int           // guarded by mu
	count int           // guarded by mu
	ended uint64        // guarded by mu: writes that ended so far
	left  chan struct{} // guarded by mu: closed when a write ends; nil: nobody waits
}

// enter lets a write of some bytes in, which leave must be told of, if there is room for it or it is alone. Else it
// returns a channel that is closed when it should be tried again.
func (p *pendingWrites) enter(size int) (left <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count == 0 || p.bytes+size <= pendingBytes {
		p.count++
		p.bytes += size
		return nil
	}
	if p.left == nil {
		p.left = make(chan struct{})
	}
	return p.left
}

func (p *pendingWrites) leave(size int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count--
	p.bytes -= size
	p.ended++
	if p.left != nil {
		close(p.left)
		p.left = nil
	}
}

// progress tells how many writes are under way, and how many have ended.
func (p *pendingWrites) progress() (underWay int, ended uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count, p.ended
}
