package hbasetest

import (
	"bufio"
	_ "embed" // for the files of testdata
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

//go:embed testdata/Client.java
var clientJava []byte

// javaClient is a run of testdata/Client.java, which says what it is asked and answers. The first question starts it;
// after that one takes no longer than HBase does. It ends at the end of its input, and so does not outlive the test.
type javaClient struct {
	// mu guards what follows, for the length of a question and its answer.
	mu    sync.Mutex
	start func() *exec.Cmd // runs Client.java
	log   string           // path of its log
	cmd   *exec.Cmd        // nil if it does not run
	in    io.WriteCloser
	out   *bufio.Reader
}

// newJavaClient describes the Java client of a system, and does not start it.
func (sys *system) newJavaClient() (*javaClient, error) {
	source := filepath.Join(sys.dir, "Client.java")
	if err := os.WriteFile(source, clientJava, 0o644); err != nil {
		return nil, err
	}
	return &javaClient{
		start: func() *exec.Cmd { return sys.java(source) },
		log:   filepath.Join(sys.dir, "client.log"),
	}, nil
}

// ask puts a question, each line of which is written without its line end, and returns the lines of the answer. On an
// error of the connection to the client the client is killed, and the next question starts another.
func (c *javaClient) ask(question ...string) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd == nil {
		if err := c.launch(); err != nil {
			return nil, fmt.Errorf("start the Java client: %w", err)
		}
	}
	answer, err := c.exchange(question)
	if err != nil && !errors.As(err, new(refusal)) {
		c.kill()
		log, _ := readFrom(c.log, 0)
		return nil, fmt.Errorf("%w; its log ends:\n%s", err, log[max(0, len(log)-logTail):])
	}
	return answer, err
}

// refusal is an error that HBase or the Java client reported.
type refusal string

func (r refusal) Error() string { return "HBase's Java client: " + string(r) }

func (c *javaClient) exchange(question []string) ([]string, error) {
	w := bufio.NewWriter(c.in)
	for _, line := range question {
		w.WriteString(line)
		w.WriteByte('\n')
	}
	if err := w.Flush(); err != nil {
		return nil, fmt.Errorf("ask the Java client: %w", err)
	}
	head, err := c.line()
	if err != nil {
		return nil, err
	}
	if what, ok := strings.CutPrefix(head, "error "); ok {
		return nil, refusal(what)
	}
	count, ok := strings.CutPrefix(head, "ok ")
	n, err := strconv.Atoi(count)
	if !ok || err != nil {
		return nil, fmt.Errorf("read the answer of the Java client: %q is none", head)
	}
	var answer []string
	for range n {
		line, err := c.line()
		if err != nil {
			return nil, err
		}
		answer = append(answer, line)
	}
	return answer, nil
}

func (c *javaClient) line() (string, error) {
	line, err := c.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("read the answer of the Java client: %w", err)
	}
	return strings.TrimSuffix(line, "\n"), nil
}

func (c *javaClient) launch() error {
	log, err := os.Create(c.log)
	if err != nil {
		return err
	}
	defer log.Close() // The process has its own handle.
	cmd := c.start()
	cmd.Stderr = log
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c.cmd, c.in, c.out = cmd, in, bufio.NewReader(out)
	return nil
}

// close ends the client if it runs.
func (c *javaClient) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kill()
}

// kill ends the client if it runs; mu is held.
func (c *javaClient) kill() {
	if c.cmd != nil {
		_ = c.cmd.Process.Kill() // It has ended already, or does now.
		_ = c.cmd.Wait()         // It was killed.
		c.cmd = nil
	}
}
