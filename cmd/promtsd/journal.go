package main

import (
	"context"
	"fmt"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/journal"
	"github.com/promtsd/promtsd/store"
)

func journalCommand(app *kingpin.Application) *kingpin.CmdClause {
	if cmd := app.GetCommand("journal"); cmd != nil {
		return cmd
	}
	return app.Command("journal", "The journal of accepted requests whose samples are not all stored yet.")
}

// withTables opens the store and reads its settings.
func withTables(ctx context.Context, sf *storeFlags, env environment, f func(store.Store, catalog.Tables) error) error {
	st, err := sf.openExisting(env.logger)
	return withStore(st, err, func(st store.Store) error {
		settings, err := catalog.Open(ctx, st, sf.own, nil)
		if err != nil {
			return initHint(err)
		}
		return f(st, settings.Tables)
	})
}

func addJournalList(app *kingpin.Application) (string, command) {
	cmd := journalCommand(app).Command("list", "List the writers and what their journals hold, and name each entry that cannot be "+
		"read. Of an embedded store that is when promtsd does not run.")
	sf := addStoreFlags(cmd)
	return cmd.FullCommand(), func(ctx context.Context, env environment) error {
		return withTables(ctx, sf, env, func(st store.Store, tables catalog.Tables) error {
			leases, err := journal.Leases(ctx, st, tables)
			if err != nil {
				return err
			}
			entries, bytes := map[journal.ID]int{}, map[journal.ID]int{}
			err = journal.Inspect(ctx, st, tables, func(i journal.Item) {
				entries[i.Writer]++
				bytes[i.Writer] += i.Bytes
				if i.Err != nil {
					fmt.Fprintf(env.out, "writer %s entry %d: %v\n", i.Writer, i.Number, i.Err)
				}
			})
			if err != nil {
				return err
			}
			for _, l := range leases {
				fmt.Fprintf(env.out, "writer %s: %d entries of %d bytes, stored up to %d", l.Writer, entries[l.Writer], bytes[l.Writer], l.Frontier)
				if l.Address != "" {
					fmt.Fprintf(env.out, ", at %s", l.Address)
				}
				fmt.Fprintln(env.out)
			}
			return nil
		})
	}
}

func addJournalDrop(app *kingpin.Application) (string, command) {
	cmd := journalCommand(app).Command("drop", "Give up an entry that cannot be read, so that promtsd can start: the samples of this "+
		"one request are lost, unless they were stored before.")
	sf := addStoreFlags(cmd)
	writer := cmd.Arg("writer", "Writer, as the error message names it.").Required().String()
	number := cmd.Arg("entry", "Number of the entry.").Required().Uint64()
	return cmd.FullCommand(), func(ctx context.Context, env environment) error {
		id, err := journal.ParseID(*writer)
		if err != nil {
			return err
		}
		return withTables(ctx, sf, env, func(st store.Store, tables catalog.Tables) error {
			ok, err := journal.Drop(ctx, st, tables, id, *number)
			if err != nil {
				return err
			}
			if !ok {
				return fmt.Errorf("writer %s has no entry %d; promtsd journal list names those that cannot be read", id, *number)
			}
			fmt.Fprintf(env.out, "writer %s entry %d: dropped\n", id, *number)
			return nil
		})
	}
}
