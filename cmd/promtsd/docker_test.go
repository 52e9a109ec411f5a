package main_test

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// moduleRoot is the module's directory as seen from this package, where go test runs its tests.
const moduleRoot = "../.."

// dockerInstruction is one instruction of a Dockerfile, continuation lines joined.
type dockerInstruction struct{ verb, rest string }

func readDockerfile(t *testing.T) []dockerInstruction {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(moduleRoot, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	var instructions []dockerInstruction
	for line := range strings.Lines(strings.ReplaceAll(string(content), "\\\n", "")) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		verb, rest, _ := strings.Cut(line, " ")
		instructions = append(instructions, dockerInstruction{strings.ToUpper(verb), strings.TrimSpace(rest)})
	}
	return instructions
}

// last returns the last instruction with the verb: the one that counts for the final image.
func last(t *testing.T, instructions []dockerInstruction, verb string) string {
	t.Helper()
	for i := len(instructions) - 1; i >= 0; i-- {
		if instructions[i].verb == verb {
			return instructions[i].rest
		}
	}
	t.Fatalf("the Dockerfile has no %s", verb)
	return ""
}

// TestDockerfile_BuildsAStaticBinary runs the image's own build command, here rather than in a container, and looks at
// what comes out: an empty image has no loader and no libraries.
func TestDockerfile_BuildsAStaticBinary(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it builds promtsd once more")
	}
	const target = "/out/promtsd"
	command := ""
	for _, in := range readDockerfile(t) {
		if in.verb == "RUN" && strings.Contains(in.rest, "go build") {
			command = in.rest
		}
	}
	if !strings.Contains(command, "-o "+target+" ") {
		t.Fatalf("the Dockerfile builds with %q, want a go build to %s", command, target)
	}
	binary := filepath.Join(t.TempDir(), "promtsd")
	cmd := exec.Command("sh", "-c", strings.ReplaceAll(command, target, "'"+binary+"'"))
	cmd.Dir = moduleRoot
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+runtime.GOARCH)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}

	file, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the binary asks for a loader: it is not static")
		}
	}
	libraries, err := file.ImportedLibraries()
	if err != nil || len(libraries) > 0 {
		t.Errorf("the binary needs libraries: %q, %v; want none", libraries, err)
	}
}

func TestDockerfile_ImageIsAsPromised(t *testing.T) {
	dockerfile := readDockerfile(t)

	t.Run("runs without root", func(t *testing.T) {
		user := last(t, dockerfile, "USER")
		if !regexp.MustCompile(`^[1-9][0-9]*:[1-9][0-9]*$`).MatchString(user) {
			t.Errorf("USER %s: want a user and a group by number, neither of them 0", user)
		}
		data := "--chown=" + user + " /out/data /data"
		found := false
		for _, in := range dockerfile {
			found = found || in.verb == "COPY" && strings.HasSuffix(in.rest, data)
		}
		if !found {
			t.Errorf("no COPY ... %s: the user could not write into the volume", data)
		}
	})

	t.Run("names what the program serves", func(t *testing.T) {
		for verb, want := range map[string]string{
			"EXPOSE":     "9201",
			"VOLUME":     "/data",
			"WORKDIR":    "/",
			"ENTRYPOINT": `["/promtsd"]`,
			"CMD":        `["serve"]`,
		} {
			if got := last(t, dockerfile, verb); got != want {
				t.Errorf("%s %s: want %s", verb, got, want)
			}
		}
		const check = `CMD ["/promtsd", "healthcheck"]`
		if got := last(t, dockerfile, "HEALTHCHECK"); !strings.HasSuffix(got, check) {
			t.Errorf("HEALTHCHECK %s: want it to end with %s", got, check)
		}
	})

	t.Run("builds with the Go version of go.mod", func(t *testing.T) {
		mod, err := os.ReadFile(filepath.Join(moduleRoot, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(mod)
		if version == nil {
			t.Fatal("go.mod names no Go version")
		}
		if got, want := dockerfile[0].rest, "golang:"+string(version[1])+" AS build"; got != want {
			t.Errorf("the Dockerfile builds FROM %s, want %s", got, want)
		}
	})
}
