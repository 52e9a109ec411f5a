package adapter

import (
	"fmt"
	"html"
	"net/http"
	"strings"
)

// serveHealthy says whether the process serves requests, or has to be started again.
func (h *Handler) serveHealthy(w http.ResponseWriter, _ *http.Request) {
	if h.config.Healthy != nil {
		if err := h.config.Healthy(); err != nil {
			http.Error(w, "promtsd is not healthy: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	_, _ = fmt.Fprintln(w, "promtsd is healthy.")
}

// serveReady says whether writes and reads will be served, and why not.
func (h *Handler) serveReady(w http.ResponseWriter, _ *http.Request) {
	var why []string
	if reason := h.notReady.Load(); reason != nil {
		why = append(why, *reason)
		if *reason == starting && h.config.Starting != nil {
			if doing := h.config.Starting(); doing != "" {
				why = append(why, doing)
			}
		}
	}
	if h.config.Ready != nil {
		if err := h.config.Ready(); err != nil {
			why = append(why, err.Error())
		}
	}
	if len(why) > 0 {
		http.Error(w, "promtsd is not ready: "+strings.Join(why, ", "), http.StatusServiceUnavailable)
		return
	}
	_, _ = fmt.Fprintln(w, "promtsd is ready.")
}

const indexPage = `<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>promtsd</title></head>
<body>
<h1>promtsd %s</h1>
<p>A long-term store for Prometheus in the OpenTSDB schema.</p>
<table>
<tr><td>POST <code>/api/v1/write</code></td><td>remote write 1.0 and 2.0 (<code>remote_write</code>)</td></tr>
<tr><td>POST <code>/api/v1/read</code></td><td>remote read, samples and streamed chunks (<code>remote_read</code>)</td></tr>
<tr><td><code>/api/v1/</code></td><td>Prometheus's query API: PromQL, series, labels; for Grafana</td></tr>
<tr><td><a href="/metrics"><code>/metrics</code></a></td><td>metrics of promtsd itself</td></tr>
<tr><td><a href="/-/healthy"><code>/-/healthy</code></a></td><td>whether it runs</td></tr>
<tr><td><a href="/-/ready"><code>/-/ready</code></a></td><td>whether it takes requests</td></tr>
</table>
</body>
</html>
`

// serveIndex names what is served, on / as a page and on unknown paths as a hint.
func (h *Handler) serveIndex(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/" {
		http.Error(w, fmt.Sprintf("nothing is served at %q: remote write is at /api/v1/write, remote read at /api/v1/read, "+
			"and / names the rest", r.URL.Path), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = fmt.Fprintf(w, indexPage, html.EscapeString(h.config.Version))
}
