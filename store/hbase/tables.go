package hbase

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/hbase/client"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// Tables implements store.Store.
func (s *Store) Tables(ctx context.Context) ([]store.Table, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	names, err := s.client.Tables(ctx)
	if err != nil {
		return nil, classify(ctx, err)
	}
	var out []store.Table
	for _, name := range names {
		families, err := s.families(ctx, name)
		if errors.Is(err, store.ErrNoTable) || errors.Is(err, store.ErrInvalid) {
			continue // it was deleted meanwhile, or is no business of ours
		}
		if err != nil {
			return nil, err
		}
		out = append(out, store.Table{Name: name, Families: families})
	}
	return out, nil
}

// families asks the master for those of a table.
func (s *Store) families(ctx context.Context, table string) ([]string, error) {
	schema, err := s.client.Describe(ctx, table)
	if err != nil {
		return nil, classify(ctx, err)
	}
	var families []string
	for _, f := range schema.Families {
		families = append(families, f.Name)
	}
	slices.Sort(families)
	return families, nil
}

// CreateTable implements store.Store. The families keep one version, with bloom filters by row, FAST_DIFF encoding of
// the keys (which repeat their rows in every cell), and the first compression that the cluster accepts. Those of a Log
// have none of that: see logAttributes.
//
// A table that is there needs no master: see checkFamilies.
func (s *Store) CreateTable(ctx context.Context, t store.Table) error {
	if t.Name == "" || len(t.Families) == 0 || !slices.IsSorted(t.Families) {
		return fmt.Errorf("%w: a table needs a name, and families in order", store.ErrInvalid)
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	_, err := s.client.TableState(ctx, t.Name)
	if errors.Is(err, client.ErrNoTable) {
		if err = s.create(ctx, t); err == nil {
			return nil
		}
		if errors.Is(err, client.ErrTableExists) { // somebody else was faster
			err = nil
		}
	}
	if err != nil {
		return classify(ctx, err)
	}
	return s.checkFamilies(ctx, t)
}

// describeTimeout bounds the wait for what the master has to say of a table that is there.
const describeTimeout = 2 * time.Second

// checkFamilies refuses a table that exists with other families than t. The master knows them; where it is away, or
// does not tell us, the servers of the table do not refuse to read those of t, and no more can be known.
func (s *Store) checkFamilies(ctx context.Context, t store.Table) error {
	asking, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	families, err := s.families(asking, t.Name)
	if err == nil && !slices.Equal(families, t.Families) {
		return fmt.Errorf("%w: table %q exists with the families %q, not %q", store.ErrInvalid, t.Name, families, t.Families)
	}
	if err == nil {
		return nil
	}
	s.logger.Debug("master does not describe a table that exists", "table", t.Name, "err", err)
	read := client.Get{Table: t.Name, Rows: [][]byte{{0}}}
	for _, family := range t.Families {
		read.Columns = append(read.Columns, client.Column{Family: family})
	}
	for _, err := range s.client.Get(ctx, read) {
		if errors.Is(err, client.ErrNoFamily) {
			return fmt.Errorf("%w: table %q exists with other families than %q: %w", store.ErrInvalid, t.Name, t.Families, err)
		}
		if err != nil {
			return classify(ctx, err)
		}
	}
	return nil
}

// create makes a table. Its errors are those of the client.
func (s *Store) create(ctx context.Context, t store.Table) error {
	codecs := s.compression
	if t.Log {
		codecs = []string{"NONE"} // its cells are compressed already
	}
	var refused error
	for _, codec := range codecs {
		err := s.client.CreateTable(ctx, schema(t, codec), t.Splits)
		switch {
		case err == nil:
			s.logger.Info("table made", "table", t.Name, "regions", len(t.Splits)+1, "compression", codec)
			return nil
		case !errors.Is(err, client.ErrRejected):
			return err
		}
		// The master tries the codec before it makes a table with it.
		refused = err
		s.logger.Debug("cluster refused compression", "table", t.Name, "compression", codec, "err", err)
	}
	return refused
}

func schema(t store.Table, codec string) wire.TableSchema {
	out := wire.TableSchema{Name: wire.ParseTableName(t.Name)}
	kind := rowAttributes
	if t.Log {
		kind = logAttributes
		// A split brings no relief where all is written at the end, and has the files rewritten.
		out.Attributes = []wire.Attribute{
			{Name: "SPLIT_POLICY", Value: "org.apache.hadoop.hbase.regionserver.DisabledRegionSplitPolicy"},
		}
	}
	for _, family := range t.Families {
		attributes := append(kind(), wire.Attribute{Name: "VERSIONS", Value: "1"},
			wire.Attribute{Name: "COMPRESSION", Value: codec})
		if t.Retention > 0 {
			attributes = append(attributes, wire.Attribute{Name: "TTL", Value: strconv.Itoa(int(t.Retention.Seconds()))})
		}
		out.Families = append(out.Families, wire.FamilySchema{Name: family, Attributes: attributes})
	}
	return out
}

// rowAttributes are those of families whose rows are many and small.
func rowAttributes() []wire.Attribute {
	return []wire.Attribute{{Name: "BLOOMFILTER", Value: "ROW"}, {Name: "DATA_BLOCK_ENCODING", Value: "FAST_DIFF"}}
}

// logAttributes are those of families of a log. Nobody asks for a row of it, so that a bloom filter would be built for
// nothing; its keys are few beside its values, so that there is nothing to encode; and what is read back is read once,
// in order, and must not push out of the block cache what queries live from. Compactions stay on: they are what gives
// the space of deleted cells back.
func logAttributes() []wire.Attribute {
	return []wire.Attribute{
		{Name: "BLOOMFILTER", Value: "NONE"}, {Name: "DATA_BLOCK_ENCODING", Value: "NONE"},
		{Name: "BLOCKCACHE", Value: "false"},
	}
}
