// Command promtsd is a long-term store for Prometheus on the OpenTSDB schema.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/promslog"
	promslogflag "github.com/prometheus/common/promslog/flag"
	"github.com/prometheus/common/version"
)

func main() {
	if info, ok := debug.ReadBuildInfo(); ok && version.Version == "" { // the linker was not told one
		version.Version = info.Main.Version
	}
	restrictFiles()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop)   // a second signal ends promtsd at once
	signal.Ignore(syscall.SIGPIPE) // a reader that goes away, of the log or of a dump, is seen by the writer's error
	if err := execute(ctx, os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr}); err != nil {
		fmt.Fprintf(os.Stderr, "promtsd: %v\n", err)
		os.Exit(1)
	}
}

type streams struct {
	in       io.Reader
	out, err io.Writer
}

// environment is what every subcommand gets.
type environment struct {
	streams
	logger *slog.Logger
}

// command is a subcommand, its flags parsed.
type command func(ctx context.Context, env environment) error

// execute parses the arguments and carries out the subcommand. The end of ctx stops it in good order.
func execute(ctx context.Context, args []string, s streams) error {
	app := kingpin.New("promtsd", "Long-term storage for Prometheus on the OpenTSDB schema.\n\n"+
		"Prometheus sends samples by remote write and reads them back by remote read; they are kept in OpenTSDB's tables, "+
		"in an embedded store by default. Without a subcommand, promtsd serves.")
	app.UsageWriter(s.out).ErrorWriter(s.err).Version(version.Print("promtsd"))
	app.HelpFlag.Short('h')
	logging := promslog.Config{Writer: s.err}
	promslogflag.AddFlags(app, &logging)

	commands := map[string]command{}
	for _, add := range []func(*kingpin.Application) (string, command){
		addServe, addInit, addIndexBuild, addIndexDisable, addExplain,
		addJournalList, addJournalRetry, addJournalDrop, addCellsDump, addCellsLoad, addHealthcheck,
	} {
		name, c := add(app)
		commands[name] = c
	}
	name, err := app.Parse(args)
	if err != nil {
		return fmt.Errorf("%w; see promtsd --help", nameFlag(app, args, err))
	}
	return commands[name](ctx, environment{streams: s, logger: promslog.New(&logging)})
}

// nameFlag adds to an error about a flag's value which flag that was, where the parser does not say it.
func nameFlag(app *kingpin.Application, args []string, err error) error {
	parsed, parseErr := app.ParseContext(args)
	if parseErr != nil {
		return err
	}
	for _, element := range parsed.Elements {
		flag, ok := element.Clause.(*kingpin.FlagClause)
		if !ok || element.Value == nil {
			continue
		}
		if refused := flag.Model().Value.Set(*element.Value); refused != nil && refused.Error() == err.Error() {
			return fmt.Errorf("--%s=%s: %w", flag.Model().Name, *element.Value, err)
		}
	}
	return err
}
