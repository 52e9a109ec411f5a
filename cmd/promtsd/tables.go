package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/decode"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/cellio"
)

func addInit(app *kingpin.Application) (string, command) {
	cmd := app.Command("init",
		"Make the tables, or adopt tables that exist, and record the settings that shape their bytes. "+
			"serve does the same for an embedded store on its first start.")
	sf, settings, lf := addStoreFlags(cmd), addSettingFlags(cmd), addLayoutFlags(cmd)
	return cmd.FullCommand(), func(ctx context.Context, env environment) error {
		layout, err := lf.layout(sf)
		if err != nil {
			return err
		}
		st, err := sf.open(env.logger, nil)
		return withStore(st, err, func(st store.Store) error {
			s, created, err := layout.Init(ctx, st, sf.systemTable, settings.requested())
			if err != nil {
				return err
			}
			if layout != (catalog.Layout{}) && !slices.Contains(created, s.Tables.Data) {
				env.logger.Warn("the data table existed, and keeps its regions and its retention", "table", s.Tables.Data)
			}
			for _, t := range []string{s.Tables.Data, s.Tables.UID, s.Tables.Meta, s.Tables.System, s.Tables.Journal(),
				s.Tables.Exemplars()} {
				state := "adopted"
				if slices.Contains(created, t) {
					state = "created"
				}
				fmt.Fprintf(env.out, "table %s: %s\n", t, state)
			}
			for _, setting := range s.Text() {
				fmt.Fprintf(env.out, "%s=%s\n", setting[0], setting[1])
			}
			if !s.IndexComplete {
				fmt.Fprintf(env.out,
					"The data table holds rows whose series may not be in the index: queries find series by row keys, "+
						"which is exact but slow. promtsd index build makes the index.\n")
			}
			return nil
		})
	}
}

func indexCommand(app *kingpin.Application) *kingpin.CmdClause {
	if cmd := app.GetCommand("index"); cmd != nil {
		return cmd
	}
	return app.Command("index", "The series index.")
}

func addIndexDisable(app *kingpin.Application) (string, command) {
	cmd := indexCommand(app).Command("disable",
		"Record that others, such as OpenTSDB, write to the data table too: series are "+
			"then found by row keys, which misses nothing and is slower. index build undoes it. Restart promtsd afterwards.")
	sf := addStoreFlags(cmd)
	return cmd.FullCommand(), func(ctx context.Context, env environment) error {
		st, err := sf.openExisting(env.logger)
		return withStore(st, err, func(st store.Store) error {
			if _, err := catalog.Open(ctx, st, sf.systemTable, nil); err != nil {
				return initHint(err)
			}
			if err := catalog.SetIndexComplete(ctx, st, sf.systemTable, false); err != nil {
				return err
			}
			fmt.Fprintln(env.out, "index partial: series are found by row keys from the next start on")
			return nil
		})
	}
}

func addIndexBuild(app *kingpin.Application) (string, command) {
	cmd := indexCommand(app).Command("build",
		"Enter every series of the data table into the series index, by its row keys. "+
			"For tables that OpenTSDB wrote; nothing else may write to them meanwhile.")
	sf := addStoreFlags(cmd)
	return cmd.FullCommand(), func(ctx context.Context, env environment) error {
		st, err := sf.openExisting(env.logger)
		return withStore(st, err, func(st store.Store) error {
			s, err := catalog.Open(ctx, st, sf.systemTable, nil)
			if err != nil {
				return initHint(err)
			}
			p := newProgress(env.err)
			rows, seriesDays := 0, 0
			err = index.Build(ctx, st, s, time.Now().UnixMilli(), func(r, d int) {
				rows, seriesDays = r, d
				p.report("%d rows read, %d series-days found", r, d)
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(env.out, "index complete: %d rows read, %d series-days\n", rows, seriesDays)
			return nil
		})
	}
}

func addCellsDump(app *kingpin.Application) (string, command) {
	cmd := cellsCommand(app).Command("dump",
		"Write the cells of tables as JSON lines, which cells load reads, or for people.")
	sf := addStoreFlags(cmd)
	output := cmd.Flag("output", "File to write; - is the standard output.").Short('o').Default("-").String()
	forPeople := cmd.Flag("decode",
		"Write each cell for people: series, hour, samples, and what else a row may be, by name.").Bool()
	tables := cmd.Arg("table", "Tables to dump; all if none is named.").Strings()
	return cmd.FullCommand(), func(ctx context.Context, env environment) error {
		st, err := sf.openExisting(env.logger)
		return withStore(st, err, func(st store.Store) (err error) {
			names := *tables
			if len(names) == 0 {
				all, err := st.Tables(ctx)
				if err != nil {
					return err
				}
				for _, t := range all {
					names = append(names, t.Name)
				}
			}
			w := env.out
			if !isStandard(*output) {
				f, err := os.Create(*output)
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, f.Close()) }()
				w = f
			}
			p := newProgress(env.err)
			report := func(cells int) { p.report("%d cells written", cells) }
			if *forPeople {
				err = dumpDecoded(ctx, env, st, sf.systemTable, names, w, report)
			} else {
				err = cellio.Dump(ctx, st, names, w, report)
			}
			if errors.Is(err, syscall.EPIPE) {
				return nil // head, for one, has seen enough
			}
			return err
		})
	}
}

func dumpDecoded(
	ctx context.Context, env environment, st store.Store, own string, tables []string, w io.Writer, report func(int),
) error {
	settings, err := catalog.Open(ctx, st, own, nil)
	if err != nil {
		return initHint(err)
	}
	uids, err := uid.New(uid.Config{
		Store: st, Table: settings.Tables.UID, Schema: settings.Schema, Names: settings.Names, Logger: env.logger,
	})
	if err != nil {
		return err
	}
	defer uids.Close()
	out := bufio.NewWriter(w)
	d := decode.Decoder{Store: st, Settings: settings, UIDs: uids}
	return errors.Join(d.Dump(ctx, tables, out, report), out.Flush())
}

func addCellsLoad(app *kingpin.Application) (string, command) {
	cmd := cellsCommand(app).Command("load", "Read cells as JSON lines into tables, making those that do not exist. "+
		"Afterwards promtsd init adopts the tables.")
	sf := addStoreFlags(cmd)
	file := cmd.Arg("file", "File to read; - is the standard input.").Default("-").String()
	return cmd.FullCommand(), func(ctx context.Context, env environment) error {
		r, closeInput, err := openInput(*file, env.in)
		if err != nil {
			return err
		}
		defer closeInput()
		st, err := sf.open(env.logger, nil)
		return withStore(st, err, func(st store.Store) error {
			p := newProgress(env.err)
			cells, err := cellio.Load(ctx, st, r, func(cells int) { p.report("%d cells loaded", cells) })
			if err != nil {
				return err
			}
			fmt.Fprintf(env.out, "%d cells loaded\n", cells)
			return nil
		})
	}
}

func cellsCommand(app *kingpin.Application) *kingpin.CmdClause {
	if cmd := app.GetCommand("cells"); cmd != nil {
		return cmd
	}
	return app.Command("cells", "The cells of any table, as they are.")
}

// isStandard says that a file's name stands for the standard input or output. The parser of arguments makes a lone dash
// an empty text.
func isStandard(name string) bool { return name == "-" || name == "" }

// openInput opens a file to be read twice; the standard input is kept in a temporary file for that.
func openInput(name string, stdin io.Reader) (r io.ReadSeeker, done func(), err error) {
	if !isStandard(name) {
		f, err := os.Open(name)
		if err != nil {
			return nil, nil, err
		}
		return f, func() { f.Close() }, nil
	}
	f, err := os.CreateTemp("", "promtsd-cells-*")
	if err != nil {
		return nil, nil, err
	}
	done = func() {
		f.Close()
		os.Remove(f.Name())
	}
	if _, err = io.Copy(f, stdin); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		done()
		return nil, nil, fmt.Errorf("read standard input: %w", err)
	}
	return f, done, nil
}

// withStore runs f on a store that was opened, if it could be, and closes it.
func withStore(st store.Store, opened error, f func(store.Store) error) error {
	if opened != nil {
		return opened
	}
	return errors.Join(f(st), st.Close())
}

func initHint(err error) error {
	if errors.Is(err, catalog.ErrNotInitialised) {
		return fmt.Errorf("%w: run promtsd init first", err)
	}
	return err
}

// progress writes a line now and then, so that long work is seen to go on.
type progress struct {
	w    io.Writer
	last time.Time
}

func newProgress(w io.Writer) *progress { return &progress{w: w, last: time.Now()} }

const progressInterval = 5 * time.Second

func (p *progress) report(format string, args ...any) {
	if time.Since(p.last) >= progressInterval {
		p.last = time.Now()
		fmt.Fprintf(p.w, format+"\n", args...)
	}
}
