package catalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/store"
)

// ErrNotInitialised is returned by Open for a store without recorded settings.
var ErrNotInitialised = errors.New("the store has no recorded settings")

// ErrMismatch marks settings that differ from the recorded ones.
var ErrMismatch = errors.New("settings differ from those recorded in the store")

var settingsRow = []byte("settings")

// Open reads the settings recorded in the system table. requested holds the settings that were explicitly given,
// by name; one that differs from the record is ErrMismatch with a text that says which and how to mend it. A store
// without a record is ErrNotInitialised.
func Open(ctx context.Context, st store.Store, system string, requested map[string]string) (Settings, error) {
	s, recorded, err := read(ctx, st, system)
	switch {
	case err != nil:
		return Settings{}, err
	case !complete(recorded):
		return Settings{}, ErrNotInitialised
	}
	if err := s.agree(requested, recorded); err != nil {
		return Settings{}, err
	}
	return s, nil
}

// Init makes the tables that do not exist, adopts those that do, and records the settings: the defaults, changed by
// requested. If settings are recorded already, it only checks requested against them, as Open does; of a record that
// is half written it keeps what is there. created lists the tables that it made. It makes them with the zero Layout.
func Init(
	ctx context.Context, st store.Store, system string, requested map[string]string,
) (s Settings, created []string, err error) {
	return Layout{}.Init(ctx, st, system, requested)
}

// Init is like the function Init, but makes the data table as l says.
func (l Layout) Init(
	ctx context.Context, st store.Store, system string, requested map[string]string,
) (s Settings, created []string, err error) {
	if err := l.check(); err != nil {
		return Settings{}, nil, err
	}
	s, recorded, err := read(ctx, st, system)
	if err != nil {
		return Settings{}, nil, err
	}
	if err := s.agree(requested, recorded); err != nil {
		return Settings{}, nil, err
	}
	if complete(recorded) {
		return s, nil, nil
	}
	if err := s.apply(requested); err != nil {
		return Settings{}, nil, err
	}
	existing, err := st.Tables(ctx)
	if err != nil {
		return Settings{}, nil, err
	}
	for _, t := range l.tables(s) {
		at := slices.IndexFunc(existing, func(e store.Table) bool { return e.Name == t.Name })
		if at < 0 {
			if err := st.CreateTable(ctx, t); err != nil {
				return Settings{}, created, err
			}
			created = append(created, t.Name)
			continue
		}
		for _, family := range t.Families {
			if !slices.Contains(existing[at].Families, family) {
				return Settings{}, created, fmt.Errorf("%w: table %q exists and has no family %q: it is no table of this kind; "+
					"name another one", mapping.ErrInvalid, t.Name, family)
			}
		}
	}
	if err := s.checkWidths(ctx, st); err != nil {
		return Settings{}, created, err
	}
	if s.IndexComplete, err = isEmpty(ctx, st, s.Tables.Data); err != nil {
		return Settings{}, created, err
	}
	if err := s.record(ctx, st); err != nil {
		return Settings{}, created, err
	}
	// Another process may have been first: what is recorded counts.
	s, err = Open(ctx, st, system, requested)
	return s, created, err
}

// SetIndexComplete records that the series index holds every series of the data table, or that it may not.
func SetIndexComplete(ctx context.Context, st store.Store, system string, complete bool) error {
	// By a check, as it was recorded first: a put by this machine's clock might be older than what it shall replace.
	check := store.Check{
		Coord: store.Coord{Table: system, Row: settingsRow, Family: FamilySystem, Qualifier: []byte(indexState)},
		Value: []byte(indexText(complete)),
	}
	for {
		check.Expect = nil
		for row, err := range st.Get(ctx, store.Get{Table: system, Rows: [][]byte{settingsRow},
			Columns: []store.Column{{Family: FamilySystem, Qualifier: check.Qualifier}}}) {
			if err != nil {
				return fmt.Errorf("read settings: %w", err)
			}
			check.Expect = bytes.Clone(row.Cells[0].Value)
		}
		done, err := st.CheckAndPut(ctx, []store.Check{check})
		if err != nil {
			return fmt.Errorf("record settings: %w", err)
		}
		if done[0] {
			return nil
		}
	}
}

// read returns the recorded texts by setting, and the settings that they make, with defaults for those that are
// missing.
func read(ctx context.Context, st store.Store, system string) (s Settings, recorded map[string]string, err error) {
	s = Default()
	s.Tables.System = system
	recorded = map[string]string{}
	for row, err := range st.Get(ctx, store.Get{Table: system, Rows: [][]byte{settingsRow}}) {
		if errors.Is(err, store.ErrNoTable) {
			return s, recorded, nil
		}
		if err != nil {
			return s, nil, fmt.Errorf("read settings: %w", err)
		}
		for _, c := range row.Cells {
			recorded[string(c.Qualifier)] = string(c.Value)
		}
	}
	for _, f := range fields() {
		if text, ok := recorded[f.name]; ok {
			if err := f.set(&s, text); err != nil {
				return s, nil, fmt.Errorf("%w: recorded settings: %w", mapping.ErrCorrupt, err)
			}
		}
	}
	s.IndexComplete = recorded[indexState] == indexText(true)
	if complete(recorded) {
		if err := s.validate(); err != nil {
			return s, nil, fmt.Errorf("%w: recorded settings: %w", mapping.ErrCorrupt, err)
		}
	}
	return s, recorded, nil
}

// complete tells whether nothing is missing in a record: an Init that wrote it came to its end.
func complete(recorded map[string]string) bool {
	for _, f := range fields() {
		if _, ok := recorded[f.name]; !ok {
			return false
		}
	}
	_, ok := recorded[indexState]
	return ok
}

// record writes the settings, each only where none is recorded: of two that do so at once the first one counts.
func (s Settings) record(ctx context.Context, st store.Store) error {
	var checks []store.Check
	for _, setting := range s.Text() {
		checks = append(checks, store.Check{
			Coord: store.Coord{Table: s.Tables.System, Row: settingsRow, Family: FamilySystem, Qualifier: []byte(setting[0])},
			Value: []byte(setting[1]),
		})
	}
	if _, err := st.CheckAndPut(ctx, checks); err != nil {
		return fmt.Errorf("record settings: %w", err)
	}
	return nil
}

// checkWidths compares the UID widths with those of the names that an adopted UID table already holds.
func (s Settings) checkWidths(ctx context.Context, st store.Store) error {
	for _, kind := range []mapping.Kind{mapping.Metric, mapping.Tagk, mapping.Tagv} {
		scan := store.Scan{
			Table: s.Tables.UID, Limit: 1,
			Columns: []store.Column{{Family: FamilyName, Qualifier: []byte(kind.String())}},
		}
		for row, err := range st.Scan(ctx, scan) {
			if err != nil {
				return fmt.Errorf("check UID widths: %w", err)
			}
			if len(row.Key) != s.Schema.Width(kind) {
				setting := []string{MetricWidth, TagkWidth, TagvWidth}[kind]
				return fmt.Errorf("%w: table %q holds %s UIDs of %d bytes: set --%s=%d",
					ErrMismatch, s.Tables.UID, kind, len(row.Key), setting, len(row.Key))
			}
		}
	}
	return nil
}

func isEmpty(ctx context.Context, st store.Store, table string) (bool, error) {
	for _, err := range st.Scan(ctx, store.Scan{Table: table, Limit: 1}) {
		return false, err
	}
	return true, nil
}
