package index_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/store"
)

// Lists of series that are made while postings are intersected count as memory, before they are made.
func TestSelect_CountsMemoryOfListsBeforeItMakesThem(t *testing.T) {
	db := newDatabase(t, nil)
	const series = 20_000
	var b store.Batch
	metric, job, id := db.id(mapping.Metric, "m"), db.id(mapping.Tagk, "job"), db.id(mapping.Tagk, "id")
	for i := range series {
		tsuid := db.settings.Schema.AppendTSUID(nil, metric, []mapping.Tag{
			{Key: job, Value: db.id(mapping.Tagv, fmt.Sprint("v", i%10))},
			{Key: id, Value: mapping.UID(1_000_000 + i)}, // which has no name, as nobody asks for it
		})
		db.writer.PutSeries(&b, tsuid, 1)
		db.writer.PutDay(&b, tsuid, 20_000, 1, nil)
	}
	db.apply(&b)
	_, r := db.memory(series)
	full := errors.New("no memory")
	for _, c := range []struct {
		matcher *labels.Matcher
		most    int64
		want    error
	}{
		{re("job", "v[0-4]"), 4 * series / 2, full}, // five of ten lists make one
		{re("job", "v[0-4]"), 4*series/2 + 10_000, nil},
		{re("job", "v0|v1|v2|v3|v4"), 4 * series / 2, full},
		{re("job", "v0|v1|v2|v3|v4"), 4*series/2 + 10_000, nil},
		{eq("job", "v3"), 10_000, nil}, // is one as it is
	} {
		taken := int64(0)
		limits := index.Limits{Take: func(bytes int64) error {
			if taken += bytes; taken > c.most {
				return full
			}
			return nil
		}}
		names, _, err := r.LabelNames(t.Context(), noon, noon, limits, c.matcher)
		if !errors.Is(err, c.want) || err == nil && len(names) != 3 {
			t.Errorf("%v in %d bytes: got %q, %v, want %v", c.matcher, c.most, names, err, c.want)
		}
	}
}
