package wire

import (
	"strconv"
	"strings"
	"time"
)

// Remedy is what an exception asks of a client.
type Remedy uint8

// Remedies. "Later" is after a pause that grows with each try; all of them end with the caller's deadline.
const (
	// Fatal: repeating the same call is of no use.
	Fatal Remedy = iota
	// Relocate: the region is not there, or not what the client thinks: look it up again, and repeat, later.
	Relocate
	// RelocateServer: the server is going down: forget all regions that were there, and repeat, later.
	RelocateServer
	// Backoff: repeat later, at the same place.
	Backoff
	// BackoffOverloaded: repeat later, after a longer pause, and with less in flight.
	BackoffOverloaded
	// RetryNow: the server has done part of a Multi: repeat the rest at once.
	RetryNow
	// ReopenScanner: the scanner is gone: open one behind the last row that came whole.
	ReopenScanner
	// SplitBatch: the request is too large: repeat it in two halves.
	SplitBatch
	// FindMaster: the server is not the active master: look for it again, and repeat, later.
	FindMaster
	// Reconnect: the connection is of no use any more: dial anew, and repeat, later.
	Reconnect
)

// String is the remedy's name, fit as a label of a metric.
func (r Remedy) String() string {
	names := [...]string{"fatal", "relocate", "relocate_server", "backoff", "backoff_overloaded", "retry_now",
		"reopen_scanner", "split_batch", "find_master", "reconnect"}
	if int(r) < len(names) {
		return names[r]
	}
	return "remedy " + strconv.Itoa(int(r))
}

// remedyOf is the table, by class without package. All classes are of HBase but those of java.*, which are spelled
// out. What is not in it is Fatal with DoNotRetry and Relocate without, as for Java's client, which forgets the
// region's place after any exception it does not know.
func remedyOf(class string) (remedy Remedy, known bool) {
	switch class {
	case "NotServingRegionException", "RegionMovedException", "WrongRegionException", "UnknownRegionException",
		"RegionOfflineException", "ServerNotRunningYetException":
		return Relocate, true
	case "RegionServerStoppedException", "RegionServerAbortedException":
		return RelocateServer, true
	case "RegionOpeningException", "RegionTooBusyException", "RpcThrottlingException", "CallTimeoutException",
		"TimeoutIOException", "NoServerForRegionException", "VisibilityControllerNotReadyException",
		"FailedSyncBeforeLogCloseException", "RegionInRecoveryException":
		return Backoff, true
	case "CallQueueTooBigException", "CallDroppedException":
		return BackoffOverloaded, true
	case "RetryImmediatelyException", "MultiActionResultTooLarge":
		return RetryNow, true
	case "UnknownScannerException", "ScannerResetException", "OutOfOrderScannerNextException", "LeaseException":
		return ReopenScanner, true
	case "RequestTooBigException":
		return SplitBatch, true
	case "MasterNotRunningException", "PleaseHoldException", "MasterStoppedException":
		return FindMaster, true
	case "FatalConnectionException", "WrongVersionException", "BadAuthException", "UnsupportedCellCodecException",
		"UnsupportedCompressionCodecException":
		// What the handshake got wrong it gets wrong again.
		return Fatal, true
	case "ConnectionClosedException", "ConnectionClosingException", "FailedServerException", "CallCancelledException":
		return Reconnect, true
	case "TableNotFoundException", "TableNotEnabledException", "TableNotDisabledException", "TableExistsException",
		"NoSuchColumnFamilyException", "AccessDeniedException", "FailedSanityCheckException",
		"InvalidFamilyOperationException", "QuotaExceededException", "SpaceLimitingException",
		"DoNotRetryIOException", "UnknownProtocolException", "CoprocessorException", "CorruptHFileException",
		"WrongRowIOException", "DeserializationException", "java.lang.IllegalArgumentException",
		"NamespaceNotFoundException", "MergeRegionException", "DoNotRetryRegionException", "RowTooBigException",
		"InvalidRowFilterException", "IncompatibleFilterException", "ConstraintException", "UnknownServiceException",
		"CellScannerButNoCodecException", "java.lang.UnsupportedOperationException":
		return Fatal, true
	default:
		return Fatal, false
	}
}

// Remedy is what the exception asks for. The table decides before DoNotRetry does: what that says of a scanner that is
// gone, or of a row that is another region's, is not meant for a client that opens another or looks up again.
func (e *Exception) Remedy() Remedy {
	class := e.Class
	if !strings.HasPrefix(class, "java.") {
		class = e.Simple()
	}
	if class == "FailedSanityCheckException" && strings.Contains(e.Message, "Requested row out of range") {
		return Relocate // a put whose row went to another region in a split
	}
	remedy, known := remedyOf(class)
	if !known && !e.DoNotRetry {
		remedy = Relocate
	}
	if e.Overloaded && remedy == Backoff {
		remedy = BackoffOverloaded
	}
	return remedy
}

// MovedTo is where the region went, and whether a RegionMovedException says so. The place stands in fields of its own
// for whole calls, and only in the text for regions and actions of a Multi.
func (e *Exception) MovedTo() (server ServerName, ok bool) {
	if e.Simple() != "RegionMovedException" {
		return ServerName{}, false
	}
	server = ServerName{Host: word(e.Message, "hostname="), StartCode: number(word(e.Message, "startCode="))}
	if port := number(word(e.Message, "port=")); port < 1<<16 {
		server.Port = uint16(port)
	}
	if e.Host != "" {
		server.Host, server.Port = e.Host, e.Port
	}
	return server, server.Host != "" && server.Port != 0
}

// ThrottledFor is the pause that an RpcThrottlingException asks for in its text ("... - wait 1mins, 2sec, 30ms"), 0
// when there is none.
func (e *Exception) ThrottledFor() time.Duration {
	_, text, ok := strings.Cut(e.Message, "wait ")
	if !ok || e.Simple() != "RpcThrottlingException" {
		return 0
	}
	var sum time.Duration
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' }) {
		digits := strings.TrimRight(part, "abcdefghijklmnopqrstuvwxyz")
		n := time.Duration(min(number(digits), uint64(maxThrottle/time.Millisecond)))
		switch part[len(digits):] {
		case "ms":
			sum += n * time.Millisecond
		case "sec":
			sum += min(n, maxThrottle/time.Second) * time.Second
		case "min", "mins":
			sum += min(n, maxThrottle/time.Minute) * time.Minute
		case "hr", "hrs":
			sum += min(n, maxThrottle/time.Hour) * time.Hour
		}
	}
	return min(sum, maxThrottle)
}

// maxThrottle bounds what a server can make a client wait.
const maxThrottle = time.Hour

// word is what follows key in text up to a space, a comma or a full stop at the end of a word.
func word(text, key string) string {
	_, rest, ok := strings.Cut(text, key)
	if !ok {
		return ""
	}
	if end := strings.IndexAny(rest, " ,"); end >= 0 {
		rest = rest[:end]
	}
	return strings.TrimSuffix(rest, ".")
}

func number(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
