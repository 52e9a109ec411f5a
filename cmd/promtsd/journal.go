package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promtsd/promtsd/adapter/wire"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/ingest"
	"github.com/promtsd/promtsd/mapping/journal"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/store"
)

func journalCommand(app *kingpin.Application) *kingpin.CmdClause {
	if cmd := app.GetCommand("journal"); cmd != nil {
		return cmd
	}
	return app.Command("journal",
		"The journal of accepted requests whose samples are not all stored yet, and the quarantine of "+
			"those that could not be replayed.")
}

// withSettings opens the store and reads its settings.
func withSettings(ctx context.Context, sf *storeFlags, env environment,
	f func(store.Store, catalog.Settings) error) error {
	st, err := sf.openExisting(env.logger)
	return withStore(st, err, func(st store.Store) error {
		settings, err := catalog.Open(ctx, st, sf.systemTable, nil)
		if err != nil {
			return initHint(err)
		}
		return f(st, settings)
	})
}

func addJournalList(app *kingpin.Application) (string, command) {
	cmd := journalCommand(app).Command("list",
		"List the writers and what their journals hold, and each entry that is in quarantine, "+
			"with the reason and what to do. Of an embedded store that is when promtsd does not run.")
	sf := addStoreFlags(cmd)
	return cmd.FullCommand(), func(ctx context.Context, env environment) error {
		return withSettings(ctx, sf, env, func(st store.Store, s catalog.Settings) error {
			if err := listWriters(ctx, env.out, st, s.Tables); err != nil {
				return err
			}
			entries, err := journal.InQuarantine(ctx, st, s.Tables)
			for _, q := range entries {
				fmt.Fprintf(env.out,
					"writer %s entry %d: in quarantine since %s, %s: %s; its request came at %s, with %d bytes\n  %s\n",
					q.Writer, q.Number, formatTime(q.Since), q.Class, q.Reason, formatTime(q.Arrived), q.Bytes, q.Class.Advice())
			}
			return err
		})
	}
}

func formatTime(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }

// listWriters lists the writers with a lease or entries.
func listWriters(ctx context.Context, out io.Writer, st store.Store, tables catalog.Tables) error {
	leases, err := journal.Leases(ctx, st, tables)
	if err != nil {
		return err
	}
	entries, bytes := map[journal.ID]int{}, map[journal.ID]int{}
	err = journal.Inspect(ctx, st, tables, func(i journal.Item) {
		entries[i.Writer]++
		bytes[i.Writer] += i.Bytes
		if i.Err != nil {
			fmt.Fprintf(out, "writer %s entry %d: %v\n", i.Writer, i.Number, i.Err)
		}
	})
	if err != nil && !errors.Is(err, store.ErrNoTable) { // there never was a journal
		return err
	}
	for _, l := range leases {
		fmt.Fprintf(out, "writer %s: %d entries of %d bytes, stored up to %d", l.Writer, entries[l.Writer], bytes[l.Writer],
			l.Checkpoint)
		if l.Address != "" {
			fmt.Fprintf(out, ", at %s", l.Address)
		}
		fmt.Fprintln(out)
	}
	return nil
}

// entryArgs name an entry.
type entryArgs struct {
	writer string
	number uint64
}

func (a *entryArgs) parse() (journal.ID, error) {
	if a.number == 0 {
		return 0, errors.New("the number of the entry is missing: promtsd journal list names the entries")
	}
	return journal.ParseID(a.writer)
}

func noEntry(id journal.ID, number uint64) error {
	return fmt.Errorf("writer %s has no entry %d in quarantine; promtsd journal list names those that are", id, number)
}

func addJournalRetry(app *kingpin.Application) (string, command) {
	cmd := journalCommand(app).Command("retry",
		"Replay an entry that is in quarantine, or all of them, now that what kept it there is "+
			"mended. Of an embedded store that is when promtsd does not run; on HBase those that run go on.")
	sf := addStoreFlags(cmd)
	var args entryArgs
	cmd.Arg("writer", "Writer, as promtsd journal list names it; none: all entries.").StringVar(&args.writer)
	cmd.Arg("entry", "Number of the entry.").Uint64Var(&args.number)
	return cmd.FullCommand(), func(ctx context.Context, env environment) error {
		id, err := args.parse()
		if args.writer != "" && err != nil {
			return err
		}
		return withSettings(ctx, sf, env, func(st store.Store, s catalog.Settings) error {
			entries, err := journal.InQuarantine(ctx, st, s.Tables)
			if err != nil {
				return err
			}
			if args.writer != "" {
				entries = slices.DeleteFunc(entries, func(q journal.Quarantined) bool {
					return q.Writer != id ||
						q.Number != args.number
				})
				if len(entries) == 0 {
					return noEntry(id, args.number)
				}
			}
			c, err := retryConfig(st, s, sf.embedded(), env)
			if err != nil {
				return err
			}
			return retry(ctx, env, c, entries)
		})
	}
}

// retryConfig is that of a write path for what is replayed.
func retryConfig(st store.Store, s catalog.Settings, embedded bool, env environment) (ingest.Config, error) {
	uids, err := uid.New(uid.Config{
		Store: st, Table: s.Tables.UID, Schema: s.Schema, Names: s.Names, Logger: env.logger,
	})
	return ingest.Config{
		Store: st, Settings: s, Logger: env.logger, Now: time.Now, CacheSize: 10_000, SingleProcess: embedded,
		UIDs: uids,
		Buffer: ingest.Buffer{
			FlushInterval: time.Hour, MaxBytes: math.MaxInt64, Merge: embedded, NewDecoder: newBlockDecoder,
		},
	}, err
}

func newBlockDecoder() ingest.Decoder { return new(wire.BlockDecoder) }

// retry replays entries, and says what became of each. Those that stay in quarantine are an error.
func retry(ctx context.Context, env environment, c ingest.Config, entries []journal.Quarantined) error {
	defer c.UIDs.Close()
	left := 0
	for _, q := range entries {
		samples, ok, err := ingest.Retry(ctx, c, q.Writer, q.Number)
		switch bad, atFault := errors.AsType[*journal.EntryError](err); {
		case atFault:
			left++
			fmt.Fprintf(env.out, "writer %s entry %d: stays in quarantine, %s: %v\n  %s\n", q.Writer, q.Number, bad.Class, bad,
				bad.Class.Advice())
		case err != nil:
			return fmt.Errorf("writer %s entry %d: %w", q.Writer, q.Number, err)
		case ok:
			fmt.Fprintf(env.out, "writer %s entry %d: replayed, %d samples\n", q.Writer, q.Number, samples)
		}
	}
	if left > 0 {
		return fmt.Errorf("%d entries stay in quarantine", left)
	}
	return nil
}

func addJournalDrop(app *kingpin.Application) (string, command) {
	cmd := journalCommand(app).Command("drop",
		"Give up an entry that is in quarantine: the samples of this one request are lost, "+
			"unless they were stored before.")
	sf := addStoreFlags(cmd)
	var args entryArgs
	cmd.Arg("writer", "Writer, as promtsd journal list names it.").Required().StringVar(&args.writer)
	cmd.Arg("entry", "Number of the entry.").Required().Uint64Var(&args.number)
	return cmd.FullCommand(), func(ctx context.Context, env environment) error {
		id, err := args.parse()
		if err != nil {
			return err
		}
		return withSettings(ctx, sf, env, func(st store.Store, s catalog.Settings) error {
			ok, err := journal.Drop(ctx, st, s.Tables, id, args.number)
			if err != nil {
				return err
			}
			if !ok {
				return noEntry(id, args.number)
			}
			fmt.Fprintf(env.out, "writer %s entry %d: dropped\n", id, args.number)
			return nil
		})
	}
}
