package peer

import (
	"context"
	"net/http"
	"sync"
)

// memory is what one request has learnt of peers, by their writers. What is acknowledged after a request has come need
// not be in its answer: therefore, what a peer said that it does not hold it need not be asked for again within the
// request. A nil one remembers nothing.
type memory struct {
	mu     sync.Mutex        // guards what follows
	failed map[string]error  // why it did not answer
	oldest map[string]uint32 // it held nothing below this base time
}

type memoryKey struct{}

// Remember has a Group remember, while next serves a request, which peers did not answer and what they said: no request
// waits twice for one that hangs.
func Remember(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m := &memory{failed: map[string]error{}, oldest: map[string]uint32{}}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), memoryKey{}, m)))
	})
}

func memoryOf(ctx context.Context) *memory {
	m, _ := ctx.Value(memoryKey{}).(*memory)
	return m
}

// answerKnown says whether a peer need not be asked for hours up to one, and why it cannot be.
func (m *memory) answerKnown(writer string, to uint32) (known bool, failure error) {
	if m == nil {
		return false, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if failure = m.failed[writer]; failure != nil {
		return true, failure
	}
	oldest, told := m.oldest[writer]
	return told && to < oldest, nil
}

func (m *memory) fail(writer string, failure error) {
	if m != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.failed[writer] = failure
	}
}

func (m *memory) hold(writer string, oldest uint32) {
	if m != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.oldest[writer] = max(m.oldest[writer], oldest)
	}
}
