// Package catalog records the settings that shape the bytes of a set of tables, in the store itself, and checks them at
// every start: tables written with one salt or UID width cannot be read with another.
//
// They stand in the system table, which OpenTSDB never meets:
//
//	row "settings" | family "p" | qualifier = the setting's name | value = its text
//
// The other rows of that table, by what their keys begin with; each is drawn where it is written:
//
//	"ahead"   the latest cell timestamp that may have been given   mapping/ingest
//	'd'       the series of each day                               mapping/index
//	'm'       metadata of metric families                          mapping/families
//	'n'       what a promtsd added to the index, for others        mapping/index
//	'q'       journal entries in quarantine                        mapping/journal
//	'w'       leases of writers                                    mapping/journal
//
// Accepted requests and exemplars, which come and go, have tables of their own beside it, of the same family.
package catalog

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/store"
)

// Families of the tables.
const (
	FamilyData   = "t"    // data points, in the data table
	FamilyID     = "id"   // name -> UID, in the UID table
	FamilyName   = "name" // UID -> name in the UID table; the meta table's only family
	FamilySystem = "p"    // the system table
)

// Tables are the names of the tables.
type Tables struct {
	Data   string // data points
	UID    string // names and UIDs
	Meta   string // the series index
	System string // what promtsd alone keeps: settings, the series of each day, metadata, who writes
}

// Journal is the name of the table of accepted requests, which follows from the system table's.
func (t Tables) Journal() string { return t.System + "-journal" }

// journalRegions is how many parts the journal's table is made of. A row begins with a writer's number, which is
// random, so that the journals of several promtsd are likely to be in different ones, each whole in its own.
const journalRegions = 8

// JournalTable is that table, as it is made.
func (t Tables) JournalTable() store.Table {
	table := store.Table{Name: t.Journal(), Families: []string{FamilySystem}, Log: true}
	for i := 1; i < journalRegions; i++ {
		table.Splits = append(table.Splits, []byte{byte(i * 256 / journalRegions)})
	}
	return table
}

// Exemplars is the name of the table of exemplars, which follows from the system table's.
func (t Tables) Exemplars() string { return t.System + "-exemplars" }

// ExemplarTable is that table, as it is made: its cells are kept for some time; 0 is for ever.
func (t Tables) ExemplarTable(retention time.Duration) store.Table {
	return store.Table{Name: t.Exemplars(), Families: []string{FamilySystem}, Retention: retention}
}

// DefaultTables are OpenTSDB's names, and promtsd for the system table.
func DefaultTables() Tables {
	return Tables{Data: "tsdb", UID: "tsdb-uid", Meta: "tsdb-meta", System: "promtsd"}
}

// Settings are what every promtsd on a store agrees on.
type Settings struct {
	Schema mapping.Schema
	Names  mapping.Names
	Tables Tables

	// IndexComplete says that the series index holds every series of the data table, so that queries need not look
	// into row keys to find series. It is false for tables that others filled, until their index is built.
	IndexComplete bool
}

// Default are the settings of tables that are made with no settings requested.
func Default() Settings {
	return Settings{Schema: mapping.DefaultSchema(), Names: mapping.NamesRaw, Tables: DefaultTables(), IndexComplete: true}
}

// Names of the settings. They are also the flags' names, and never change.
const (
	SaltWidth   = "salt.width"
	SaltBuckets = "salt.buckets"
	MetricWidth = "uid.width.metric"
	TagkWidth   = "uid.width.tagk"
	TagvWidth   = "uid.width.tagv"
	NamesMode   = "mapping.names"
	TableData   = "table.data"
	TableUID    = "table.uid"
	TableMeta   = "table.meta"

	indexState = "index" // not a flag: "complete" or "partial"
)

// field is a setting as text.
type field struct {
	name string
	get  func(*Settings) string
	set  func(*Settings, string) error
}

func number(name string, at func(*Settings) *int) field {
	return field{
		name: name,
		get:  func(s *Settings) string { return strconv.Itoa(*at(s)) },
		set: func(s *Settings, text string) error {
			n, err := strconv.Atoi(text)
			if err != nil {
				return fmt.Errorf("%w: %s is %q, must be a whole number", mapping.ErrInvalid, name, text)
			}
			*at(s) = n
			return nil
		},
	}
}

func name(name string, at func(*Settings) *string) field {
	return field{
		name: name,
		get:  func(s *Settings) string { return *at(s) },
		set: func(s *Settings, text string) error {
			if text == "" {
				return fmt.Errorf("%w: %s is empty", mapping.ErrInvalid, name)
			}
			*at(s) = text
			return nil
		},
	}
}

// fields lists the settings that never change once recorded.
func fields() []field {
	return []field{
		number(SaltWidth, func(s *Settings) *int { return &s.Schema.SaltWidth }),
		number(SaltBuckets, func(s *Settings) *int { return &s.Schema.SaltBuckets }),
		number(MetricWidth, func(s *Settings) *int { return &s.Schema.MetricWidth }),
		number(TagkWidth, func(s *Settings) *int { return &s.Schema.TagkWidth }),
		number(TagvWidth, func(s *Settings) *int { return &s.Schema.TagvWidth }),
		{
			name: NamesMode,
			get:  func(s *Settings) string { return s.Names.String() },
			set: func(s *Settings, text string) (err error) {
				s.Names, err = mapping.ParseNames(text)
				return err
			},
		},
		name(TableData, func(s *Settings) *string { return &s.Tables.Data }),
		name(TableUID, func(s *Settings) *string { return &s.Tables.UID }),
		name(TableMeta, func(s *Settings) *string { return &s.Tables.Meta }),
	}
}

// agree refuses settings requested that differ from recorded ones. Each is looked at alone: whether requested and
// recorded settings would fit together is no question where they have to be the same.
func (s *Settings) agree(requested, recorded map[string]string) error {
	for _, f := range fields() {
		text, set := requested[f.name]
		if _, fixed := recorded[f.name]; !set || !fixed {
			continue
		}
		want := *s
		if err := f.set(&want, text); err != nil {
			return err
		}
		if f.get(&want) != f.get(s) {
			return fmt.Errorf("%w: --%s=%s was requested, but the tables were made with %s; "+
				"leave the flag out or set it to %s (data written with another value could not be read), "+
				"or use other tables or another store for the new value",
				ErrMismatch, f.name, f.get(&want), f.get(s), f.get(s))
		}
	}
	return known(requested)
}

func known(requested map[string]string) error {
	for name := range requested {
		if !slices.ContainsFunc(fields(), func(f field) bool { return f.name == name }) {
			return fmt.Errorf("%w: there is no setting %q", mapping.ErrInvalid, name)
		}
	}
	return nil
}

// apply sets the settings named in requested, which are known.
func (s *Settings) apply(requested map[string]string) error {
	for _, f := range fields() {
		if text, set := requested[f.name]; set {
			if err := f.set(s, text); err != nil {
				return err
			}
		}
	}
	return s.validate()
}

func (s *Settings) validate() error {
	if err := s.Schema.Validate(); err != nil {
		return err
	}
	t := s.Tables
	for i, a := range []string{t.Data, t.UID, t.Meta, t.System} {
		for _, b := range []string{t.Data, t.UID, t.Meta, t.System}[:i] {
			if a == b {
				return fmt.Errorf("%w: two tables have the one name %q", mapping.ErrInvalid, a)
			}
		}
	}
	return nil
}

// Text lists the settings as name and value, in a fixed order.
func (s Settings) Text() [][2]string {
	var out [][2]string
	for _, f := range fields() {
		out = append(out, [2]string{f.name, f.get(&s)})
	}
	return append(out, [2]string{indexState, indexText(s.IndexComplete)})
}

func indexText(complete bool) string {
	if complete {
		return "complete"
	}
	return "partial"
}
