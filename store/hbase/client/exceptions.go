package client

import (
	"strings"

	"github.com/promtsd/promtsd/store/hbase/wire"
)

// policy is what an exception of a server asks of its client.
type policy struct {
	action action
	// untouched: the server refused the request before it touched anything. It is not set where that is not certain.
	untouched bool
	// err is what the caller gets: of giveUp, and of splitBatch when there is nothing to split.
	err error
	// atOnce is the number of attempts after which the next one needs no pause.
	atOnce int
	// overloaded asks for longer pauses.
	overloaded bool
	// forbidden: the client has not the right to do it, whatever it was.
	forbidden bool
}

// quickRetries is how often a Multi is repeated at once because its answer was cut, before that gets pauses, too.
const quickRetries = 16

// exceptionPolicy is the table of the exceptions that HBase 2.5 and 2.6 send, by class without package; those of java.*
// stand with it. A place that is not the region's any more is looked up again at once: most often the new one is known.
func exceptionPolicy(class string) (p policy, known bool) {
	switch class {
	// The region is not there, or not what the client thinks.
	case "NotServingRegionException", "RegionMovedException", "WrongRegionException", "UnknownRegionException",
		"RegionOfflineException", "ServerNotRunningYetException",
		// The server is not the active master.
		"MasterNotRunningException", "PleaseHoldException", "MasterStoppedException",
		// The connection is of no use any more.
		"ConnectionClosedException", "ConnectionClosingException", "FailedServerException", "CallCancelledException":
		return policy{action: relocate, atOnce: 1, untouched: true}, true

	// The server is going down, perhaps with the request half done.
	case "RegionServerStoppedException", "RegionServerAbortedException":
		return policy{action: relocate, atOnce: 1}, true

	case "RegionOpeningException", "RegionTooBusyException", "RpcThrottlingException", "NoServerForRegionException",
		"VisibilityControllerNotReadyException", "RegionInRecoveryException":
		return policy{action: retry, untouched: true}, true
	case "CallTimeoutException", "TimeoutIOException", "FailedSyncBeforeLogCloseException":
		return policy{action: retry}, true
	case "CallQueueTooBigException", "CallDroppedException":
		return policy{action: retry, untouched: true, overloaded: true}, true
	// The server has done a part of a Multi: the rest of it was not touched.
	case "RetryImmediatelyException", "MultiActionResultTooLarge":
		return policy{action: retry, atOnce: quickRetries, untouched: true}, true

	case "UnknownScannerException", "ScannerResetException", "OutOfOrderScannerNextException", "LeaseException":
		return policy{action: reopenScanner, atOnce: 1, untouched: true}, true
	case "RequestTooBigException":
		return policy{action: splitBatch, untouched: true, err: ErrTooLarge}, true

	// Checks that come first.
	case "TableNotFoundException":
		return policy{untouched: true, err: ErrNoTable}, true
	case "NoSuchColumnFamilyException":
		return policy{untouched: true, err: ErrNoFamily}, true
	case "TableNotEnabledException":
		return policy{untouched: true, err: ErrTableDisabled}, true
	case "TableExistsException":
		return policy{untouched: true, err: ErrTableExists}, true
	case "AccessDeniedException":
		return policy{untouched: true, err: ErrRejected, forbidden: true}, true
	case "TableNotDisabledException", "FailedSanityCheckException", "InvalidFamilyOperationException",
		"QuotaExceededException", "SpaceLimitingException", "WrongRowIOException", "DeserializationException",
		"java.lang.IllegalArgumentException", "NamespaceNotFoundException", "UnknownProtocolException",
		"UnsupportedCompressionCodecException", "UnsupportedCellCodecException":
		return policy{untouched: true, err: ErrRejected}, true

	// What may come from deep within.
	case "DoNotRetryIOException", "CoprocessorException", "CorruptHFileException", "MergeRegionException",
		"DoNotRetryRegionException", "RowTooBigException", "InvalidRowFilterException", "IncompatibleFilterException",
		"ConstraintException", "UnknownServiceException", "CellScannerButNoCodecException",
		"java.lang.UnsupportedOperationException", "FatalConnectionException", "WrongVersionException", "BadAuthException":
		return policy{err: ErrRejected}, true

	default:
		return policy{}, false
	}
}

// policyOf is the policy for an exception. The table decides before the server's DoNotRetry does: what that says of a
// scanner that is gone, or of a row that is another region's, is not meant for a client that opens another or looks up
// again. A class that is not in the table makes the client forget where the region is, as Java's does, unless the
// server says DoNotRetry.
func policyOf(e *wire.Exception) policy {
	class := e.Class
	if !strings.HasPrefix(class, "java.") {
		class = e.Simple()
	}
	p, known := exceptionPolicy(class)
	switch {
	case !known && e.DoNotRetry:
		return policy{err: ErrRejected}
	case !known:
		return policy{action: relocate, atOnce: 1}
	case class == "FailedSanityCheckException" && strings.Contains(e.Message, "Requested row out of range"):
		// A put whose row went to another region in a split.
		return policy{action: relocate, atOnce: 1, untouched: true}
	case class == "DoNotRetryIOException" && strings.Contains(e.Message, " with size ") &&
		strings.Contains(e.Message, " exceeds limit of "):
		p.err = ErrTooLarge // a cell beyond hbase.server.keyvalue.maxsize has no class of its own
	case e.Overloaded && p.action == retry && p.atOnce == 0:
		p.overloaded = true
	}
	return p
}
