package promtest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Self stands in Config.YAML for the host:port of the server that the configuration is for, so that it can scrape
// itself.
const Self = "{{self}}"

// Config says how Start runs a Prometheus server.
type Config struct {
	// YAML is the text of prometheus.yml, with Self for the server's own address. An empty text is a valid
	// configuration.
	YAML string
	// Args are further flags. Start itself gives --config.file, --storage.tsdb.path, --web.listen-address and
	// --storage.remote.flush-deadline, which Prometheus refuses to see twice.
	Args []string
}

// Server is a running Prometheus server with an empty time series database of its own.
type Server struct {
	*Process
}

// Start runs a Prometheus server and returns when it is ready. The server is stopped, and its log shown on failure,
// when the test ends.
func Start(t testing.TB, cfg Config) *Server {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	return &Server{startProcess(t, processSpec{
		name: "prometheus",
		bin:  Prometheus(t),
		dir:  dir,
		args: func(addr, _ string) ([]string, error) {
			flags := []string{
				"--config.file=" + file,
				"--storage.tsdb.path=" + filepath.Join(dir, "data"),
				"--web.listen-address=" + addr,
				// The default of a minute would hold up the end of every test whose receiver is gone.
				"--storage.remote.flush-deadline=10s",
			}
			yaml := strings.ReplaceAll(cfg.YAML, Self, addr)
			return slices.Concat(flags, cfg.Args), os.WriteFile(file, []byte(yaml), 0o644)
		},
	})}
}
