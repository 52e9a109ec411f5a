package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/util/httputil"
	v1 "github.com/prometheus/prometheus/web/api/v1"

	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/query/budget"
)

// MetadataSource knows metric families. It may be called by many goroutines at once.
type MetadataSource interface {
	// Metadata calls f with the metadata of the family with a name, if there is any; with an empty name with that of all
	// families, ordered by name, of limit at most if that is above 0. It ends with the first error of f.
	Metadata(ctx context.Context, name string, limit int, f func(name string, m metadata.Metadata) error) error
}

// serveMetadata answers metadata, with a buffer of memory however much is stored: there is one entry for each family,
// so that nothing has to be known of all before the first is sent. What is wrong with a request the module says.
func (h *Handler) serveMetadata(w http.ResponseWriter, r *http.Request) {
	limit, err := number(r, "limit")
	_, perMetricErr := number(r, "limit_per_metric") // there is one
	if err != nil || perMetricErr != nil || r.Method != http.MethodGet {
		h.router.ServeHTTP(w, r)
		return
	}
	httputil.CompressionHandler{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.sendMetadata(w, r, limit)
	})}.ServeHTTP(w, r)
}

// number is a parameter of a request, -1 if it is not there.
func number(r *http.Request, name string) (int, error) {
	if s := r.FormValue(name); s != "" {
		return strconv.Atoi(s)
	}
	return -1, nil
}

// sendBytes is how much of an answer is held back, so that an error up to there can become a status.
const sendBytes = 64 << 10

// sendMetadata sends the metadata of limit families at most, of all that are asked for if that is below 0.
func (h *Handler) sendMetadata(w http.ResponseWriter, r *http.Request, limit int) {
	if err := budget.From(r.Context()).Take(r.Context(), sendBytes); err != nil {
		respondError(w, err)
		return
	}
	begun := false
	out := bufio.NewWriterSize(writerFunc(func(p []byte) (int, error) {
		if !begun {
			begun = true
			w.Header().Set("Content-Type", "application/json")
		}
		return w.Write(p)
	}), sendBytes)
	before := `{"status":"success","data":{`
	send := func(name string, m metadata.Metadata) error {
		entry, err := json.Marshal(map[string][1]metadata.Metadata{name: {m}})
		if err != nil {
			return err
		}
		_, err = out.WriteString(before)
		before = ","
		if err == nil {
			_, err = out.Write(entry[1 : len(entry)-1])
		}
		return err
	}
	var err error
	if limit != 0 {
		err = h.config.Metadata.Metadata(r.Context(), r.FormValue("metric"), limit, send)
	}
	if err == nil {
		if before != "," {
			_, _ = out.WriteString(before)
		}
		_, _ = out.WriteString("}}")
		err = out.Flush()
	}
	switch {
	case err != nil && !begun:
		respondError(w, err)
	case err != nil:
		panic(http.ErrAbortHandler) // the status is gone; a broken connection says that the answer is not whole
	}
}

// writerFunc is an io.Writer.
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// maxMetadataBytes bounds the texts of an answer to targets/metadata.
const maxMetadataBytes = 64 << 20

// serveTargetMetadata answers targets/metadata. The module's handler takes metadata from the targets that are scraped,
// on a path on which nothing can fail. So what is asked for is read first, and the handler finds it as that of a target
// which is there for this request alone.
func (h *Handler) serveTargetMetadata(w http.ResponseWriter, r *http.Request) {
	limit, err := strconv.Atoi(r.FormValue("limit"))
	if err != nil {
		limit = 0 // none, or one that the module refuses
	}
	found := metadataStore{}
	size := 0
	err = h.config.Metadata.Metadata(r.Context(), r.FormValue("metric"), limit,
		func(name string, m metadata.Metadata) error {
			if size += len(name) + len(m.Help) + len(m.Unit); size > maxMetadataBytes {
				return fmt.Errorf("%w: the metadata found has more than %d bytes; ask for that of a metric, or set a limit",
					query.ErrLimit, maxMetadataBytes)
			}
			if err := budget.From(r.Context()).Take(r.Context(),
				int64(familyBytes+answerTimes*(len(name)+len(m.Help)+len(m.Unit)))); err != nil {
				return err
			}
			found = append(found, scrape.MetricMetadata{MetricFamily: name, Type: m.Type, Help: m.Help, Unit: m.Unit})
			return nil
		})
	if err != nil {
		respondError(w, err)
		return
	}
	h.router.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), metadataKey{}, found)))
}

// metadataKey is the key of the metadataStore in the context of a request for metadata.
type metadataKey struct{}

// targetsOf are the targets that a request finds.
func targetsOf(ctx context.Context) v1.TargetRetriever {
	if found, ok := ctx.Value(metadataKey{}).(metadataStore); ok {
		return soleTarget{found: found}
	}
	return absent{}
}

// soleTarget has one active target, without labels, for its metadata.
type soleTarget struct {
	absent
	found metadataStore
}

func (s soleTarget) TargetsActive() map[string][]*scrape.Target {
	target := scrape.NewTarget(labels.EmptyLabels(), nil, nil, nil)
	target.SetMetadataStore(s.found)
	return map[string][]*scrape.Target{"": {target}}
}

// metadataStore is a scrape.MetricMetadataStore of the metadata of some families.
type metadataStore []scrape.MetricMetadata

func (s metadataStore) ListMetadata() []scrape.MetricMetadata { return s }

func (s metadataStore) GetMetadata(name string) (scrape.MetricMetadata, bool) {
	for _, m := range s {
		if m.MetricFamily == name {
			return m, true
		}
	}
	return scrape.MetricMetadata{}, false
}

func (s metadataStore) LengthMetadata() int { return len(s) }

func (s metadataStore) SizeMetadata() (size int) {
	for _, m := range s {
		size += len(m.MetricFamily) + len(m.Help) + len(m.Unit)
	}
	return size
}
