package peer

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// Peer is another promtsd on the store.
type Peer struct {
	Name   string
	URL    string // where it serves; empty: it cannot be asked
	Writer string // whose samples are asked for there; no two have the same
	Note   string // why it cannot be asked
}

// Group is what all promtsd on a store hold. It is safe for concurrent use.
type Group struct {
	Local   Holder                                    // this process
	Peers   func(ctx context.Context) ([]Peer, error) // the others, as of now
	Client  *http.Client
	Timeout time.Duration // for one peer's answer
}

// Held implements query.Holder. All peers are asked at once; one that does not answer is a warning.
func (g *Group) Held(
	ctx context.Context, tsuids [][]byte, from, to uint32, f func(i int, base uint32, points []byte),
) (warnings []error) {
	peers, err := g.Peers(ctx)
	if err != nil {
		warnings = append(warnings, fmt.Errorf("samples of the last minutes may be missing: %w", err))
	}
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex           // guards f and what follows
		failed = map[string]error{} // by writer
	)
	request := appendRequest(nil, tsuids, from, to)
	for _, p := range peers {
		wg.Go(func() {
			rows, err := g.ask(ctx, p, request, len(tsuids))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed[p.Writer] = fmt.Errorf("samples that the promtsd %s holds are missing: %w", p.Name, err)
				return
			}
			for _, r := range rows {
				f(r.i, r.base, r.points)
			}
		})
	}
	mu.Lock()
	warnings = append(warnings, g.Local.Held(ctx, tsuids, from, to, f)...)
	mu.Unlock()
	wg.Wait()
	return append(warnings, g.missing(ctx, failed)...)
}

// missing are the failures that matter, given by writer. One whose lease is gone meanwhile has ended, or was replaced, and
// all its samples are in the data table.
func (g *Group) missing(ctx context.Context, failed map[string]error) (warnings []error) {
	if len(failed) == 0 {
		return nil
	}
	left, err := g.Peers(ctx)
	for writer, failure := range failed {
		if err != nil || slices.ContainsFunc(left, func(p Peer) bool { return p.Writer == writer }) {
			warnings = append(warnings, failure)
		}
	}
	return warnings
}

func (g *Group) ask(ctx context.Context, p Peer, request []byte, asked int) ([]row, error) {
	if p.URL == "" {
		return nil, errors.New(p.Note)
	}
	ctx, cancel := context.WithTimeout(ctx, g.Timeout)
	defer cancel()
	target := strings.TrimSuffix(p.URL, "/") + Path + "?" + url.Values{writerParam: {p.Writer}}.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(request))
	if err != nil {
		return nil, err
	}
	res, err := g.Client.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 200))
		return nil, fmt.Errorf("%s: %s", res.Status, bytes.TrimSpace(text))
	}
	var rows []row
	for in := bufio.NewReader(res.Body); ; {
		next, err := readRow(in, asked)
		if err == io.EOF {
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		rows = append(rows, next)
	}
}
