package catalog

import (
	"fmt"
	"time"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/store"
)

// Bounds of a Layout.
const (
	// MaxRegions is how many parts a data table may be made of. A store that needs more splits parts as they grow.
	MaxRegions = 4096
	// MaxRetention is the longest time that an HBase table can keep cells for, about 68 years.
	MaxRetention = (1<<31 - 1) * time.Second
)

const (
	// defaultSaltRegions bounds the regions of a salted table where their number is not requested: every bucket of a
	// one-byte salt gets its own.
	defaultSaltRegions = 256
	// usualMetrics is how many metric names the regions of an unsalted table are cut for. UIDs count up from 1, and a
	// Prometheus has one or two thousand metric names: splits further up would leave all but the first region empty.
	usualMetrics = 2000
)

// Layout is how Init makes the data table where there is none. It shapes no bytes: it is not recorded, a table that
// exists keeps what it has, and operators may change it at any time. Its zero value is fit for use. The other tables
// are small, and kept for ever: they are made of one part, and what they say is true of all of time. Only exemplars are
// kept as long as data, and the journal's table is made of a few parts, whatever is requested.
type Layout struct {
	// Retention is how long cells are kept, by their timestamps, which are the times at which they were written; 0 is
	// for ever. From one second to MaxRetention.
	Retention time.Duration
	// Regions is the number of parts that the table is made of, at most MaxRegions: with salt, of as many buckets each
	// as can be; without, of ranges of metric UIDs, the last of which has no end. 0 is one part for each bucket, at most
	// 256, or one part without salt. More than there are buckets count as that many.
	Regions int
}

// check refuses what no table can have.
func (l Layout) check() error {
	if l.Regions < 0 || l.Regions > MaxRegions {
		return fmt.Errorf("%w: %d regions, must be 0 to %d", mapping.ErrInvalid, l.Regions, MaxRegions)
	}
	if l.Retention != 0 && (l.Retention < time.Second || l.Retention > MaxRetention) {
		return fmt.Errorf("%w: retention %v, must be 0 or from %v to %v",
			mapping.ErrInvalid, l.Retention, time.Second, MaxRetention)
	}
	return nil
}

// splits are the first row keys of all regions of the data table but the first.
func (l Layout) splits(schema mapping.Schema) [][]byte {
	// The table is parts wide: buckets, or metric UIDs from the first one on.
	parts, regions := usualMetrics, max(l.Regions, 1)
	first := func(part int) []byte { return schema.AppendUID(nil, mapping.Metric, mapping.UID(1+part)) }
	if schema.SaltWidth > 0 {
		parts = schema.SaltBuckets
		first = func(part int) []byte { return schema.AppendSalt(nil, part) }
		if l.Regions == 0 {
			regions = defaultSaltRegions
		}
	} else if schema.MetricWidth == 1 {
		parts = 255
	}
	regions = min(regions, parts)
	var splits [][]byte
	for i := 1; i < regions; i++ {
		// This is i*parts/regions, without overflow.
		splits = append(splits, first(i*(parts/regions)+i*(parts%regions)/regions))
	}
	return splits
}

// tables are the tables of s, as they are made.
func (l Layout) tables(s Settings) []store.Table {
	return []store.Table{
		{Name: s.Tables.Data, Families: []string{FamilyData}, Splits: l.splits(s.Schema), Retention: l.Retention},
		{Name: s.Tables.UID, Families: []string{FamilyID, FamilyName}},
		{Name: s.Tables.Meta, Families: []string{FamilyName}},
		{Name: s.Tables.System, Families: []string{FamilySystem}},
		s.Tables.JournalTable(),
		s.Tables.ExemplarTable(l.Retention),
	}
}
