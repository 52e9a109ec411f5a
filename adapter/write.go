package adapter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/promtsd/promtsd/adapter/wire"
	"github.com/promtsd/promtsd/mapping"
)

// The versions of remote write, as the metrics name them.
const (
	version1       = "1.0"
	version2       = "2.0"
	versionUnknown = "unknown"
)

// writeBuffers is the memory of one write request, to be used again.
type writeBuffers struct {
	block, content []byte
	decoder        wire.Decoder
	request        mapping.WriteRequest
}

// serveWrite answers a remote-write request. What it answers decides what the sender does: after 2xx it forgets the
// samples, after 4xx it drops them, after 5xx it sends them again, for ever. So 2xx means that every sample is durable,
// 4xx that the refused ones never can be (the others are), and 5xx that sending again is harmless and may help.
func (h *Handler) serveWrite(w http.ResponseWriter, r *http.Request) {
	begin := h.config.Now()
	if n, err := strconv.Atoi(r.Header.Get("Retry-Attempt")); err == nil && n > 0 {
		h.metrics.writeRetries.Inc()
	}
	version := versionUnknown
	var written stored
	answer := h.admit(w, r)
	if answer == nil {
		version, answer = writeVersion(r.Header.Get("Content-Type"))
	}
	if answer == nil {
		answer = checkEncoding(r)
	}
	if answer == nil {
		written, answer = h.write(r, version)
	}
	if version == version2 {
		// Senders of 1.0 do not expect these. Exemplars are not stored, and so not counted as written.
		w.Header().Set("X-Prometheus-Remote-Write-Samples-Written", strconv.Itoa(written.samples))
		w.Header().Set("X-Prometheus-Remote-Write-Histograms-Written", strconv.Itoa(written.histograms))
		w.Header().Set("X-Prometheus-Remote-Write-Exemplars-Written", "0")
	}
	answer.send(w)
	h.metrics.writeSamples.Add(float64(written.samples))
	h.metrics.writeHistograms.Add(float64(written.histograms))
	h.metrics.writeRequests.WithLabelValues(version, answer.label()).Inc()
	h.metrics.writeDuration.WithLabelValues(version).Observe(h.config.Now().Sub(begin).Seconds())
	if answer.code == http.StatusInternalServerError {
		h.config.Logger.Error("remote write failed", "err", answer.text, "sender", r.RemoteAddr)
	}
}

// writeVersion tells the message by the media type. Its parameter proto decides, not the version header.
func writeVersion(contentType string) (string, *reply) {
	if contentType == "" {
		return version1, nil
	}
	mediaType, params, err := mime.ParseMediaType(contentType)
	if err == nil && mediaType == "application/x-protobuf" {
		switch params["proto"] {
		case "", "prometheus.WriteRequest":
			return version1, nil
		case "io.prometheus.write.v2.Request":
			return version2, nil
		}
	}
	return versionUnknown, &reply{code: http.StatusUnsupportedMediaType, text: fmt.Sprintf(
		"Content-Type %q is not supported: send application/x-protobuf with proto=prometheus.WriteRequest or "+
			"proto=io.prometheus.write.v2.Request", contentType)}
}

// stored is what of a request is durable now.
type stored struct{ samples, histograms int }

// write reads, decodes and stores the body.
func (h *Handler) write(r *http.Request, version string) (written stored, answer *reply) {
	ctx := r.Context()
	buffers := h.writes.Get().(*writeBuffers)
	defer h.writes.Put(buffers)
	held := lease{budget: &h.inFlight}
	defer held.release()

	body := bodyReader{limit: h.config.Write.MaxBodyBytes, flag: flagMaxBodyBytes, lease: &held}
	if buffers.block, answer = body.read(ctx, buffers.block, r); answer != nil {
		return written, answer
	}
	h.metrics.writeBytes.Add(float64(len(buffers.block)))
	if buffers.content, answer = body.inflate(buffers.content, buffers.block); answer != nil {
		return written, answer
	}

	request := &buffers.request
	decode, form := buffers.decoder.DecodeV1, wire.FormV1
	if version == version2 {
		decode, form = buffers.decoder.DecodeV2, wire.FormV2
	}
	counts, err := decode(buffers.content, request)
	if err != nil {
		if errors.Is(err, wire.ErrTooLarge) {
			err = fmt.Errorf("%w, which is four times %s", err, flagMaxBodyBytes)
		}
		refused := badRequest(err.Error())
		return written, &refused
	}
	if answer = body.take(wire.Memory(request)); answer != nil {
		return written, answer
	}
	request.Form, request.Body = form, buffers.block
	return h.append(ctx, request, counts)
}

// append stores what was decoded and judges the outcome.
func (h *Handler) append(ctx context.Context, request *mapping.WriteRequest, counts wire.Counts) (stored, *reply) {
	var result mapping.WriteResult
	if len(request.Series) > 0 {
		request.NeedMetricName = true
		var err error
		if result, err = h.config.Appender.Append(ctx, request); err != nil {
			answer := replyTo(ctx, err)
			return stored{result.Written, result.Histograms}, &answer
		}
	}
	written := stored{result.Written, result.Histograms}
	refusal := refusal{written: written, malformed: counts.Malformed}
	refusal.add(counts.Refused)
	refusal.add(result)

	for reason, n := range refusal.reasons {
		h.metrics.writeRefused.WithLabelValues(string(reason)).Add(float64(n))
	}
	h.metrics.writeMalformed.Add(float64(counts.Malformed))
	for kind, n := range map[string]int{"exemplar": counts.Exemplars, "metadata": counts.Metadata} {
		if n > 0 {
			h.metrics.writeDropped.WithLabelValues(kind).Add(float64(n))
		}
	}
	if refusal.reasons == nil {
		return written, &reply{code: http.StatusNoContent}
	}
	answer := badRequest(refusal.text())
	return written, &answer
}

// A refusal gathers what was refused of one request.
type refusal struct {
	written   stored
	malformed int // time series and exemplars
	reasons   map[mapping.Reason]int
	examples  []error
}

func (r *refusal) add(result mapping.WriteResult) {
	if len(result.Refused) > 0 && r.reasons == nil {
		r.reasons = make(map[mapping.Reason]int)
	}
	for reason, n := range result.Refused {
		r.reasons[reason] += n
	}
	r.examples = append(r.examples, result.Examples...)
}

// Prometheus logs no more than 1024 bytes of an answer.
const (
	maxRefusalBytes = 1000
	maxExampleBytes = 300
)

// text says how many were refused and why, and then gives examples, as many as are read.
func (r *refusal) text() string {
	total := 0
	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(r.reasons)) {
		total += r.reasons[reason]
		reasons = append(reasons, fmt.Sprintf("%s %d", reason, r.reasons[reason]))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "refused %d samples and histograms (%s), stored %d", total, strings.Join(reasons, ", "),
		r.written.samples+r.written.histograms)
	if r.malformed > 0 {
		fmt.Fprintf(&b, "; %d time series or exemplars are malformed", r.malformed)
	}
	for _, example := range r.examples {
		line := example.Error()
		if len(line) > maxExampleBytes {
			line = strings.ToValidUTF8(line[:maxExampleBytes], "") + "…"
		}
		if b.Len()+1+len(line) > maxRefusalBytes {
			break
		}
		b.WriteString("\n" + line)
	}
	return b.String()
}
