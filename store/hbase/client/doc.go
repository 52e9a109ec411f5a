// Package client is a client of an HBase cluster: it finds the cluster, its tables' regions and their servers, keeps
// connections to them, and repeats what can be repeated. It knows nothing of what is stored.
//
//	c, err := client.New(client.Config{ZooKeeper: []string{"zk1:2181"}})
//	...
//	b, err := c.NewBatch(ctx, "metrics")
//	for ... {
//		b.Put(row, "t", qualifier, timestamp, value)
//	}
//	err = b.Flush()
//	for row, err := range c.Scan(ctx, client.Scan{Table: "metrics", Start: from, Stop: to}) { ... }
//
// # Time
//
// Every verb ends with its context, and after Config.OperationTimeout at the latest. Until then it is
// repeated as often as it takes: a region that moves, splits or merges is located again, a busy server is given longer
// and longer pauses, a dead one is asked no more. What cannot succeed ends at once: see the Err variables.
//
// # Errors
//
// The errors of verbs are *Error values. They say what was asked of which region and server, how often, and whether it
// may have taken effect (see MayHaveApplied). They wrap one of the Err variables, and what the last attempt met: a
// *wire.Exception, an error of the connection, or that of the context.
//
// # Layers
//
// A verb (Batch, Get, Scan, Increment, CheckAndPut, the admin calls) asks the locator for a region, the pool for a
// connection to its server, and decide (retry.go, by the
// table of exceptions.go) what to do about an error:
//
//	verbs -> locator -> registry (ZooKeeper, or the servers themselves)
//	      -> pool    -> rpc.Conn -> wire
//	      -> decide
//
// All methods of Client may be called by many goroutines at once.
package client
