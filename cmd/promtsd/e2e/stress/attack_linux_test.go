package stress_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
)

// stressAttack is what hostile strangers do, each again and again.
type stressAttack struct {
	name    string
	clients int
	// want are the answers that they may get: a status, and what its text has of the limit. The first has to come. Where
	// there is none, any answer will do.
	want   []string
	strike func(c *stressClient)
}

// stressBusy is what anybody may be answered while others attack.
var stressBusy = []string{
	"503 --query.max-total-memory-bytes", "503 --write.max-in-flight-bytes", "503 --write.max-buffered-bytes",
	"503 query timed out",
	"503 --read.max-concurrent", "503 --query.max-concurrency", "400 active_series_limit", "400 new_names_limit",
}

// stressRun is one attack while it goes on.
type stressRun struct {
	*stressAttack
	mu       sync.Mutex     // guards what follows
	met      map[string]int // answers by status, or what came instead
	odd      []string       // answers that may not be
	seen     bool           // the answer that has to come
	answered chan struct{}  // closed then
}

// await returns when the answer that has to come has come, or after some time.
func (r *stressRun) await(patience time.Duration) {
	if len(r.want) == 0 {
		return
	}
	select {
	case <-r.answered:
	case <-time.After(patience):
	}
}

// answer notes one.
func (r *stressRun) answer(code int, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.met[strconv.Itoa(code)]++
	is := func(want string) bool {
		status, part, _ := strings.Cut(want, " ")
		return status == strconv.Itoa(code) && strings.Contains(text, part)
	}
	if len(r.want) > 0 && is(r.want[0]) {
		if !r.seen {
			r.seen = true
			close(r.answered)
		}
		return
	}
	if len(r.want) > 0 && !slices.ContainsFunc(r.want, is) && !slices.ContainsFunc(stressBusy, is) {
		r.odd = append(r.odd, fmt.Sprintf("%d %.300s", code, text))
	}
}

// none notes that there was no answer.
func (r *stressRun) none(err error) {
	text := err.Error()
	if at := strings.LastIndex(text, ": "); at >= 0 {
		text = text[at+2:]
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.met[text]++
}

// problems are what was wrong with the answers. beside others the one that has to come need not.
func (r *stressRun) problems(mixed bool) (list []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.odd) > 0 {
		list = append(list, fmt.Sprintf("%d answers of %s are none of %q, such as %s", len(r.odd), r.name, r.want, r.odd[0]))
	}
	if len(r.want) > 0 && !r.seen && !mixed {
		list = append(list, fmt.Sprintf("no answer was %q, but %v", r.want[0], r.met))
	}
	return list
}

func (r *stressRun) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	parts := []string{r.name + ":"}
	for _, what := range slices.Sorted(maps.Keys(r.met)) {
		parts = append(parts, fmt.Sprintf("%d x %s", r.met[what], what))
	}
	return strings.Join(parts, " ")
}

// stressClient is one of those who make an attack.
type stressClient struct {
	*stress
	*stressRun
	ctx    context.Context // of the attack
	client *http.Client
	random *rand.Rand
	number int
	turn   int
}

// attackers is the address from which all attacks come.
var attackers = net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Timeout: 5 * time.Second}

func newStressClient(x *stress, run *stressRun, number int) *stressClient {
	return &stressClient{
		stress: x, stressRun: run, number: number, random: rand.New(rand.NewPCG(*stressSeed, uint64(number))),
		client: &http.Client{Transport: &http.Transport{DialContext: attackers.DialContext, DisableCompression: true}},
	}
}

// run strikes until ctx ends.
func (c *stressClient) run(ctx context.Context) {
	c.ctx = ctx
	defer c.client.CloseIdleConnections()
	for ; ctx.Err() == nil; c.turn++ {
		c.strike(c)
		promtest.Sleep(ctx, 5*time.Millisecond) // the attackers' work is done by the same processors
	}
}

// exchange makes a request and returns the answer, of which text is what comes first.
func exchange(client *http.Client, req *http.Request) (code int, text string, header http.Header, err error) {
	res, err := client.Do(req)
	if err != nil {
		return 0, "", nil, err
	}
	defer res.Body.Close()
	said, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if err == nil {
		_, err = io.Copy(io.Discard, res.Body)
	}
	return res.StatusCode, string(said), res.Header, err
}

// do makes a request, with headers as name and value in turn.
func (c *stressClient) do(method, path string, body io.Reader, headers ...string) {
	req, err := http.NewRequestWithContext(c.ctx, method, c.promtsd.URL()+path, body)
	if err != nil {
		c.none(err)
		return
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	code, text, _, err := exchange(c.client, req)
	switch {
	case c.ctx.Err() != nil && (err != nil || code == http.StatusServiceUnavailable):
		c.none(context.Canceled)
	case err != nil:
		c.none(err)
	default:
		c.answer(code, text)
	}
}

// asking is an attack that asks at a path. A form that is too long for an address is posted.
func asking(path string, keysAndValues ...string) func(*stressClient) {
	form := url.Values{}
	for i := 0; i < len(keysAndValues); i += 2 {
		form.Add(keysAndValues[i], keysAndValues[i+1])
	}
	encoded := form.Encode()
	return func(c *stressClient) {
		if len(encoded) < 32<<10 {
			c.do(http.MethodGet, path+"?"+encoded, nil)
			return
		}
		c.do(http.MethodPost, path, strings.NewReader(encoded), "Content-Type", "application/x-www-form-urlencoded")
	}
}

// posting is an attack that posts a body, which is made once.
func posting(path, contentType, encoding string, body func() []byte) func(*stressClient) {
	content := sync.OnceValue(body)
	return func(c *stressClient) {
		headers := []string{"Content-Type", contentType}
		if encoding != "" {
			headers = append(headers, "Content-Encoding", encoding)
		}
		c.do(http.MethodPost, path, bytes.NewReader(content()), headers...)
	}
}

// anyOf makes one of some strikes after the other.
func anyOf(strikes ...func(*stressClient)) func(*stressClient) {
	return func(c *stressClient) { strikes[(c.turn+c.number)%len(strikes)](c) }
}

// leaving makes a strike whose answer is not waited for.
func leaving(strike func(*stressClient)) func(*stressClient) {
	return func(c *stressClient) {
		alone := *c
		ctx, cancel := context.WithTimeout(c.ctx, time.Duration(c.random.IntN(200))*time.Millisecond)
		defer cancel()
		alone.ctx = ctx
		strike(&alone)
	}
}

// holding opens connections, says the same on each, and has them stay until promtsd or the attack ends. more is called
// with each then.
func holding(connections int, said func() []byte, more func(c *stressClient, conn net.Conn)) func(*stressClient) {
	content := sync.OnceValue(said)
	return func(c *stressClient) {
		var all sync.WaitGroup
		defer all.Wait()
		for range connections {
			conn, err := attackers.DialContext(c.ctx, "tcp", c.promtsd.Addr())
			if err != nil {
				c.none(err)
				continue
			}
			all.Go(func() {
				defer conn.Close()
				over := context.AfterFunc(c.ctx, func() { _ = conn.Close() })
				defer over()
				if _, err := conn.Write(content()); err != nil {
					c.none(err)
					return
				}
				if more != nil {
					more(c, conn)
				}
				c.hear(conn)
			})
		}
	}
}

// hear waits for the answer of a connection.
func (c *stressClient) hear(conn net.Conn) {
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		c.none(err)
		return
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	c.answer(res.StatusCode, string(text))
}

// said is a text for holding.
func said(text string) func() []byte { return func() []byte { return []byte(text) } }

// head is the beginning of a POST whose body is to have so many bytes.
func head(path, contentType string, length int) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", path,
		contentType, length)
}
