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
	"github.com/promtsd/promtsd/mapping/request"
)

// The versions of remote write, as the metrics name them.
const (
	version1       = "1.0"
	version2       = "2.0"
	versionUnknown = "unknown"
)

// writeBuffers is the memory of one write request, whose body was read, to be used again.
type writeBuffers struct {
	content []byte
	decoder wire.Decoder
	request request.Write
}

func (b *writeBuffers) memory() int { return cap(b.content) + wire.Memory(&b.request) }

// buffers are for a request: new ones if what others left is more than there is memory for.
func (h *Handler) buffers(held *lease) *writeBuffers {
	b := h.writes.Get().(*writeBuffers)
	if !held.take(b.memory()) {
		b = h.writes.New().(*writeBuffers)
	}
	return b
}

// serveWrite answers a remote-write request. What it answers decides what the sender does: after 2xx it forgets the
// samples, after 4xx it drops them, after 5xx it sends them again, for ever. So 2xx means that every sample is durable,
// 4xx that the refused ones never can be (the others are), and 5xx that sending again is harmless and may help.
func (h *Handler) serveWrite(w http.ResponseWriter, r *http.Request) {
	begin := h.config.Now()
	if n, err := strconv.Atoi(r.Header.Get("Retry-Attempt")); err == nil && n > 0 {
		h.metrics.writeRetries.Inc()
	}
	version, result := versionUnknown, request.Result{}
	answer := h.admit(w, r)
	if answer == nil {
		version, answer = writeVersion(r.Header.Get("Content-Type"))
	}
	if answer == nil {
		answer = checkEncoding(r)
	}
	if answer == nil {
		result, answer = h.write(h.pace(w, r), version)
	}
	if version == version2 {
		// Senders of 1.0 do not expect these.
		w.Header().Set("X-Prometheus-Remote-Write-Samples-Written", strconv.Itoa(result.Written))
		w.Header().Set("X-Prometheus-Remote-Write-Histograms-Written", strconv.Itoa(result.Histograms))
		w.Header().Set("X-Prometheus-Remote-Write-Exemplars-Written", strconv.Itoa(result.Exemplars.Written))
	}
	answer.send(w)
	h.metrics.writeSamples.Add(float64(result.Written))
	h.metrics.writeHistograms.Add(float64(result.Histograms))
	h.metrics.writeRequests.WithLabelValues(version, answer.label()).Inc()
	h.metrics.writeDuration.WithLabelValues(version).Observe(h.config.Now().Sub(begin).Seconds())
	if answer.code == http.StatusInternalServerError {
		h.config.Logger.Error("remote write failed", "err", answer.text, "sender", r.RemoteAddr)
	}
}

// writeVersion tells the message by the media type, which senders must give. Its parameter proto decides, not the
// version header.
func writeVersion(contentType string) (string, *reply) {
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

// write reads, decodes and stores the body.
func (h *Handler) write(r *http.Request, version string) (none request.Result, answer *reply) {
	held := h.inFlight.lease(r)
	defer held.release()
	ctx := request.WithSender(r.Context(), held.client)

	body := bodyReader{limit: h.config.Write.MaxBodyBytes, flag: flagMaxBodyBytes, lease: held}
	block := h.blocks.Get().(*[]byte)
	defer h.blocks.Put(block)
	if *block, answer = body.read(ctx, *block, r); answer != nil {
		return none, answer
	}
	h.metrics.writeBytes.Add(float64(len(*block)))
	buffers := h.buffers(held)
	defer h.writes.Put(buffers)
	if buffers.content, answer = body.inflate(buffers.content, *block); answer != nil {
		return none, answer
	}

	req := &buffers.request
	decode, encoding := buffers.decoder.DecodeV1, wire.EncodingV1
	if version == version2 {
		decode, encoding = buffers.decoder.DecodeV2, wire.EncodingV2
	}
	buffers.decoder.Take = held.take
	counts, err := decode(buffers.content, req)
	buffers.decoder.Take = nil
	if errors.Is(err, wire.ErrNoMemory) {
		return none, body.overloaded()
	}
	if err != nil {
		if errors.Is(err, wire.ErrTooLarge) {
			err = fmt.Errorf("%w, which is four times %s", err, flagMaxBodyBytes)
		}
		refused := badRequest(err.Error())
		return none, &refused
	}
	req.Encoding, req.Body = encoding, *block
	return h.append(ctx, req, version, counts)
}

// append stores what was decoded and counts the outcome.
func (h *Handler) append(
	ctx context.Context, req *request.Write, version string, counts wire.Counts,
) (result request.Result, answer *reply) {
	if len(req.Series)+len(req.Metadata) > 0 {
		req.NeedMetricName = true
		var err error
		if result, err = h.config.Appender.Append(ctx, req); err != nil {
			failed := replyToWrite(ctx, err)
			return result, &failed
		}
	}
	refusal := refusal{written: result.Written + result.Histograms, malformed: counts.Malformed}
	refusal.add(counts.Refused)
	refusal.add(result)
	if version == version2 {
		// In 1.0, whose senders would count the samples as refused, exemplars are only dropped, as Prometheus does.
		refusal.addExemplars(result.Exemplars)
	}

	for reason, n := range refusal.reasons {
		h.metrics.writeRefused.WithLabelValues(string(reason)).Add(float64(n))
	}
	h.metrics.writeMalformed.Add(float64(counts.Malformed))
	if refusal.reasons == nil && refusal.exemplars == nil {
		return result, &reply{code: http.StatusNoContent}
	}
	refused := badRequest(refusal.text())
	return result, &refused
}

// A refusal gathers what was refused of one request.
type refusal struct {
	written   int // samples and histograms
	malformed int // time series and exemplars
	reasons   map[request.Reason]int
	exemplars map[request.Reason]int // exemplars that were refused
	examples  []error
}

func (r *refusal) add(result request.Result) {
	if len(result.Refused) > 0 && r.reasons == nil {
		r.reasons = make(map[request.Reason]int)
	}
	for reason, n := range result.Refused {
		r.reasons[reason] += n
	}
	r.examples = append(r.examples, result.Examples...)
}

func (r *refusal) addExemplars(result request.ExemplarResult) {
	if r.exemplars = result.Refused; r.exemplars != nil {
		r.examples = append(r.examples, result.Example)
	}
}

// Prometheus logs no more than 1024 bytes of an answer.
const (
	maxRefusalBytes = 1000
	maxExampleBytes = 300
)

// text says how many were refused and why, and then gives examples, as many as are read.
func (r *refusal) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "refused %s, stored %d", formatReasons("samples and histograms", r.reasons), r.written)
	if r.exemplars != nil {
		fmt.Fprintf(&b, "; refused %s", formatReasons("exemplars", r.exemplars))
	}
	if r.malformed > 0 {
		fmt.Fprintf(&b, "; %d time series or exemplars are malformed", r.malformed)
	}
	for _, example := range r.examples {
		line := example.Error()
		if len(line) > maxExampleBytes {
			// The series stands first, and the limit last.
			line = strings.ToValidUTF8(line[:maxExampleBytes/3], "") + "…" +
				strings.ToValidUTF8(line[len(line)-maxExampleBytes/3*2:], "")
		}
		if b.Len()+1+len(line) > maxRefusalBytes {
			break
		}
		b.WriteString("\n" + line)
	}
	return b.String()
}

// formatReasons says how many of something there are, and for which reasons.
func formatReasons(what string, reasons map[request.Reason]int) string {
	total := 0
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		total += reasons[reason]
		parts = append(parts, fmt.Sprintf("%s %d", reason, reasons[reason]))
	}
	if parts == nil {
		return "no " + what
	}
	return fmt.Sprintf("%d %s (%s)", total, what, strings.Join(parts, ", "))
}
