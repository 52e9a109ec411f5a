package uid

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/store"
)

// CachedUID is the UID of a name if the cache has it. It does no I/O and does not allocate. The UID is the one that
// Assign gives; an older spelling of the name may have another (see Lookup).
func (r *Registry) CachedUID(kind mapping.Kind, text string) (mapping.UID, bool) {
	uid, ok := r.uids.Get(nameKey{text, kind})
	if ok {
		r.metrics.hits[kind].Inc()
	}
	return uid, ok
}

// CachedText is the name of a UID if the cache has it. It does no I/O and does not allocate.
func (r *Registry) CachedText(kind mapping.Kind, uid mapping.UID) (string, bool) {
	text, ok := r.texts.Get(ID{kind, uid})
	if ok {
		r.metrics.hits[kind].Inc()
	}
	return text, ok
}

// Lookup returns, in the order of the names, all UIDs of each: those of every stored name that decodes to it. There are
// none if the table does not know the name, mostly one, and rarely two or three, where OpenTSDB or another setting of
// Names has spelt it differently; the one that Assign gives comes first. It makes no UIDs.
//
// The error is the store's or the context's, or wraps mapping.ErrCorrupt where a UID cell cannot be read.
func (r *Registry) Lookup(ctx context.Context, names []Name) ([][]mapping.UID, error) {
	found := make([][]mapping.UID, len(names))
	var cells []*cell
	cellsOf := make([][]*cell, len(names)) // stretches of cells
	for i, n := range names {
		spellings := r.spellings(n)
		// The cache knows the first spelling only, and a name that is not there now may be there later.
		if len(spellings) == 1 {
			if uid, ok := r.CachedUID(n.Kind, n.Text); ok {
				found[i] = []mapping.UID{uid}
				continue
			}
		}
		r.metrics.misses[n.Kind].Inc()
		first := len(cells)
		for _, s := range spellings {
			cells = append(cells, &cell{kind: n.Kind, row: s})
		}
		cellsOf[i] = cells[first:]
	}
	if len(cells) == 0 {
		return found, nil
	}
	if err := r.table.read(ctx, familyID, slices.Clone(cells)); err != nil {
		return nil, fmt.Errorf("look up UIDs: %w", err)
	}
	for i, n := range names {
		for _, c := range cellsOf[i] {
			if !c.found {
				continue
			}
			uid, err := r.table.parseUID(c)
			if err != nil {
				return nil, fmt.Errorf("look up UIDs: %w", err)
			}
			if !slices.Contains(found[i], uid) {
				found[i] = append(found[i], uid)
			}
			if c.row == r.names.Encode(n.Text) {
				r.uids.Add(nameKey{strings.Clone(n.Text), n.Kind}, uid)
			}
		}
	}
	return found, nil
}

// spellings are the rows in which a name may stand, that of Assign first.
func (r *Registry) spellings(n Name) []string {
	if n.Text == "" || len(n.Text) > 2*store.MaxRow { // ISO-8859-1 takes at least half the bytes of UTF-8
		return nil
	}
	return slices.DeleteFunc(r.names.Variants(n.Text), func(stored string) bool {
		return stored == counterRow || len(stored) > store.MaxRow || r.names.Decode(stored) != n.Text
	})
}

// Texts returns, in the order of the ids, their names, decoded. The error is the store's or the context's.
func (r *Registry) Texts(ctx context.Context, ids []ID) ([]Text, error) {
	texts := make([]Text, len(ids))
	var (
		latest [256]int // by the ids' lowest bits, the position after that of the latest one that the cache has
		hits   [kinds]int
		asked  []*cell
		cells  []*cell // by id; nil while none is asked for
	)
	for i, id := range ids {
		near := &latest[(uint(id.UID)*kinds+uint(id.Kind))%uint(len(latest))]
		if *near > 0 && ids[*near-1] == id { // neighbours have most in common
			texts[i] = texts[*near-1]
			hits[id.Kind]++
			continue
		}
		if text, ok := r.texts.Get(id); ok {
			texts[i] = Text{text, true}
			*near = i + 1
			hits[id.Kind]++
			continue
		}
		r.metrics.misses[id.Kind].Inc()
		if id.UID == 0 || id.UID > r.table.schema.MaxUID(id.Kind) {
			continue
		}
		if cells == nil {
			cells = make([]*cell, len(ids))
		}
		cells[i] = &cell{kind: id.Kind, row: r.table.row(id.Kind, id.UID)}
		asked = append(asked, cells[i])
	}
	for kind, n := range hits {
		r.metrics.hits[kind].Add(float64(n))
	}
	if len(asked) == 0 {
		return texts, nil
	}
	if err := r.table.read(ctx, familyName, asked); err != nil {
		return nil, fmt.Errorf("look up names of UIDs: %w", err)
	}
	for i, c := range cells {
		// An empty name is none: a series' label cannot have it.
		if c == nil || !c.found || c.value == "" {
			continue
		}
		// This is not put into the other cache: of a lost id there is a name, but the name is not of it.
		texts[i] = Text{r.names.Decode(c.value), true}
		r.texts.Add(ids[i], texts[i].Text)
	}
	return texts, nil
}

// Search yields the names of a kind whose text begins with prefix, and their UIDs, ascending by the bytes of their
// stored names, which for ASCII names stored as they are is the order of the texts. A name stored in two spellings
// comes twice, with two UIDs. Reserved names come too.
//
// If it meets an error, it yields that once, with an empty Entry, and ends; the errors are those of Lookup. It goes
// past the caches.
func (r *Registry) Search(ctx context.Context, kind mapping.Kind, prefix string) iter.Seq2[Entry, error] {
	scan := store.Scan{
		Table:   r.table.name,
		Ranges:  searchRanges(r.names, prefix),
		Columns: []store.Column{{Family: familyID, Qualifier: qualifiers[kind]}},
	}
	return func(yield func(Entry, error) bool) {
		for row, err := range r.table.store.Scan(ctx, scan) {
			if err != nil {
				yield(Entry{}, fmt.Errorf("search %s names in table %s: %w", kind, r.table.name, err))
				return
			}
			if string(row.Key) == counterRow || len(row.Cells) == 0 {
				continue
			}
			stored := string(row.Key)
			text := r.names.Decode(stored)
			if !strings.HasPrefix(text, prefix) {
				continue
			}
			uid, err := r.table.parseUID(&cell{kind: kind, row: stored, value: string(row.Cells[0].Value)})
			if err != nil {
				yield(Entry{}, fmt.Errorf("search %s names: %w", kind, err))
				return
			}
			if !yield(Entry{text, uid}, nil) {
				return
			}
		}
	}
}

// searchRanges are the row keys that may hold names whose text begins with prefix. UTF-8 and ISO-8859-1 agree on ASCII
// only, so that the range goes by the ASCII letters at the beginning; an escape says nothing of the text.
func searchRanges(names mapping.Names, prefix string) []store.Range {
	ascii := 0
	for ascii < min(len(prefix), store.MaxRow) && prefix[ascii] < 0x80 {
		ascii++
	}
	prefixes := []string{prefix[:ascii]}
	if names == mapping.NamesOpenTSDB && !strings.HasPrefix(mapping.EscapePrefix, prefixes[0]) {
		if strings.HasPrefix(prefixes[0], mapping.EscapePrefix) {
			prefixes[0] = mapping.EscapePrefix
		} else {
			prefixes = append(prefixes, mapping.EscapePrefix)
		}
	}
	slices.Sort(prefixes)
	var ranges []store.Range
	for _, p := range prefixes {
		ranges = append(ranges, prefixRange(p))
	}
	return ranges
}

// prefixRange is the rows that begin with an ASCII prefix.
func prefixRange(prefix string) store.Range {
	if prefix == "" {
		return store.Range{}
	}
	stop := bytes.Clone([]byte(prefix))
	stop[len(stop)-1]++ // no carry: ASCII ends at 0x7f
	return store.Range{Start: []byte(prefix), Stop: stop}
}
