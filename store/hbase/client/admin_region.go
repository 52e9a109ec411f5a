package client

import (
	"context"

	"github.com/promtsd/promtsd/store/hbase/wire"
)

// FlushTable writes what the servers hold in memory for a table to files, and returns when they are written.
func (c *Client) FlushTable(ctx context.Context, table string) error {
	return c.eachRegion(ctx, "flush", table, wire.MethodFlushRegion, func(region []byte) wire.Message {
		return &wire.FlushRegionRequest{Region: region}
	})
}

// CompactTable asks the servers to merge the files of a table, all of them with major. It does not wait for that.
func (c *Client) CompactTable(ctx context.Context, table string, major bool) error {
	return c.eachRegion(ctx, "compact", table, wire.MethodCompactRegion, func(region []byte) wire.Message {
		return &wire.CompactRegionRequest{Region: region, Major: major}
	})
}

// eachRegion asks the server of each region of a table, one after the other. Regions are gone through by their rows, so
// that ones that split meanwhile are not missed.
func (c *Client) eachRegion(
	ctx context.Context, verb, table, method string, request func(region []byte) wire.Message,
) error {
	return c.withTimeout(ctx, func(ctx context.Context) error {
		a := c.change(verb, table, nil)
		for row := []byte(nil); ; row = a.region.End {
			a.row, a.tried = row, 0
			if err := c.onServer(ctx, a, method, request); err != nil {
				return err
			}
			if len(a.region.End) == 0 {
				return nil
			}
		}
	})
}

// Split splits a region of a table in two, of which the second begins with row; with none the server chooses. It
// returns when the daughters are open.
func (c *Client) Split(ctx context.Context, region *Region, row []byte) error {
	defer c.locator.forget(region.Table)
	return c.procedure(ctx, "split", region.Table, wire.MethodSplitRegion,
		&wire.SplitRegionRequest{Region: region.info(), Row: row, Nonce: c.nonce()})
}

// Merge makes two adjacent regions of a table one, and returns when it is open.
func (c *Client) Merge(ctx context.Context, a, b *Region) error {
	defer c.locator.forget(a.Table)
	return c.procedure(ctx, "merge", a.Table, wire.MethodMergeTableRegions,
		&wire.MergeRegionsRequest{Encoded: []string{a.Encoded(), b.Encoded()}, Nonce: c.nonce()})
}

// Move moves a region to a server, and returns when it is open there. Without a Host the master chooses.
func (c *Client) Move(ctx context.Context, region *Region, to wire.ServerName) error {
	defer c.locator.forget(region.Table)
	return c.withTimeout(ctx, func(ctx context.Context) error {
		return c.askMaster(ctx, c.change("move", region.Table, region.Start), wire.MethodMoveRegion,
			&wire.MoveRegionRequest{Encoded: region.Encoded(), To: to}, func([]byte) error { return nil })
	})
}
