package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/store/hbase"
	"github.com/promtsd/promtsd/store/hbase/client"
)

const repository = "../.."

func readme(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repository, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// fenced is a block of code of a Markdown text.
type fenced struct{ language, content string }

// section returns the text between a heading of the second level and the next one.
func section(t *testing.T, text, heading string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, "\n## "+heading+"\n")
	if !found {
		t.Fatalf("README.md has no section %q", heading)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	return rest
}

func fencedBlocks(text string) (blocks []fenced) {
	for _, m := range regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, fenced{m[1], m[2]})
	}
	return blocks
}

// TestReadme_FiveMinuteStartWorks does what the section says, in a copy of the checkout. The only thing added is that
// the servers listen on the loopback device alone.
func TestReadme_FiveMinuteStartWorks(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:9201", "127.0.0.1:9090"} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatalf("the five-minute start of README.md needs %s, end what listens there: %v", addr, err)
		}
		l.Close()
	}
	blocks := fencedBlocks(section(t, readme(t), "Five-minute start"))
	var languages []string
	for _, b := range blocks {
		languages = append(languages, b.language)
	}
	if want := []string{"sh", "yaml", "sh", "sh", "sh", "sh"}; !slices.Equal(languages, want) {
		t.Fatalf("the section has blocks of %q, want %q: this test must learn what to do with them", languages, want)
	}
	checkout, other := copyCheckout(t), t.TempDir()
	bin := t.TempDir()
	if err := os.Symlink(promtest.Prometheus(t), filepath.Join(bin, "prometheus")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))

	promtsd := startCommand(t, checkout, blocks[0].content, "--web.listen-address=127.0.0.1:9201")
	if err := os.WriteFile(filepath.Join(other, "prometheus.yml"), []byte(blocks[1].content), 0o644); err != nil {
		t.Fatal(err)
	}
	startCommand(t, other, blocks[2].content, "--web.listen-address=127.0.0.1:9090")
	for _, url := range []string{"http://localhost:9201", "http://localhost:9090"} {
		promtest.Until(t, url+" is ready", func(ctx context.Context) error {
			if promtsd.ended() {
				t.Fatal("promtsd ended at once")
			}
			return becomesReady(ctx, url+"/-/ready")
		})
	}

	promtest.Until(t, "the commands of README.md show samples", func(context.Context) error {
		return showsSamples(output(t, other, blocks[3].content))
	})
	promtest.Until(t, "promtsd answers PromQL itself", func(context.Context) error {
		text := output(t, other, blocks[4].content)
		var answer struct {
			Status string
			Data   struct{ Result []any }
		}
		if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Status != "success" ||
			len(answer.Data.Result) != 1 {
			return fmt.Errorf("want a successful answer of one value, got: %s", text)
		}
		return nil
	})
	exposed := output(t, other, "curl -s http://localhost:9201/metrics")
	for _, name := range regexp.MustCompile(`promtsd_[a-z_]+`).FindAllString(readme(t), -1) {
		if strings.HasPrefix(name, "promtsd_hbase_") {
			continue // of the other store: TestReadme_HBaseMetricsAreReal
		}
		if !slices.ContainsFunc([]string{"{", " ", "_bucket{"},
			func(end string) bool { return strings.Contains(exposed, "\n"+name+end) }) {
			t.Errorf("README.md names the metric %s, which a running promtsd does not expose", name)
		}
	}

	// go run itself ends with status 1 after Ctrl-C; of any other status of the program it says "exit status".
	promtsd.interrupt(t)
	if log := promtsd.output(t); !strings.Contains(log, "msg=stopped") || strings.Contains(log, "exit status") {
		t.Error("Ctrl-C: promtsd did not stop with status 0")
	}
	lines := strings.Split(strings.TrimSpace(output(t, checkout, blocks[5].content)), "\n")
	if len(lines) != 3 {
		t.Errorf("the dump has %d lines, want 3: %q", len(lines), lines)
	}
	for _, line := range lines {
		var cell struct{ Table, Row, Qualifier, Value string }
		if err := json.Unmarshal([]byte(line), &cell); err != nil || cell.Table != "tsdb" || cell.Row == "" {
			t.Errorf("a line of the dump is no cell of tsdb (%v): %s", err, line)
		}
	}
}

// showsSamples looks at what promtsd counted and Prometheus answered.
func showsSamples(text string) error {
	stored, answered := false, false
	for line := range strings.Lines(text) {
		if count, ok := strings.CutPrefix(line, "promtsd_ingest_samples_total "); ok {
			stored = strings.TrimSpace(count) != "0"
		}
		var answer struct {
			Status string
			Data   struct{ Result []any }
		}
		if json.Unmarshal([]byte(line), &answer) == nil {
			answered = answer.Status == "success" && len(answer.Data.Result) == 2
		}
	}
	if !stored || !answered {
		return fmt.Errorf("want samples stored and a successful answer of two series, got:\n%s", text)
	}
	return nil
}

// copyCheckout copies what a clone would have: the files that git knows, and those that it does not ignore.
func copyCheckout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = repository
	list, err := cmd.Output()
	if err != nil {
		t.Fatalf("list the files of the checkout: %v", err)
	}
	for _, name := range strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(repository, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, and not committed yet
		}
		target := filepath.Join(dir, name)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(target), 0o755)
		}
		if err == nil {
			err = os.WriteFile(target, content, 0o644)
		}
		if err != nil {
			t.Fatalf("copy %s: %v", name, err)
		}
	}
	return dir
}

// output runs a script to its end and returns what it prints.
func output(t *testing.T, dir, script string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatalf("%s: %v", script, err)
	}
	if stderr.Len() > 0 {
		t.Errorf("%s\nsays %s", script, stderr.String())
	}
	return string(out)
}

// job is a command in a terminal of its own.
type job struct {
	cmd  *exec.Cmd
	log  string        // the file with all that it prints
	done chan struct{} // closed when the command has ended
}

// startCommand starts the one command of a block, with arguments added, and kills what is left of it when the test
// ends.
func startCommand(t *testing.T, dir, command string, args ...string) *job {
	t.Helper()
	command = strings.TrimSpace(command)
	if strings.Contains(command, "\n") {
		t.Fatalf("more than one command in a block that starts a server: %q", command)
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	j := &job{
		cmd:  exec.Command("bash", "-c", strings.Join(append([]string{command}, args...), " ")),
		log:  log.Name(),
		done: make(chan struct{}),
	}
	j.cmd.Dir, j.cmd.Stdout, j.cmd.Stderr = dir, log, log
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := j.cmd.Start(); err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	go func() {
		_ = j.cmd.Wait()
		close(j.done)
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-j.cmd.Process.Pid, syscall.SIGKILL)
		<-j.done
		if t.Failed() {
			t.Logf("%s\nsays %s", command, j.output(t))
		}
		log.Close()
	})
	return j
}

func (j *job) ended() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

// interrupt does what Ctrl-C does, and waits for the end.
func (j *job) interrupt(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(-j.cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-j.done:
	case <-time.After(time.Minute):
		t.Fatal("no end within a minute of Ctrl-C")
	}
}

// output is what the command has printed so far.
func (j *job) output(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(j.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// helpTexts is what the commands say of their flags.
func helpTexts(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, command := range []string{"serve", "init", "index build", "cells dump", "cells load", "healthcheck"} {
		out, err := exec.Command("promtsd", append(strings.Fields(command), "--help")...).Output()
		if err != nil {
			t.Fatalf("promtsd %s --help: %v", command, err)
		}
		all.Write(out)
	}
	return all.String()
}

// noting is a registry that only notes what it is given.
type noting struct {
	prometheus.Registerer
	all []prometheus.Collector
}

func (c *noting) Register(collector prometheus.Collector) error {
	c.all = append(c.all, collector)
	return nil
}

func TestReadme_HBaseMetricsAreReal(t *testing.T) {
	var registered noting
	st, err := hbase.Open(hbase.Config{
		Client: client.Config{ZooKeeper: []string{"127.0.0.1:1"}}, Registerer: &registered,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	var known strings.Builder
	for _, c := range registered.all {
		descriptions := make(chan *prometheus.Desc, 10)
		c.Describe(descriptions)
		close(descriptions)
		for d := range descriptions {
			fmt.Fprintln(&known, d)
		}
	}
	named := regexp.MustCompile(`promtsd_hbase_[a-z_]+`).FindAllString(readme(t), -1)
	if len(named) == 0 {
		t.Error("README.md names no metric of the HBase store")
	}
	for _, name := range named {
		if !strings.Contains(known.String(), strconv.Quote(name)) {
			t.Errorf("README.md names the metric %s, which the HBase store does not have:\n%s", name, &known)
		}
	}
}

func TestReadme_FlagsAndDefaultsAreReal(t *testing.T) {
	help := helpTexts(t)
	flags := 0
	outside := regexp.MustCompile("(?m)^prometheus .*$").ReplaceAllString(readme(t), "")
	for _, m := range regexp.MustCompile(`--(no-)?([a-z][a-z.-]*[a-z])`).FindAllStringSubmatch(outside, -1) {
		flags++
		// Help writes a flag that is on or off with both of its forms.
		name := `--(\[no-\])?` + regexp.QuoteMeta(m[2])
		if m[1] != "" {
			name = `--\[no-\]` + regexp.QuoteMeta(m[2])
		}
		if m[2] != "help" && !regexp.MustCompile(name+`[\s=]`).MatchString(help) {
			t.Errorf("README.md names %s, which no --help does", m[0])
		}
	}
	if flags < 10 {
		t.Errorf("README.md names %d flags: is this test looking in the wrong place?", flags)
	}

	rows := 0
	for lines := bufio.NewScanner(strings.NewReader(section(t, readme(t), "Running it"))); lines.Scan(); {
		cells := strings.Split(lines.Text(), "|")
		if len(cells) != 5 || !strings.Contains(cells[1], "`--") {
			continue
		}
		names, defaults := quoted(cells[1]), quoted(cells[2])
		if len(defaults) == 0 {
			continue // told in words
		}
		rows++
		for i, name := range names {
			if strings.HasPrefix(name, ".") { // short for the first one with another end
				name = names[0][:strings.LastIndexByte(names[0], '.')] + name
			}
			value := defaults[min(i, len(defaults)-1)]
			if !regexp.MustCompile(regexp.QuoteMeta(name) + `="?` + regexp.QuoteMeta(value) + `"?\s`).MatchString(help) {
				t.Errorf("README.md says that the default of %s is %s; --help does not", name, value)
			}
		}
	}
	if rows < 5 {
		t.Errorf("the table of flags has %d rows with defaults: is this test looking in the wrong place?", rows)
	}
}

// quoted lists what stands between backquotes.
func quoted(text string) (parts []string) {
	for i, part := range strings.Split(text, "`") {
		if i%2 == 1 {
			parts = append(parts, part)
		}
	}
	return parts
}

func TestReadme_LinksResolve(t *testing.T) {
	for _, file := range []string{"README.md", "DESIGN.md"} {
		content, err := os.ReadFile(filepath.Join(repository, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(string(content), -1) {
			link, _, _ := strings.Cut(m[1], "#")
			if link == "" || strings.Contains(link, "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(repository, link)); err != nil {
				t.Errorf("%s links to %s: %v", file, m[1], err)
			}
		}
	}
}
