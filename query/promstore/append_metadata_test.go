package promstore_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/families"
	"github.com/promtsd/promtsd/query/budget"
	"github.com/promtsd/promtsd/query/promstore"
)

func TestAppendable_KeepsExemplarsAndMetadata(t *testing.T) {
	db := newDatabase(t, stores["memory"](t))
	defer db.Close()
	app := db.AppenderV2(t.Context())
	e := func(t int64, id string) exemplar.Exemplar {
		return exemplar.Exemplar{Labels: labels.FromStrings("id", id), Value: 1, Ts: t, HasTs: true}
	}
	long := e(5, strings.Repeat("x", 127))
	histogram := metadata.Metadata{Type: model.MetricTypeHistogram, Help: "Latency.", Unit: "seconds"}
	for _, s := range []struct {
		name string
		opts storage.AppendV2Options
	}{
		{"a_bucket", storage.AppendV2Options{Metadata: histogram, Exemplars: []exemplar.Exemplar{e(1, "x"), e(2, "y")}}},
		{"a_bucket", storage.AppendV2Options{Metadata: histogram, Exemplars: []exemplar.Exemplar{e(2, "y"), long}}},
		{"a_sum", storage.AppendV2Options{Metadata: histogram}},
		{"b_total", storage.AppendV2Options{MetricFamilyName: "b", Metadata: metadata.Metadata{Help: "No type."}}},
		{"c", storage.AppendV2Options{Exemplars: []exemplar.Exemplar{e(3, "z")}}},
	} {
		if _, err := app.Append(0, labels.FromStrings("__name__", s.name), 0, 7, 1, nil, nil, s.opts); err != nil {
			t.Fatal(err)
		}
	}
	if err := app.Commit(); err != nil { // the exemplar that is too long costs nothing else
		t.Fatal(err)
	}
	q, err := promstore.ExemplarQueryable{Source: db.querier}.ExemplarQuerier(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := q.Select(0, 2, []*labels.Matcher{equal("__name__", "a_bucket")}, []*labels.Matcher{equal("__name__", "c")})
	want := []exemplar.QueryResult{
		{SeriesLabels: labels.FromStrings("__name__", "a_bucket"), Exemplars: []exemplar.Exemplar{e(1, "x"), e(2, "y")}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	q, _ = promstore.ExemplarQueryable{Source: db.querier}.ExemplarQuerier(withAccount(t, 1))
	if _, err := q.Select(0, 9, []*labels.Matcher{equal("__name__", "c")}); !errors.Is(err, budget.ErrTooLarge) {
		t.Errorf("beyond the bytes: got %v", err)
	}

	var said []string
	r := families.Reader{Store: db.store, Tables: catalog.DefaultTables()}
	if err := r.Metadata(t.Context(), "", 0, func(name string, m metadata.Metadata) error {
		said = append(said, fmt.Sprintf("%s %s %s %s", name, m.Type, m.Help, m.Unit))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"a histogram Latency. seconds", "b unknown No type. "}; !slices.Equal(said, want) {
		t.Errorf("metadata is %q, want %q", said, want)
	}
}
