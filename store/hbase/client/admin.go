package client

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/promtsd/promtsd/store/hbase/wire"
)

// CreateTable makes a table with one region more than there are splits, which are the first rows of all regions but the
// first, sorted. It returns when the table can be used. One that exists is ErrTableExists.
func (c *Client) CreateTable(ctx context.Context, schema wire.TableSchema, splits [][]byte) error {
	table := schema.Name.String()
	if table == "" || len(schema.Families) == 0 {
		return &Error{Verb: "create", Table: table, Class: ErrInvalid, Err: fmt.Errorf("no name, or no families")}
	}
	if !slices.IsSortedFunc(splits, bytes.Compare) || len(splits) > 0 && len(splits[0]) == 0 {
		return &Error{Verb: "create", Table: table, Class: ErrInvalid, Err: fmt.Errorf("splits are not sorted, or empty")}
	}
	return c.procedure(ctx, "create", table, wire.MethodCreateTable,
		&wire.CreateTableRequest{Schema: schema, Splits: splits, Nonce: c.nonce()})
}

// ModifyTable replaces the schema of a table, whose regions reopen one after the other.
func (c *Client) ModifyTable(ctx context.Context, schema wire.TableSchema) error {
	return c.procedure(ctx, "modify", schema.Name.String(), wire.MethodModifyTable,
		&wire.ModifyTableRequest{Schema: schema, Nonce: c.nonce()})
}

// DisableTable takes all regions of a table off the servers.
func (c *Client) DisableTable(ctx context.Context, table string) error {
	return c.procedure(ctx, "disable", table, wire.MethodDisableTable, c.tableRequest(table))
}

// EnableTable undoes DisableTable.
func (c *Client) EnableTable(ctx context.Context, table string) error {
	return c.procedure(ctx, "enable", table, wire.MethodEnableTable, c.tableRequest(table))
}

// DeleteTable removes a table that is disabled.
func (c *Client) DeleteTable(ctx context.Context, table string) error {
	err := c.procedure(ctx, "delete", table, wire.MethodDeleteTable, c.tableRequest(table))
	if err == nil {
		c.locator.forget(table)
	}
	return err
}

func (c *Client) tableRequest(table string) *wire.TableRequest {
	return &wire.TableRequest{Table: wire.ParseTableName(table), Nonce: c.nonce()}
}

// Tables lists the user's tables by name, sorted.
func (c *Client) Tables(ctx context.Context) ([]string, error) {
	var tables []string
	err := c.withTimeout(ctx, func(ctx context.Context) error {
		return c.askMaster(ctx, c.attempt("list", "", nil), wire.MethodGetTableNames, &wire.ListTablesRequest{},
			func(answer []byte) error {
				names, err := wire.ParseGetTableNamesResponse(answer)
				tables = tables[:0]
				for _, name := range names {
					tables = append(tables, name.String())
				}
				return err
			})
	})
	slices.Sort(tables)
	return tables, err
}

// Describe returns the schema of a table, or ErrNoTable.
func (c *Client) Describe(ctx context.Context, table string) (schema wire.TableSchema, err error) {
	err = c.withTimeout(ctx, func(ctx context.Context) error {
		a := c.attempt("describe", table, nil)
		var schemas []wire.TableSchema
		err := c.askMaster(ctx, a, wire.MethodGetTableDescriptors,
			&wire.DescribeTablesRequest{Tables: []wire.TableName{wire.ParseTableName(table)}},
			func(answer []byte) (err error) {
				schemas, err = wire.ParseGetTableDescriptorsResponse(answer)
				return err
			})
		if err != nil {
			return err
		}
		if len(schemas) == 0 {
			return a.final(ErrNoTable, nil)
		}
		schema = schemas[0]
		return nil
	})
	return schema, err
}

// TableState tells whether a table serves, or ErrNoTable.
func (c *Client) TableState(ctx context.Context, table string) (state wire.TableState, err error) {
	err = c.withTimeout(ctx, func(ctx context.Context) error {
		a := c.attempt("table state", table, nil)
		found := false
		err := c.repeat(ctx, a, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, c.cfg.RPCTimeout)
			defer cancel()
			var err error
			if state, found, err = c.locator.tableState(ctx, table); err != nil {
				return &lookupError{err}
			}
			return nil
		})
		if err == nil && !found {
			err = a.final(ErrNoTable, nil)
		}
		return err
	})
	return state, err
}

// SetBalancer turns the balancer, which moves regions between servers, on or off, and returns what it was.
func (c *Client) SetBalancer(ctx context.Context, on bool) (was bool, err error) {
	err = c.withTimeout(ctx, func(ctx context.Context) error {
		return c.askMaster(ctx, c.change("balancer", "", nil), wire.MethodSetBalancerRunning,
			&wire.SetBalancerRequest{On: on, Synchronous: true}, func(answer []byte) (err error) {
				was, err = wire.ParseSetBalancerResponse(answer)
				return err
			})
	})
	return was, err
}

// Cluster is the master's view of the cluster: its servers, and how many regions are on the move.
func (c *Client) Cluster(ctx context.Context) (status wire.ClusterStatus, err error) {
	err = c.withTimeout(ctx, func(ctx context.Context) error {
		return c.askMaster(ctx, c.attempt("cluster status", "", nil), wire.MethodGetClusterStatus,
			wire.ClusterStatusRequest{}, func(answer []byte) (err error) {
				status, err = wire.ParseGetClusterStatusResponse(answer)
				return err
			})
	})
	return status, err
}
