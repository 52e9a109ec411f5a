package client

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/promtsd/promtsd/store/hbase/wire"
)

// Client talks to one cluster.
type Client struct {
	cfg     Config
	reg     registry
	pool    *pool
	locator *locator
	writes  *budget
	blocks  sync.Pool // of *block
	master  masterPlace
	nonces  uint64 // group of this client's nonces
	teller  teller
}

// New makes a client. It does not connect yet: a cluster that is down, or is none, shows at the first verb.
func New(cfg Config) (*Client, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, writes: newBudget(cfg.WriteBytes), nonces: nonce()}
	c.teller.logger, c.teller.began = cfg.Logger, time.Now()
	c.pool = newPool(&c.cfg)
	if len(cfg.Masters) > 0 {
		c.reg = newRPCRegistry(&c.cfg)
		cfg.Logger.Info("looking for HBase", "masters", cfg.Masters)
	} else {
		cfg.Logger.Info("looking for HBase", "zookeeper", cfg.ZooKeeper, "znode", cfg.ZNode)
		c.reg = newZKRegistry(&c.cfg)
	}
	c.locator = newLocator(&c.cfg, c.reg, c.pool)
	return c, nil
}

// Close ends the client: verbs under way fail with ErrClosed, and its connections and goroutines are gone when it
// returns. Scans that are under way are to be ended by their consumers.
func (c *Client) Close() error {
	c.pool.close()
	return nil
}

// Timeout is the most time that a verb takes: Config.OperationTimeout, or its default.
func (c *Client) Timeout() time.Duration { return c.cfg.OperationTimeout }

// ClusterID is the id the cluster gave itself when it was set up.
func (c *Client) ClusterID(ctx context.Context) (string, error) {
	var id string
	err := c.withTimeout(ctx, func(ctx context.Context) error {
		return c.repeat(ctx, c.attempt("cluster id", "", nil), func(ctx context.Context) (err error) {
			ctx, cancel := c.living(ctx)
			defer cancel()
			if id, err = c.reg.clusterID(ctx); err != nil {
				return &lookupError{err}
			}
			return nil
		})
	})
	return id, err
}

// Regions returns the regions of a table in order, as hbase:meta has them now; a region without a Server moves at the
// moment. A scan that is to run in parallel is cut along them.
func (c *Client) Regions(ctx context.Context, table string) ([]*Region, error) {
	var regions []*Region
	err := c.withTimeout(ctx, func(ctx context.Context) error {
		return c.repeat(ctx, c.attempt("locate", table, nil), func(ctx context.Context) (err error) {
			ctx, cancel := context.WithTimeout(ctx, c.cfg.RPCTimeout)
			defer cancel()
			ctx, release := c.living(ctx)
			defer release()
			if regions, err = c.locator.all(ctx, table); err != nil {
				return &lookupError{err}
			}
			return nil
		})
	})
	return regions, err
}

// Column selects cells of a row: one, or all of a family when Qualifier is nil.
type Column struct {
	Family    string
	Qualifier []byte
}

// wireColumns groups columns by family, as the protocol has them. All of a family beats single cells of it.
func wireColumns(columns []Column) []wire.Column {
	var groups []wire.Column
	whole := make(map[string]bool)
	at := make(map[string]int)
	for _, c := range columns {
		i, ok := at[c.Family]
		if !ok {
			i = len(groups)
			at[c.Family] = i
			groups = append(groups, wire.Column{Family: c.Family})
		}
		if c.Qualifier == nil {
			whole[c.Family] = true
		}
		groups[i].Qualifiers = append(groups[i].Qualifiers, c.Qualifier)
	}
	for i := range groups {
		if whole[groups[i].Family] {
			groups[i].Qualifiers = nil
		}
	}
	return groups
}

// Cell is one cell. Its slices point into the answer it came with.
type Cell = wire.Cell

// Row is a row with at least one cell, in the order of HBase: families by name, then qualifiers, both by their bytes.
// It is valid until the iteration goes on or ends.
type Row struct {
	Key   []byte
	Cells []Cell
}

// nonce is a random number other than 0.
func nonce() uint64 {
	for {
		if n := rand.Uint64(); n != 0 {
			return n
		}
	}
}

// withTimeout runs a verb within Config.OperationTimeout.
func (c *Client) withTimeout(ctx context.Context, run func(ctx context.Context) error) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	return run(ctx)
}

// bounded makes a context that ends after Config.OperationTimeout, if ctx does not end before.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.cfg.OperationTimeout)
}

// living makes a context that ends with the client, too.
func (c *Client) living(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.pool.life, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}
