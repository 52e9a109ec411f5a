package index_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/mapping/index/postings"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

const (
	day  = 24 * 3600_000
	noon = 20_000*day + day/2
)

// database writes names, rows and index rows itself, so that any stored name and any series may stand there.
type database struct {
	t        testing.TB
	store    store.Store
	settings catalog.Settings
	ids      map[uid.Name]mapping.UID // by stored name
	writer   index.Writer
}

func newDatabase(t testing.TB, asked map[string]string) *database {
	st := storetest.NewMem()
	settings, _, err := catalog.Init(t.Context(), st, "promtsd", asked)
	if err != nil {
		t.Fatal(err)
	}
	return &database{t, st, settings, map[uid.Name]mapping.UID{}, index.Writer{Tables: settings.Tables}}
}

// id makes a stored name, as its bytes are, and returns its UID.
func (db *database) id(kind mapping.Kind, stored string) mapping.UID {
	name := uid.Name{Kind: kind, Text: stored}
	if u := db.ids[name]; u != 0 {
		return u
	}
	u := mapping.UID(len(db.ids) + 1)
	db.ids[name] = u
	var b store.Batch
	row := db.settings.Schema.AppendUID(nil, kind, u)
	b.Put(db.settings.Tables.UID, row, "name", []byte(kind.String()), 1, []byte(stored))
	b.Put(db.settings.Tables.UID, []byte(stored), "id", []byte(kind.String()), 1, row)
	db.apply(&b)
	return u
}

func (db *database) apply(b *store.Batch) {
	db.t.Helper()
	if err := db.store.Apply(db.t.Context(), b); err != nil {
		db.t.Fatal(err)
	}
}

// tsuid is that of a series: a metric, and stored tagks and tagvs in turn.
func (db *database) tsuid(metric string, tags ...string) []byte {
	var pairs []mapping.Tag
	for i := 0; i < len(tags); i += 2 {
		pairs = append(pairs, mapping.Tag{Key: db.id(mapping.Tagk, tags[i]), Value: db.id(mapping.Tagv, tags[i+1])})
	}
	db.settings.Schema.SortTags(pairs)
	return db.settings.Schema.AppendTSUID(nil, db.id(mapping.Metric, metric), pairs)
}

// write puts a sample of a series at each time, and its index rows.
func (db *database) write(tsuid []byte, times ...int64) {
	var b store.Batch
	for _, t := range times {
		row := db.settings.Schema.AppendRowKey(nil, tsuid, mapping.BaseTime(t))
		b.Put(db.settings.Tables.Data, row, "t", mapping.AppendQualifier(nil, uint32(t%mapping.HourMs), 0), 1, []byte{1})
		db.writer.PutSeries(&b, tsuid, 1)
		db.writer.PutDay(&b, tsuid, mapping.DayOf(t), 1, nil)
	}
	db.apply(&b)
}

// writeData puts a sample of a series without index rows, as another writer does.
func (db *database) writeData(tsuid []byte, t int64) {
	var b store.Batch
	row := db.settings.Schema.AppendRowKey(nil, tsuid, mapping.BaseTime(t))
	b.Put(db.settings.Tables.Data, row, "t", mapping.AppendQualifier(nil, uint32(t%mapping.HourMs), 0), 1, []byte{1})
	db.apply(&b)
}

// reader finds by the index, or by row keys.
func (db *database) reader(complete bool) *index.Reader {
	settings := db.settings
	settings.IndexComplete = complete
	return newReader(db.store, settings)
}

func newReader(st store.Store, settings catalog.Settings) *index.Reader {
	uids := storetest.Must(uid.New(uid.Config{
		Store: st, Table: settings.Tables.UID, Schema: settings.Schema, Names: settings.Names,
	}))
	return index.NewReader(index.Config{Store: st, Settings: settings, UIDs: uids})
}

func eq(name, value string) *labels.Matcher {
	return labels.MustNewMatcher(labels.MatchEqual, name, value)
}

func ne(name, value string) *labels.Matcher {
	return labels.MustNewMatcher(labels.MatchNotEqual, name, value)
}

func re(name, value string) *labels.Matcher {
	return labels.MustNewMatcher(labels.MatchRegexp, name, value)
}

func nre(name, value string) *labels.Matcher {
	return labels.MustNewMatcher(labels.MatchNotRegexp, name, value)
}

// schemas are settings under which everything must be found alike.
var schemas = map[string]map[string]string{
	"default": nil,
	"salted": {catalog.SaltWidth: "1", catalog.SaltBuckets: "5", catalog.MetricWidth: "2", catalog.TagkWidth: "1",
		catalog.TagvWidth: "4"},
	"escaped": {catalog.NamesMode: "opentsdb"},
}

// known are the series of the test below, in the order of their labels.
var known = []struct {
	name, metric string
	tags         []string // as they are stored
	labels       labels.Labels
}{
	{"bare", "bare", []string{mapping.NoTagk, mapping.NoTagv}, labels.FromStrings("__name__", "bare")},
	{"café", "caf\xe9", []string{"\xe9", "na\xefve"}, labels.FromStrings("__name__", "café", "é", "naïve")},
	{"down", "down", []string{"job", "b"}, labels.FromStrings("__name__", "down", "job", "b")},
	{"up1", "up", []string{"job", "a", "instance", "1"},
		labels.FromStrings("__name__", "up", "instance", "1", "job", "a")},
	{"up2", "up", []string{"instance", "2", "job", "a"},
		labels.FromStrings("__name__", "up", "instance", "2", "job", "a")},
	{"upb", "up", []string{"job", "b"}, labels.FromStrings("__name__", "up", "job", "b")},
	{"nameless", mapping.NoMetric, []string{"job", "a"}, labels.FromStrings("job", "a")},
}

func TestSelect_FindsTheSeriesThatMatch(t *testing.T) {
	cases := []struct {
		matchers []*labels.Matcher
		want     string
	}{
		{nil, "bare café down up1 up2 upb nameless"},
		{[]*labels.Matcher{eq("__name__", "up")}, "up1 up2 upb"},
		{[]*labels.Matcher{eq("__name__", "up"), eq("job", "a")}, "up1 up2"},
		{[]*labels.Matcher{eq("__name__", "up"), ne("job", "a")}, "upb"},
		{[]*labels.Matcher{eq("__name__", "up"), re("job", "a|b|zz"), ne("job", "a")}, "upb"},
		{[]*labels.Matcher{eq("__name__", "up"), re("job", "[a-b]")}, "up1 up2 upb"},
		{[]*labels.Matcher{eq("__name__", "up"), nre("job", "a.*")}, "upb"},
		{[]*labels.Matcher{re("__name__", "up|down"), eq("job", "b")}, "down upb"},
		{[]*labels.Matcher{re("__name__", "d.*")}, "down"},
		{[]*labels.Matcher{ne("__name__", "up")}, "bare café down nameless"},
		{[]*labels.Matcher{re("__name__", "up|down"), ne("__name__", "up")}, "down"},
		{[]*labels.Matcher{eq("job", "a")}, "up1 up2 nameless"},
		// A label that a series lacks is empty.
		{[]*labels.Matcher{eq("__name__", "up"), eq("instance", "")}, "upb"},
		{[]*labels.Matcher{eq("__name__", "up"), ne("instance", "")}, "up1 up2"},
		{[]*labels.Matcher{eq("__name__", "up"), re("instance", "2|")}, "up2 upb"},
		{[]*labels.Matcher{eq("__name__", "up"), ne("instance", "2")}, "up1 upb"},
		{[]*labels.Matcher{eq("__name__", "up"), nre("instance", ".+")}, "upb"},
		{[]*labels.Matcher{eq("__name__", "up"), eq("instance", ""), eq("instance", "1")}, ""},
		// Labels and values that nobody knows.
		{[]*labels.Matcher{eq("__name__", "nosuch")}, ""},
		{[]*labels.Matcher{eq("__name__", "down"), eq("nosuch", "a")}, ""},
		{[]*labels.Matcher{eq("__name__", "down"), eq("nosuch", "")}, "down"},
		{[]*labels.Matcher{eq("__name__", "down"), ne("nosuch", "a")}, "down"},
		{[]*labels.Matcher{eq("__name__", "down"), eq("job", "nosuch")}, ""},
		{[]*labels.Matcher{eq("__name__", "down"), ne("job", "nosuch")}, "down"},
		{[]*labels.Matcher{eq("__name__", "down"), re("job", "nosuch|")}, ""},
		{[]*labels.Matcher{eq("", "a")}, ""},
		{[]*labels.Matcher{eq("__name__", strings.Repeat("x", 1<<17))}, ""},
		// Series without a name, and without tags. The reserved names are no labels.
		{[]*labels.Matcher{eq("__name__", "")}, "nameless"},
		{[]*labels.Matcher{re("__name__", "|bare")}, "bare nameless"},
		{[]*labels.Matcher{eq("__name__", ""), ne("job", "a")}, ""},
		{[]*labels.Matcher{eq("__name__", mapping.NoMetric)}, ""},
		{[]*labels.Matcher{re("__name__", "no_metric.*")}, ""},
		{[]*labels.Matcher{eq("__name__", "bare"), eq(mapping.NoTagk, mapping.NoTagv)}, ""},
		{[]*labels.Matcher{eq("__name__", "bare"), eq(mapping.NoTagk, "")}, "bare"},
		{[]*labels.Matcher{re("job", ".*"), eq("job", "")}, "bare café"},
		// Names that OpenTSDB wrote in ISO-8859-1.
		{[]*labels.Matcher{eq("é", "naïve")}, "café"},
		{[]*labels.Matcher{eq("__name__", "café"), re("é", "na.ve")}, "café"},
	}
	for schema, asked := range schemas {
		db := newDatabase(t, asked)
		byLabels := map[string]string{}
		for _, s := range known {
			db.write(db.tsuid(s.metric, s.tags...), noon)
			byLabels[s.labels.String()] = s.name
		}
		for _, complete := range []bool{true, false} {
			r := db.reader(complete)
			for _, c := range cases {
				for _, mint := range []int64{noon, 0} { // by days, by the list of all
					result, err := r.Select(t.Context(), mint, noon, index.Limits{}, c.matchers...)
					if err != nil {
						t.Fatalf("%s, index %v, from %d, %v: %v", schema, complete, mint, c.matchers, err)
					}
					var got []string
					for _, s := range result.Series {
						got = append(got, byLabels[s.Labels.String()])
					}
					if got := strings.Join(got, " "); got != c.want {
						t.Errorf("%s, index %v, from %d, %v: got %q, want %q", schema, complete, mint, c.matchers, got, c.want)
					}
				}
			}
		}
	}
}

func TestSelect_ReadsTheDaysOfTheRange(t *testing.T) {
	db := newDatabase(t, nil)
	const first = 20_000 * day // midnight
	day1, day2, listed := db.tsuid("m", "k", "day1"), db.tsuid("m", "k", "day2"), db.tsuid("m", "k", "listed")
	var b store.Batch
	db.writer.PutDay(&b, day1, mapping.DayOf(first), 1, nil)
	db.writer.PutDay(&b, day2, mapping.DayOf(first)+1, 1, nil)
	for _, tsuid := range [][]byte{day1, day2, listed} {
		db.writer.PutSeries(&b, tsuid, 1) // the last is of no day: it tells whether the list was read
	}
	db.apply(&b)
	r := db.reader(true)
	for _, c := range []struct {
		mint, maxt int64
		want       string
	}{
		{first - 1, first - 1, ""},
		{first, first, "day1"},
		{first - 1, first, "day1"},
		{first + day - 1, first + day - 1, "day1"},
		{first + day - 1, first + day, "day1 day2"},
		{first + day, first + day, "day2"},
		{first + 2*day - 1, first + 3*day, "day2"},
		{first + 2*day, first + 3*day, ""},
		{first + 1, first, ""},
		{first, first + 40*day - 1, "day1 day2"},
		{first, first + 40*day, "day1 day2"},
		{first + day, first + 41*day, "day2"},
		{first + 2*day, first + 42*day, ""},
		{first - 38*day - 1, first + day - 1, "day1"},
		{-1 << 62, 1 << 62, "day1 day2"},
		{-5, -1, ""},
		{mapping.MaxTime + 1, 1 << 62, ""},
	} {
		result, err := r.Select(t.Context(), c.mint, c.maxt, index.Limits{}, eq("__name__", "m"))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range result.Series {
			got = append(got, s.Labels.Get("k"))
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("from %d to %d: got %q, want %q", c.mint, c.maxt, got, c.want)
		}
		candidates := len(got)
		if c.maxt >= first+40*day && c.mint <= mapping.MaxTime {
			candidates = 3
		}
		if result.Candidates != candidates {
			t.Errorf("from %d to %d: %d candidates, want %d", c.mint, c.maxt, result.Candidates, candidates)
		}
	}
}

// What a long range finds does not depend on whether the index is in memory: the same series, each with its days.
func TestSelect_OfALongRangeKnowsTheDaysWithoutMemory(t *testing.T) {
	for schema, asked := range schemas {
		t.Run(schema, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				db := newDatabase(t, asked)
				const first = noon / day
				for i := range rapid.IntRange(1, 60).Draw(rt, "series") { // some selectors find one of so many
					var times []int64
					for range rapid.IntRange(1, 6).Draw(rt, "days") {
						times = append(times, (first+rapid.Int64Range(0, 100).Draw(rt, "day"))*day)
					}
					if rapid.Bool().Draw(rt, "every day") {
						for d := range int64(100) {
							times = append(times, (first+d)*day)
						}
					}
					db.write(db.tsuid(fmt.Sprint("m", i%3), "k", fmt.Sprintf("v%02d", i)), times...)
				}
				memory := storetest.Must(index.NewMemory(index.MemoryConfig{
					Store: db.store, Settings: db.settings, MaxSeries: 1000,
				}))
				if err := memory.Build(t.Context()); err != nil {
					t.Fatal(err)
				}
				without := db.reader(true)
				with := db.reader(true)
				with.Memory = memory
				for range 4 {
					mint := (first + rapid.Int64Range(-1, 60).Draw(rt, "from")) * day
					maxt := mint + rapid.Int64Range(40, 100).Draw(rt, "days")*day
					ms := rapid.SampledFrom([][]*labels.Matcher{
						nil, {eq("__name__", "m1")}, {eq("k", "v00")}, {re("k", "v.[01]")}, {ne("__name__", "m1"), ne("k", "v02")},
					}).Draw(rt, "matchers")
					want, err := with.Select(t.Context(), mint, maxt, index.Limits{}, ms...)
					if err != nil {
						t.Fatal(err)
					}
					if want.AccessPath == index.AccessNone { // no series was ever called that
						continue
					}
					got, err := without.Select(t.Context(), mint, maxt, index.Limits{Series: max(1, len(want.Series))}, ms...)
					if err != nil || want.AccessPath != index.AccessMemory || got.AccessPath != index.AccessList {
						t.Fatal(want.AccessPath, got.AccessPath, err)
					}
					if got, want := fmt.Sprint(got.Series, got.Hours), fmt.Sprint(want.Series, want.Hours); got != want {
						rt.Fatalf("select %v from %d to %d:\n without memory %s\n with memory    %s", ms, mint, maxt, got, want)
					}
				}
			})
		})
	}
}

// The days of few series among many are asked for by their rows, after the first one.
func TestSelect_OfALongRangeDoesNotScanManySeriesForFew(t *testing.T) {
	db := newDatabase(t, nil)
	const series, days = 100, 50
	var odd []int64
	for d := range int64(days) {
		odd = append(odd, noon+d*day)
	}
	for i := range series {
		db.write(db.tsuid("m", "k", fmt.Sprintf("v%03d", i)), odd[i%2:]...)
	}
	st := storetest.Faulty(db.store)
	r := newReader(st, db.settings)
	result, err := r.Select(t.Context(), noon, noon+days*day, index.Limits{}, re("k", "v000|v099"))
	if err != nil {
		t.Fatal(err)
	}
	const first = noon / day
	want := []postings.Days{{{First: first, Last: first + days - 1}}, {{First: first + 1, Last: first + days - 1}}}
	if len(result.Series) != 2 || !slices.Equal(result.Series[0].Days, want[0]) ||
		!slices.Equal(result.Series[1].Days, want[1]) {
		t.Errorf("got %v, want two series of the days %v", result.Series, want)
	}
	if n := st.Calls(storetest.Get); n < days-1 {
		t.Errorf("%d gets, want one for each day after the first", n)
	}
}

func TestSelect_ByRowKeysReadsTheHoursOfTheRange(t *testing.T) {
	for schema, asked := range schemas {
		db := newDatabase(t, asked)
		db.writeData(db.tsuid("m", "k", "v"), noon+59*60_000)
		r := db.reader(false)
		for _, c := range []struct {
			mint, maxt int64
			want       int
		}{
			{noon - 1, noon - 1, 0}, {noon, noon, 1}, {noon + mapping.HourMs - 1, noon + mapping.HourMs - 1, 1},
			{noon + mapping.HourMs, noon + 2*mapping.HourMs, 0}, {0, mapping.MaxTime, 1},
		} {
			for _, m := range []*labels.Matcher{eq("__name__", "m"), eq("k", "v")} { // with ranges, with the filter alone
				result, err := r.Select(t.Context(), c.mint, c.maxt, index.Limits{}, m)
				if err != nil || len(result.Series) != c.want {
					t.Errorf("%s, %s from %d to %d: got %v, %v, want %d", schema, m, c.mint, c.maxt, result.Series, err, c.want)
				}
			}
		}
	}
}

// Samples that wait to be stored are acknowledged: their series are found although no data row tells of them.
func TestSelect_ByRowKeysFindsSeriesWithoutRows(t *testing.T) {
	db := newDatabase(t, nil)
	db.writeData(db.tsuid("m", "k", "stored"), noon-day)
	var b store.Batch
	waiting := db.tsuid("m", "k", "waiting")
	db.writer.PutSeries(&b, waiting, 1)
	db.writer.PutDay(&b, waiting, mapping.DayOf(noon), 1, nil)
	db.apply(&b)
	for mint, want := range map[int64]int{noon: 1, noon - day: 2, 0: 2} {
		result, err := db.reader(false).Select(t.Context(), mint, noon, index.Limits{}, eq("__name__", "m"))
		if err != nil || len(result.Series) != want || !slices.Contains(result.Hours, mapping.BaseTime(noon)) {
			t.Errorf("from %d: got %v in the hours %v, %v, want %d series", mint, result.Series, result.Hours, err, want)
		}
	}
}

func TestSelect_ListsBothTSUIDsOfOneLabelSet(t *testing.T) {
	db := newDatabase(t, nil)
	utf8, latin1 := db.tsuid("m", "é", "1"), db.tsuid("m", "\xe9", "1")
	db.write(utf8, noon)
	db.write(latin1, noon)
	db.write(db.tsuid("m", "é", "2"), noon)
	for _, complete := range []bool{true, false} {
		for _, matchers := range [][]*labels.Matcher{
			{eq("__name__", "m"), eq("é", "1")}, {eq("é", "1")}, {re("é", "1|3")}, {ne("é", "2"), ne("é", "")},
		} {
			result, err := db.reader(complete).Select(t.Context(), noon, noon, index.Limits{}, matchers...)
			if err != nil {
				t.Fatal(err)
			}
			if s := result.Series; len(s) != 2 || !labels.Equal(s[0].Labels, s[1].Labels) ||
				string(s[0].TSUID) != string(utf8) || string(s[1].TSUID) != string(latin1) {
				t.Errorf("index %v, %v: got %x, want %x and %x", complete, matchers, s, utf8, latin1)
			}
		}
	}
}

func TestSelect_OfARepeatedLabelTheLastTagCounts(t *testing.T) {
	db := newDatabase(t, nil)
	// Names get their UIDs in the order of this call, so that the tags stand in the TSUID in the order given here.
	tags := []string{"k", "1", "k", "2", "\xe9", "3", "é", "4", "__name__", "another"}
	for i := range 20 { // sorting many labels is another algorithm than sorting few
		tags = append(tags, fmt.Sprintf("a%02d", i), "x")
	}
	db.write(db.tsuid("m", tags...), noon)
	want := labels.NewBuilder(labels.FromStrings("__name__", "m", "k", "2", "é", "4"))
	for i := range 20 {
		want.Set(fmt.Sprintf("a%02d", i), "x")
	}
	for _, complete := range []bool{true, false} {
		r := db.reader(complete)
		for _, c := range []struct {
			m     *labels.Matcher
			found int
		}{
			{eq("k", "2"), 1}, {eq("k", "1"), 0}, {ne("k", "1"), 1}, {eq("é", "4"), 1}, {eq("é", "3"), 0},
			{eq("__name__", "m"), 1}, {eq("__name__", "another"), 0}, {re("__name__", ".+"), 1},
		} {
			result, err := r.Select(t.Context(), noon, noon, index.Limits{}, c.m)
			if err != nil || len(result.Series) != c.found {
				t.Errorf("index %v, %s: got %v, %v, want %d series", complete, c.m, result.Series, err, c.found)
				continue
			}
			if c.found == 1 && !labels.Equal(result.Series[0].Labels, want.Labels()) {
				t.Errorf("index %v, %s: got %s, want %s", complete, c.m, result.Series[0].Labels, want.Labels())
			}
		}
	}
}

func TestSelect_PassesOverWhatIsNoSeries(t *testing.T) {
	db := newDatabase(t, nil)
	good := db.tsuid("m", "k", "v")
	db.write(good, noon)
	unknown := slices.Clone(good)
	unknown[len(unknown)-1] = 99 // a tagv without a name
	db.write(unknown, noon)
	var b store.Batch
	db.writer.PutSeries(&b, append(slices.Clone(good), 1), 1)           // half a tag
	db.writer.PutDay(&b, append(slices.Clone(good), 1), 20_000, 1, nil) // the same
	db.writer.PutDay(&b, nil, 20_000, 1, nil)
	global := db.settings.Schema.AppendRowKey(nil, []byte{0, 0, 0}, mapping.BaseTime(noon))
	b.Put("tsdb", global, "t", []byte{1, 0, 0}, 1, []byte("{}"))
	b.Put("tsdb", []byte("foreign key"), "t", []byte{0, 0}, 1, []byte{1})
	db.apply(&b)
	for _, complete := range []bool{true, false} {
		for _, mint := range []int64{noon, 0} {
			for _, matchers := range [][]*labels.Matcher{
				{eq("__name__", "m")}, {re("__name__", ".*")}, {ne("k", "x")}, {re("k", ".*")},
			} {
				result, err := db.reader(complete).Select(t.Context(), mint, noon, index.Limits{}, matchers...)
				if err != nil || len(result.Series) != 1 || string(result.Series[0].TSUID) != string(good) {
					t.Errorf("index %v, from %d, %v: got %v, %v, want the one good series", complete, mint, matchers, result, err)
				}
			}
		}
	}
}

func TestSelect_PagesAndLimit(t *testing.T) {
	db := newDatabase(t, nil)
	const series = 5000 // more than a page
	var b store.Batch
	for i := range series {
		tsuid := db.tsuid("m", "k", fmt.Sprintf("v%04d", i))
		db.writer.PutSeries(&b, tsuid, 1)
		db.writer.PutDay(&b, tsuid, 20_000, 1, nil)
		db.writer.PutDay(&b, tsuid, 20_001, 1, nil)
	}
	db.apply(&b)
	r := db.reader(true)
	for _, c := range []struct {
		m     *labels.Matcher
		limit int
		want  int
	}{
		{ne("k", "x"), 0, series}, {ne("k", "x"), series, series}, {ne("k", "x"), series - 1, -1}, {ne("k", "x"), 4096, -1},
		{re("k", "v..0."), 500, 500}, {re("k", "v..0."), 499, -1}, {eq("k", "v4999"), 1, 1},
	} {
		for _, mint := range []int64{noon, 0} {
			result, err := r.Select(t.Context(), mint, noon+day, index.Limits{Series: c.limit}, eq("__name__", "m"), c.m)
			if c.want < 0 {
				if !errors.Is(err, index.ErrTooMany) {
					t.Errorf("%s, limit %d: got %d series, %v, want ErrTooMany", c.m, c.limit, len(result.Series), err)
				}
				continue
			}
			if err != nil || len(result.Series) != c.want || result.Candidates != series {
				t.Errorf("%s, limit %d: got %d of %d candidates, %v, want %d of %d",
					c.m, c.limit, len(result.Series), result.Candidates, err, c.want, series)
			}
			if !slices.IsSortedFunc(result.Series, func(a, b index.Series) int { return labels.Compare(a.Labels, b.Labels) }) {
				t.Errorf("%s, limit %d: the series are not sorted", c.m, c.limit)
			}
		}
	}
}

func TestSelect_ErrorOfTheStoreComesBack(t *testing.T) {
	db := newDatabase(t, nil)
	for i := range 3 {
		db.write(db.tsuid("m", "k", fmt.Sprint(i)), noon)
	}
	for _, complete := range []bool{true, false} {
		settings := db.settings
		settings.IndexComplete = complete
		for _, when := range []storetest.When{storetest.Before, storetest.Midway} {
			for call := 1; ; call++ {
				st := storetest.Faulty(db.store, storetest.Fault{Call: call, When: when, Rows: 1})
				result, err := newReader(st, settings).Select(t.Context(), 0, noon, index.Limits{}, re("__name__", "m.*"),
					re("k", "[0-9]"))
				if st.Calls(storetest.Any) < call {
					if err != nil || len(result.Series) != 3 || call < 4 {
						t.Errorf("after %d calls: got %v, %v", call-1, result, err)
					}
					break
				}
				if !errors.Is(err, store.ErrUnavailable) || result.Series != nil {
					t.Errorf("call %d failing: got %v, %v, want ErrUnavailable", call, result, err)
				}
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := db.reader(true).Select(ctx, 0, noon, index.Limits{}, eq("__name__", "m")); !errors.Is(err,
		context.Canceled) {
		t.Errorf("with a context that has ended: got %v", err)
	}
}

func TestSelect_BoundsItsMemoryOverAnyRange(t *testing.T) {
	db := newDatabase(t, nil)
	const series, days = 300, 60 // beyond the days that are read one by one
	var b store.Batch
	for i := range series {
		tsuid := db.tsuid("m", "k", fmt.Sprintf("v%04d", i))
		db.writer.PutSeries(&b, tsuid, 1)
		for d := range mapping.Day(days) {
			if int(d) == i%days { // each is of one day, so that every day brings others
				db.writer.PutDay(&b, tsuid, 20_000+d, 1, nil)
			}
		}
	}
	db.apply(&b)
	r := db.reader(true)
	for _, span := range []struct{ days, found int }{{1, 5}, {2, 10}, {39, 195}, {days, series}} {
		maxt := noon + int64(span.days-1)*day
		full, held := errors.New("no memory"), int64(0)
		find := func(most int64) (int, error) {
			held = 0
			limits := index.Limits{Take: func(bytes int64) error {
				if held += bytes; held > most {
					return full
				}
				return nil
			}}
			result, err := r.Select(t.Context(), noon, maxt, limits, eq("__name__", "m"))
			if err == nil && result.Bytes != held {
				t.Errorf("%d days: %d bytes are held, the result says %d", span.days, held, result.Bytes)
			}
			return len(result.Series), err
		}
		// What it takes is above the bytes of a TSUID and its labels, and not a multiple of what Go needs for them.
		least, most := int64(span.found*(9+16)), int64(span.found*400)
		if _, err := find(least); !errors.Is(err, full) {
			t.Errorf("%d days in %d bytes: got error %v, want %v", span.days, least, err, full)
		}
		if n, err := find(most); err != nil || n != span.found {
			t.Errorf("%d days in %d bytes: got %d series and error %v, want %d", span.days, most, n, err, span.found)
		}
	}
}

// Names of series that were found before are not looked up again, and series without one are left out.
func TestSelect_LabelsOfSeriesFoundBeforeAreKnown(t *testing.T) {
	db := newDatabase(t, nil)
	db.write(db.tsuid("up", "job", "a"), noon)
	db.write(db.tsuid("up", "job", "lost"), noon)
	drop := func(value string) {
		var b store.Batch
		row := db.settings.Schema.AppendUID(nil, mapping.Tagv, db.id(mapping.Tagv, value))
		b.Delete(db.settings.Tables.UID, row, "name", []byte(mapping.Tagv.String()), 2)
		db.apply(&b)
	}
	drop("lost")
	r := db.reader(true)
	find := func() (out []string) {
		found, err := r.Select(t.Context(), noon, noon, index.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range found.Series {
			out = append(out, s.Labels.String())
		}
		return out
	}
	want := []string{`{__name__="up", job="a"}`}
	if got := find(); !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	r.UIDs = storetest.Must(uid.New(uid.Config{
		Store: db.store, Table: db.settings.Tables.UID, Schema: db.settings.Schema,
	}))
	drop("a")
	db.write(db.tsuid("up", "job", "b"), noon)
	if got, want := find(), append(want, `{__name__="up", job="b"}`); !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
}
