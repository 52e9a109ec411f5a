package promstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/query/budget"
	"github.com/promtsd/promtsd/query/promstore"
	"github.com/promtsd/promtsd/store"
)

func TestAppendable_WritesAtCommit(t *testing.T) {
	db := newDatabase(t, stores["memory"](t))
	defer db.Close()
	all := labels.MustNewMatcher(labels.MatchNotEqual, "__name__", "")
	a, b := labels.FromStrings("__name__", "a", "x", "y"), labels.FromStrings("__name__", "b")
	app, dropped := db.AppenderV2(t.Context()), db.AppenderV2(t.Context())
	for i, ls := range []labels.Labels{a, a, b, a} {
		for _, to := range []storage.AppenderV2{app, dropped} {
			if _, err := to.Append(0, ls, 0, int64(i), float64(i), nil, nil, storage.AppendV2Options{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := selected(t, db, 0, day, nil, []*labels.Matcher{all}); len(got) > 0 {
		t.Errorf("before Commit: got %q", got)
	}
	if err := errors.Join(app.Commit(), dropped.Rollback()); err != nil {
		t.Fatal(err)
	}
	want := []string{
		a.String() + sample{0, 0}.String() + sample{1, 1}.String() + sample{3, 3}.String(),
		b.String() + sample{2, 2}.String(),
	}
	if got := selected(t, db, 0, day, nil, []*labels.Matcher{all}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	_, err := app.Append(0, a, 0, 5, 5, nil, nil, storage.AppendV2Options{})
	if err == nil || app.Commit() == nil || dropped.Commit() == nil {
		t.Error("an appender goes on after its end")
	}
}

func TestAppendable_KeepsTheRestOfWhatIsRefused(t *testing.T) {
	db := newDatabase(t, stores["memory"](t))
	defer db.Close()
	a := labels.FromStrings("__name__", "a")
	app := db.AppenderV2(t.Context())
	for at, h := range map[int64]*histogram.Histogram{-1: nil, 1: nil, 2: {ZeroCount: 1}} {
		if _, err := app.Append(0, a, 0, at, 1, h, nil, storage.AppendV2Options{}); err != nil {
			t.Fatal(err)
		}
	}
	err := app.Commit()
	var refused *promstore.RefusedError
	if !errors.As(err, &refused) || !errors.Is(err, storage.ErrOutOfBounds) || errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("got %v, want a RefusedError", err)
	}
	got := refused.Result
	if got.Written != 1 || got.Refused[request.ReasonTimestamp] != 1 || got.Refused[request.ReasonHistogram] != 1 ||
		len(got.Examples) != 2 {
		t.Errorf("got %+v", got)
	}
	want := []string{a.String() + sample{1, 1}.String()}
	if got := selected(t, db, 0, day, nil, []*labels.Matcher{equal("__name__", "a")}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

type brokenAppender struct{}

func (brokenAppender) Append(context.Context, *request.Write) (request.Result, error) {
	return request.Result{}, store.ErrUnavailable
}

func TestAppendable_PassesTheErrorOfTheWritePathOn(t *testing.T) {
	app := promstore.Appendable{Appender: brokenAppender{}}.AppenderV2(t.Context())
	if err := app.Commit(); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, storage.ErrOutOfBounds) {
		t.Errorf("got %v", err)
	}
}

func TestAppendable_BoundsARequest(t *testing.T) {
	for name, more := range map[string]func(a storage.AppenderV2, i int) error{
		"series": func(a storage.AppenderV2, i int) error {
			_, err := a.Append(0, labels.FromStrings("__name__", "m", "i", fmt.Sprint(i)), 0, 1, 1, nil, nil,
				storage.AppendV2Options{})
			return err
		},
		"samples": func(a storage.AppenderV2, i int) error {
			_, err := a.Append(0, labels.FromStrings("__name__", "m"), 0, int64(i), 1, nil, nil, storage.AppendV2Options{})
			return err
		},
	} {
		a := promstore.Appendable{MaxBytes: 10_000}.AppenderV2(t.Context())
		var err error
		n := 0
		for ; err == nil && n < 1000; n++ {
			err = more(a, n)
		}
		if !errors.Is(err, budget.ErrTooLarge) || n < 10 {
			t.Errorf("%s: after %d got %v, want ErrTooLarge", name, n, err)
		}
	}
}
