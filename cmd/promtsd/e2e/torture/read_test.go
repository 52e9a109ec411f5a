package torture_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
)

// tortureAccess is a way to ask for what a group wrote.
type tortureAccess string

const (
	accessSamples     tortureAccess = "remote read, samples"
	accessChunks      tortureAccess = "remote read, streamed"
	accessPromQL      tortureAccess = "PromQL"
	accessAnnotations tortureAccess = "exemplars and metadata"
)

var accesses = map[content][]tortureAccess{
	ofSamples: {accessSamples, accessChunks, accessPromQL}, ofExemplars: {accessAnnotations}, ofMetadata: {accessAnnotations},
}

// errNotWhole says that an answer came with a warning.
var errNotWhole = errors.New("promtsd warned that samples may be missing")

// tortureReader asks one node for what senders wrote.
type tortureReader struct {
	*torture
	node   *tortureNode
	client *http.Client
}

// run reads until there was enough: a random group, all of it or a part, in one way after the other.
func (r *tortureReader) run(ctx context.Context) {
	defer r.client.CloseIdleConnections()
	for turn := 0; !r.enough.Load() && ctx.Err() == nil; turn++ {
		url := r.node.url()
		if rand.IntN(4) == 0 {
			url = r.node.front.url()
		}
		g := r.someGroup()
		mint, maxt := r.span()
		if rand.IntN(2) == 0 {
			mint += rand.Int64N(maxt - mint)
			maxt = min(maxt, mint+rand.Int64N(int64(5*time.Hour/time.Millisecond)))
		}
		err := r.read(ctx, url, accesses[g.content][turn%len(accesses[g.content])], g, mint, maxt)
		switch {
		case err == nil:
			r.counts.add("read", 1)
		case errors.Is(err, errNotWhole):
			r.counts.add("read with a warning", 1)
		default:
			r.counts.add("not read", 1)
			promtest.Sleep(ctx, 100*time.Millisecond)
		}
		promtest.Sleep(ctx, rand.N(150*time.Millisecond))
	}
}

// span is the time in which all samples of the senders are.
func (x *torture) span() (mint, maxt int64) {
	now := time.Now()
	return x.started.Add(-40 * time.Hour).UnixMilli(), now.UnixMilli()
}

// read asks for a group and checks the answer. An error says that there was none, or one that may not be whole.
func (r *tortureReader) read(ctx context.Context, url string, how tortureAccess, g group, mint, maxt int64) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	question := reading{group: g, mint: mint, maxt: maxt, whole: true, series: map[string][]reported{}}
	lives := r.node.life()
	warned, err := promtest.ReadWarnings(ctx, r.node.url())
	if err != nil {
		return err
	}
	question.begun = r.history.now()
	switch {
	case g.content == ofExemplars:
		err = r.askExemplars(ctx, url, &question)
	case g.content == ofMetadata:
		err = r.askMetadata(ctx, url, &question)
	case how == accessPromQL:
		err = r.askPromQL(ctx, url, &question)
	default:
		err = r.askRemote(ctx, url, how, &question)
	}
	if err != nil {
		return err
	}
	question.ended = r.history.now()
	if how == accessSamples || how == accessChunks { // the others have warnings in their answers
		after, err := promtest.ReadWarnings(ctx, r.node.url())
		question.whole = err == nil && after == warned && r.node.life() == lives
	}
	problems := r.history.check(question)
	for _, p := range problems[:min(len(problems), 3)] {
		r.problem("%s from %s of sender %d, era %d (%d problems, answer %d to %d): %s",
			how, r.node.name, g.sender, g.era, len(problems), question.begun, question.ended, p)
	}
	if !question.whole {
		return errNotWhole
	}
	return nil
}

func (r *tortureReader) askRemote(ctx context.Context, url string, how tortureAccess, question *reading) error {
	form := prompb.ReadRequest_STREAMED_XOR_CHUNKS
	if how == accessSamples {
		form = prompb.ReadRequest_SAMPLES
	}
	answer, err := remotetest.Read(ctx, r.client, url, form, []*prompb.Query{{
		StartTimestampMs: question.mint, EndTimestampMs: question.maxt,
		Matchers: []*prompb.LabelMatcher{
			{Type: prompb.LabelMatcher_EQ, Name: "job", Value: "torture"},
			{Type: prompb.LabelMatcher_EQ, Name: "sender", Value: strconv.Itoa(question.sender)},
			{Type: prompb.LabelMatcher_EQ, Name: "era", Value: strconv.Itoa(question.era)},
		},
	}})
	if err != nil {
		if strings.HasPrefix(err.Error(), "400") {
			r.problem("a remote read of %s was answered %v", r.node.name, err)
		}
		return err
	}
	for _, s := range answer[0] {
		name := s.Labels.String()
		if _, twice := question.series[name]; twice {
			r.problem("%s of %s has the series %s twice", how, r.node.name, name)
		}
		points := []reported{}
		for _, p := range append(s.Samples, s.Counts...) {
			points = append(points, reported{p.T, p.V})
		}
		question.series[name] = points
	}
	return nil
}

// selector selects the series of a group.
func (g group) selector() string {
	return fmt.Sprintf(`{job="torture", sender="%d", era="%d"}`, g.sender, g.era)
}

// askPromQL asks for the samples themselves: an instant query of a range.
func (r *tortureReader) askPromQL(ctx context.Context, base string, question *reading) error {
	var data struct {
		Result []struct {
			Metric     labels.Labels
			Values     []pointJSON
			Histograms []pointJSON
		}
	}
	err := r.askAPI(ctx, base, "query", url.Values{
		"query": {fmt.Sprintf("%s[%dms]", question.selector(), question.maxt-question.mint+1)}, // its left end is open
		"time":  {promtest.Seconds(time.UnixMilli(question.maxt))},
	}, question, &data)
	for _, s := range data.Result {
		points := []reported{}
		for _, p := range append(s.Values, s.Histograms...) {
			points = append(points, reported(p))
		}
		question.series[s.Metric.String()] = points
	}
	return err
}

// askExemplars asks for the exemplars of series.
func (r *tortureReader) askExemplars(ctx context.Context, base string, question *reading) error {
	var data []struct {
		SeriesLabels labels.Labels
		Exemplars    []struct {
			Labels    labels.Labels
			Value     string
			Timestamp float64
		}
	}
	err := r.askAPI(ctx, base, "query_exemplars", url.Values{
		"query": {question.selector()}, "start": {promtest.Seconds(time.UnixMilli(question.mint))},
		"end": {promtest.Seconds(time.UnixMilli(question.maxt))},
	}, question, &data)
	for _, s := range data {
		for _, e := range s.Exemplars {
			v, err := strconv.ParseFloat(e.Value, 64)
			if err != nil || e.Labels.Get(remotetest.TraceID) != e.Value {
				r.problem("%s has an exemplar of value %s with labels %s", r.node.name, e.Value, e.Labels)
			}
			name := s.SeriesLabels.String()
			question.series[name] = append(question.series[name], reported{int64(e.Timestamp*1000 + 0.5), v})
		}
	}
	return err
}

// askMetadata asks for the metadata of all families, which know no times.
func (r *tortureReader) askMetadata(ctx context.Context, base string, question *reading) error {
	question.mint, question.maxt = 0, 0
	var data map[string][]struct{ Type, Help string }
	err := r.askAPI(ctx, base, "metadata", url.Values{}, question, &data)
	family := fmt.Sprintf("torture_family_%d_%d", question.sender, question.era)
	for _, m := range data[family] {
		v, err := strconv.ParseFloat(m.Help, 64)
		if err != nil || m.Type != "gauge" {
			r.problem("%s has of family %s the metadata %v", r.node.name, family, m)
		}
		name := labels.FromStrings("__name__", family).String()
		question.series[name] = append(question.series[name], reported{0, v})
	}
	return err
}

// askAPI asks a question of Prometheus's API, whose answer may be one with warnings.
func (r *tortureReader) askAPI(ctx context.Context, base, path string, form url.Values, question *reading,
	data any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/v1/"+path+"?"+form.Encode(), nil)
	if err != nil {
		return err
	}
	res, err := r.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer := struct {
		Status, Error string
		Warnings      []string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		if res.StatusCode == http.StatusBadRequest {
			r.problem("a query of %s was answered %s: %s", r.node.name, res.Status, answer.Error)
		}
		return fmt.Errorf("%s: %s", res.Status, answer.Error)
	}
	question.whole = len(answer.Warnings) == 0
	return nil
}

// pointJSON is a point as PromQL's API writes it: a time in seconds, and a value or a histogram, of which the count is
// kept.
type pointJSON reported

func (p *pointJSON) UnmarshalJSON(data []byte) error {
	var t float64
	var value json.RawMessage
	if err := json.Unmarshal(data, &[]any{&t, &value}); err != nil {
		return err
	}
	text := struct{ Count string }{}
	var err error
	if value[0] == '{' {
		err = json.Unmarshal(value, &text)
	} else {
		err = json.Unmarshal(value, &text.Count)
	}
	if err != nil {
		return err
	}
	p.t = int64(t*1000 + 0.5)
	p.value, err = strconv.ParseFloat(text.Count, 64)
	return err
}
