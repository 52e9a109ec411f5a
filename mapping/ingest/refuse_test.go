package ingest_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/ingest"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

func TestAppend_RefusesWhatCannotBeStoredAndKeepsTheRest(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	var many []string
	for i := range 70 {
		many = append(many, fmt.Sprintf("l%02d", i), "v")
	}
	cases := []struct {
		labels []byte
		reason request.Reason
		text   string
	}{
		{raw("__name__", "bad\xff"), request.ReasonInvalidLabels, `label "__name__": name and value must be UTF-8`},
		{raw("__name__", "m", long(1<<20)+"\xff", "v"), request.ReasonInvalidLabels, "name and value must be UTF-8"},
		{raw("__name__", "m", "", "v"), request.ReasonInvalidLabels, "a label has no name"},
		{raw("__name__", "m", "a", "1", "b", "2", "a", "1"), request.ReasonInvalidLabels, `label "a" is there twice`},
		{raw("__name__", "m", "__name__", "n"), request.ReasonInvalidLabels, `label "__name__" is there twice`},
		{raw("__name__", "m", long(41), "v"), request.ReasonLabelLimit,
			"has 41 bytes, --write.max-label-name-bytes allows 40"},
		{raw("__name__", "m", "a", long(51)), request.ReasonLabelLimit,
			"has 51 bytes, --write.max-label-value-bytes allows 50"},
		{raw("__name__", long(51)), request.ReasonLabelLimit, "has 51 bytes, --write.max-label-value-bytes allows 50"},
		{raw(append(many, "__name__", "m")...), request.ReasonLabelLimit, "71 labels, --write.max-labels allows 70"},
		{raw("job", "a"), request.ReasonInvalidLabels, "no metric name (label __name__)"},
		{raw("__name__", "", "job", "a"), request.ReasonInvalidLabels, "no metric name (label __name__)"},
		{[]byte("\x0a\x05garbage"), request.ReasonInvalidLabels, "label bytes"},
		{[]byte("nonsense"), request.ReasonInvalidLabels, "label bytes"},
	}
	for _, c := range cases {
		db := open(t, storetest.NewMem(), nil, nil)
		req := request.Write{NeedMetricName: true}
		add(&req, raw("__name__", "good", "n", "1"), sample(now, 1))
		add(&req, c.labels, sample(now, 2), sample(now+1, 2), sample(-1, 2))
		add(&req, raw("__name__", "good", "n", "2"), sample(now, 3))
		for _, again := range []bool{false, true} { // the second time with what the cache then holds
			got, err := db.Append(t.Context(), &req)
			if err != nil || got.Written != 2 || len(got.Refused) != 1 || got.Refused[c.reason] != 3 || len(got.Examples) != 1 {
				t.Errorf("%.80q, again %v: got %+v, %v, want 2 written and 3 refused for %s", c.labels, again, got, err, c.reason)
				continue
			}
			text := got.Examples[0].Error()
			if !strings.Contains(text, c.text) || !strings.HasPrefix(text, "series ") ||
				!errors.Is(got.Examples[0], mapping.ErrInvalid) {
				t.Errorf("%.80q: the text is %q, want it to say %q", c.labels, text, c.text)
			}
			if len(text) > 1000 {
				t.Errorf("%.80q: the text has %d bytes", c.labels, len(text))
			}
		}
		if got := read(t, db.store, db.settings.Schema); len(got) != 2 {
			t.Errorf("%.80q: the data table holds %v, want the two good series", c.labels, got)
		}
	}
}

func TestAppend_RefusesTimesThatNoRowCanHoldOrThatAreTooFarAhead(t *testing.T) {
	for _, c := range []struct {
		t      int64
		future time.Duration
		text   string // empty: it is taken
	}{
		{0, limits.Future, ""},
		{-1, limits.Future, "timestamp -1 ms is outside"},
		{math.MinInt64, limits.Future, "is outside"},
		{now + 600_000, limits.Future, ""},
		{now + 600_001, limits.Future,
			"timestamp 2026-11-21T09:47:44.621Z is 10m0.001s ahead of the clock, --write.max-future allows 10m0s"},
		{mapping.MaxTime, limits.Future, "ahead of the clock"},
		{mapping.MaxTime, 0, ""},
		{mapping.MaxTime + 1, 0, "the years 1970 to 2106"},
		{math.MaxInt64, 0, "the years 1970 to 2106"},
		{math.MaxInt64, math.MaxInt64, "the years 1970 to 2106"},
	} {
		db := open(t, storetest.NewMem(), nil, func(c2 *ingest.Config) { c2.Limits.Future = c.future })
		var req request.Write
		add(&req, raw("__name__", "m", "a", "b"), sample(c.t, 1), sample(now, 2), sample(c.t, 3), sample(now+1, 4))
		got, err := db.Append(t.Context(), &req)
		if err != nil {
			t.Fatal(err)
		}
		if c.text == "" {
			if got.Written != 4 || got.Refused != nil {
				t.Errorf("time %d: got %+v, want 4 written", c.t, got)
			}
			continue
		}
		if got.Written != 2 || got.Refused[request.ReasonTimestamp] != 2 || len(got.Examples) != 1 {
			t.Errorf("time %d: got %+v, want 2 written and 2 refused", c.t, got)
			continue
		}
		text := got.Examples[0].Error()
		if !strings.Contains(text, c.text) || !strings.HasPrefix(text, `series m{a="b"}: `) {
			t.Errorf("time %d: the text is %q, want it to say %q", c.t, text, c.text)
		}
	}
}

func TestAppend_RefusesARowKeyThatNoStoreHolds(t *testing.T) {
	db := open(t, storetest.NewMem(), map[string]string{catalog.TagkWidth: "8", catalog.TagvWidth: "8"},
		func(c *ingest.Config) { c.Limits.Labels = 1 << 20 })
	pairs := []string{"__name__", "m"}
	for i := range 2048 {
		pairs = append(pairs, fmt.Sprint("l", i), "v")
	}
	var req request.Write
	add(&req, raw(pairs...), sample(now, 1))
	add(&req, raw(pairs[:2]...), sample(now, 2))
	got, err := db.Append(t.Context(), &req)
	if err != nil || got.Written != 1 || got.Refused[request.ReasonLabelLimit] != 1 ||
		!strings.Contains(fmt.Sprint(got.Examples), "at most 32767 can be stored") {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestAppend_RefusesNamelessSeriesOnlyWhereANameIsNeeded(t *testing.T) {
	db := open(t, storetest.NewMem(), nil, nil)
	for range 2 { // made, and cached
		db.append(t, raw("job", "a"), sample(now, 1))
		req := request.Write{NeedMetricName: true}
		add(&req, raw("job", "a"), sample(now+1, 1))
		add(&req, nil, sample(now+1, 1))
		got, err := db.Append(t.Context(), &req)
		if err != nil || got.Written != 0 || got.Refused[request.ReasonInvalidLabels] != 2 {
			t.Errorf("got %+v, %v, want 2 refused", got, err)
		}
	}
	db.append(t, nil, sample(now, 1)) // no label at all
	want := map[string]map[int64]float64{
		"000001000001000001": {now: 1}, // no_metric, job=a
		"000001000002000002": {now: 1}, // no_metric, no_tags=no_tags
	}
	if got := read(t, db.store, db.settings.Schema); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the data table holds %v, want %v", got, want)
	}
	names := dump(t, db.store, "tsdb-uid")
	for _, stored := range []string{mapping.NoMetric, mapping.NoTagk} {
		if !strings.Contains(names, fmt.Sprintf(`"row":"%x","family":"id"`, stored)) {
			t.Errorf("the UID table does not hold %q:\n%s", stored, names)
		}
	}
}

// A damaged cell of the UID table costs the series that need it, and no other.
func TestAppend_RefusesSeriesWhoseUIDsCannotBeReadAndStoresTheRest(t *testing.T) {
	mem := storetest.NewMem()
	db := open(t, mem, nil, nil)
	var b store.Batch
	b.Put("tsdb-uid", []byte("job"), "id", []byte("tagk"), 1, []byte{0, 0, 0, 1}) // 4 bytes for 3
	if err := mem.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	var req request.Write
	add(&req, raw("__name__", "m", "job", "a"), sample(now, 1), sample(now+1, 1))
	add(&req, raw("__name__", "m"), sample(now, 1))
	got, err := db.Append(t.Context(), &req)
	if err != nil || got.Written != 1 || got.Refused[request.ReasonUIDDamaged] != 2 {
		t.Fatalf("got %+v, %v, want 1 written and 2 refused", got, err)
	}
	if text := got.Examples[0].Error(); !strings.Contains(text, `"job"`) || !strings.Contains(text, "tsdb-uid") {
		t.Errorf("the text %q does not name the cell", text)
	}
}

func TestAppend_RefusesNewNamesWhenUIDsAreExhausted(t *testing.T) {
	db := open(t, storetest.NewMem(), map[string]string{catalog.TagvWidth: "1"}, nil)
	var req request.Write
	for i := range 300 {
		add(&req, raw("__name__", "m", "a", fmt.Sprint(i)), sample(now, 1), sample(now+1, 1))
	}
	for range 2 {
		got, err := db.Append(t.Context(), &req)
		if err != nil || got.Written != 2*255 || got.Refused[request.ReasonUIDsExhausted] != 2*45 || len(got.Examples) != 10 {
			t.Errorf("got %d written, %v, %d examples, %v, want %d written",
				got.Written, got.Refused, len(got.Examples), err, 2*255)
		}
	}
	if got := len(read(t, db.store, db.settings.Schema)); got != 255 {
		t.Errorf("the data table holds %d series, want 255", got)
	}
}

// One sender that makes new label values without end is refused beyond the limits, and costs the others nothing.
func TestAppend_RefusesAFloodOfNewNames(t *testing.T) {
	st := storetest.NewMem()
	db := open(t, st, nil, func(c *ingest.Config) {
		c.UIDs = storetest.Must(uid.New(uid.Config{
			Store: st, Table: c.Settings.Tables.UID, Schema: c.Settings.Schema, Names: c.Settings.Names,
			Limits: uid.Limits{PerHour: 60, Now: func() time.Time { return time.UnixMilli(now) }},
		}))
		t.Cleanup(c.UIDs.Close)
	})
	honest := func(pods int) request.Result {
		t.Helper()
		var req request.Write
		for i := range 20 + pods {
			add(&req, raw("__name__", "m", "pod", fmt.Sprint("pod", i)), sample(now, 1))
		}
		got, err := db.Append(t.Context(), &req)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	honest(0)
	refused := 0
	for i := range 10 {
		var flood request.Write
		for k := range 50 {
			add(&flood, raw("__name__", "m", "pod", fmt.Sprint("random", i*50+k)), sample(now, 1))
		}
		got, err := db.Append(t.Context(), &flood)
		if err != nil {
			t.Fatal(err)
		}
		refused += got.Refused[request.ReasonNewNames]
	}
	if refused < 500-60 {
		t.Errorf("%d of 500 new series were refused, want all but 60", refused)
	}
	if got := honest(5); got.Written != 25 || got.Refused != nil {
		t.Errorf("beside the flood: %d of 25 samples written, %v", got.Written, got.Refused)
	}
}

func TestAppend_RefusesInfinitiesWhereOpenTSDBSharesTheTables(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		db := open(t, storetest.NewMem(), nil, func(c *ingest.Config) { c.Limits.RefuseInfinities = refuse })
		var req request.Write
		add(&req, raw("__name__", "m"), sample(now, math.Inf(1)), sample(now+1, math.NaN()), sample(now+2, math.Inf(-1)))
		want := 3
		if refuse {
			want = 1
		}
		got, err := db.Append(t.Context(), &req)
		if err != nil || got.Written != want || got.Refused[request.ReasonInfinity] != 3-want {
			t.Errorf("refuse %v: got %+v, %v, want %d written", refuse, got, err, want)
		}
		if refuse && !strings.Contains(got.Examples[0].Error(), "--no-write.infinities") {
			t.Errorf("the text is %q", got.Examples[0])
		}
	}
}
