package main

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	prometheusconfig "github.com/prometheus/prometheus/config"
	"go.yaml.in/yaml/v3"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/store/hbase/hbasetest"
)

// composeFile is what compose.yaml says, as far as it can be held to something here. A key that is missing below fails
// the tests, so that they are not forgotten when the file grows.
type composeFile struct {
	Services map[string]struct {
		Build       composeBuild
		Image       string
		Hostname    string
		Command     []string
		Environment map[string]string
		DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
		Configs     []struct{ Source, Target string }
		Volumes     []string
		Ports       []string
		Healthcheck struct {
			Test        []string
			Interval    string
			StartPeriod string `yaml:"start_period"`
		}
		Restart         string
		StopGracePeriod string `yaml:"stop_grace_period"`
	}
	Configs map[string]struct{ Content string }
	Volumes map[string]any
}

// composeBuild is the context of a build, alone or with a Dockerfile.
type composeBuild struct {
	Context    string
	Dockerfile string `yaml:"dockerfile_inline"`
}

func (b *composeBuild) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		return node.Decode(&b.Context)
	}
	type plain composeBuild
	return node.Decode((*plain)(b))
}

func readCompose(t *testing.T) (file composeFile) {
	t.Helper()
	content, err := os.Open(filepath.Join(repository, "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	decoder := yaml.NewDecoder(content)
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestCompose_NamesWhatExists(t *testing.T) {
	file := readCompose(t)
	for name, service := range file.Services {
		for on := range service.DependsOn {
			if _, ok := file.Services[on]; !ok {
				t.Errorf("%s depends on %s, which is no service", name, on)
			}
		}
		for _, c := range service.Configs {
			if file.Configs[c.Source].Content == "" {
				t.Errorf("%s takes the config %s, which there is not", name, c.Source)
			}
		}
		for _, v := range service.Volumes {
			volume, _, _ := strings.Cut(v, ":")
			if _, ok := file.Volumes[volume]; !ok {
				t.Errorf("%s takes the volume %s, which there is not", name, volume)
			}
		}
		for _, p := range service.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s publishes %s, want it on the loopback device alone", name, p)
			}
		}
		for _, m := range regexp.MustCompile(`(?m)^COPY ([^-\s]\S*) `).FindAllStringSubmatch(service.Build.Dockerfile, -1) {
			if _, err := os.Stat(filepath.Join(repository, service.Build.Context, m[1])); err != nil {
				t.Errorf("%s copies %s: %v", name, m[1], err)
			}
		}
		images := regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(service.Build.Dockerfile, -1)
		if service.Build.Context == "" {
			images = append(images, []string{"", service.Image})
		}
		for _, m := range images {
			if !regexp.MustCompile(`:v?\d+\.\d+`).MatchString(m[1]) {
				t.Errorf("%s takes the image %s, want one with a version", name, m[1])
			}
		}
	}

	mod, err := os.ReadFile(filepath.Join(repository, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	minor := regexp.MustCompile(`github.com/prometheus/prometheus v0\.3(\d\d)\.(\d+)`).FindSubmatch(mod)
	if minor == nil {
		t.Fatal("go.mod names no version of Prometheus")
	}
	tested := fmt.Sprintf("prom/prometheus:v3.%s.%s", strings.TrimPrefix(string(minor[1]), "0"), minor[2])
	if got := file.Services["prometheus"].Image; got != tested {
		t.Errorf("prometheus is %s, want %s, the one that the tests run", got, tested)
	}
}

func TestCompose_FlagsAreReal(t *testing.T) {
	file := readCompose(t)
	for _, name := range []string{"init", "promtsd"} {
		command := file.Services[name].Command
		help, err := promtest.PromtsdCommand(t, command[0], "--help").Output()
		if err != nil {
			t.Fatalf("promtsd %s --help: %v", command[0], err)
		}
		for _, argument := range command[1:] {
			flag, _, _ := strings.Cut(argument, "=")
			if !regexp.MustCompile(regexp.QuoteMeta(flag) + `[\s=]`).Match(help) {
				t.Errorf("%s is given %s, which promtsd %s does not have", name, flag, command[0])
			}
		}
	}
}

// TestCompose_ServesPrometheusAndGrafana runs what compose.yaml does, with addresses and directories of this machine.
func TestCompose_ServesPrometheusAndGrafana(t *testing.T) {
	file := readCompose(t)
	cluster := hbasetest.Standalone(t, hbasetest.Config{Site: composeSite(t, file.Configs["hbase-site"].Content)})
	storeURL := "--store.url=hbase+rpc://" + cluster.Master().Addr()
	run := func(service string) (flags []string) {
		for _, flag := range file.Services[service].Command[1:] {
			if !strings.HasPrefix(flag, "--store.url=") && !strings.HasPrefix(flag, "--peer.advertise-address=") {
				flags = append(flags, flag)
			}
		}
		return flags
	}
	for range 2 { // as at every start
		command := promtest.PromtsdCommand(t, append([]string{"init", storeURL}, run("init")...)...)
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("promtsd init: %v\n%s", err, out)
		}
	}
	promtsd := promtest.StartPromtsd(t, promtest.PromtsdConfig{
		StoreURL: strings.TrimPrefix(storeURL, "--store.url="), Args: run("promtsd"),
	})
	content := file.Configs["prometheus"].Content
	if _, err := prometheusconfig.Load(content, nil); err != nil {
		t.Errorf("Prometheus would refuse its configuration: %v", err)
	}
	prometheus := promtest.Start(t, promtest.Config{YAML: strings.NewReplacer(
		"localhost:9090", promtest.Self, "promtsd:9201", promtsd.Addr(),
	).Replace(content)})

	var sources struct {
		Datasources []struct{ Name, Type, URL string }
	}
	if err := yaml.Unmarshal([]byte(file.Configs["grafana"].Content), &sources); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, source := range sources.Datasources {
		names = append(names, source.Name)
		address := strings.NewReplacer(
			"prometheus:9090", prometheus.Addr(), "promtsd:9201", promtsd.Addr(),
		).Replace(source.URL)
		promtest.Until(t, "the data source "+source.Name+" answers", func(ctx context.Context) error {
			return findsJobs(ctx, address)
		})
	}
	if want := []string{"Prometheus", "promtsd"}; !slices.Equal(names, want) {
		t.Errorf("Grafana has the data sources %q, want %q", names, want)
	}
}

// composeSite is hbase-site.xml without what is about the container: addresses, ports and directories.
func composeSite(t *testing.T, content string) map[string]string {
	t.Helper()
	var file struct {
		Properties []struct {
			Name  string `xml:"name"`
			Value string `xml:"value"`
		} `xml:"property"`
	}
	if err := xml.Unmarshal([]byte(content), &file); err != nil {
		t.Fatal(err)
	}
	site := make(map[string]string)
	for _, p := range file.Properties {
		if !regexp.MustCompile(`hostname$|ipc\.address$|\.port$|Port$|dir$|Dir$`).MatchString(p.Name) || p.Value == "-1" {
			site[p.Name] = p.Value
		}
	}
	if len(site) < 4 || len(site) == len(file.Properties) {
		t.Fatalf("of %d properties %d are not about the container: is this test looking in the wrong place?",
			len(file.Properties), len(site))
	}
	return site
}

// findsJobs asks the query API for the two jobs that Prometheus scrapes.
func findsJobs(ctx context.Context, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		address+"/api/v1/query?query="+url.QueryEscape("count(up) by (job)"), nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var answer struct {
		Status string
		Data   struct{ Result []any }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" || len(answer.Data.Result) != 2 {
		return fmt.Errorf("got %s with %d jobs, want success with 2", answer.Status, len(answer.Data.Result))
	}
	return nil
}
