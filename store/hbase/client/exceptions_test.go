package client

import (
	"testing"

	"github.com/promtsd/promtsd/store/hbase/wire"
)

func TestPolicyOf(t *testing.T) {
	const hbase = "org.apache.hadoop.hbase."
	moved := policy{action: relocate, atOnce: 1, untouched: true}
	for _, test := range []struct {
		exception wire.Exception
		want      policy
	}{
		{wire.Exception{Class: hbase + "NotServingRegionException"}, moved},
		{wire.Exception{Class: hbase + "exceptions.RegionMovedException"}, moved},
		{wire.Exception{Class: hbase + "exceptions.RegionOpeningException"}, policy{action: retry, untouched: true}},
		{wire.Exception{Class: hbase + "regionserver.WrongRegionException", DoNotRetry: true}, moved},
		{wire.Exception{Class: hbase + "regionserver.RegionServerStoppedException", DoNotRetry: true},
			policy{action: relocate, atOnce: 1}},
		{wire.Exception{Class: hbase + "RegionTooBusyException"}, policy{action: retry, untouched: true}},
		{wire.Exception{Class: hbase + "RegionTooBusyException", Overloaded: true},
			policy{action: retry, untouched: true, overloaded: true}},
		{wire.Exception{Class: hbase + "CallQueueTooBigException"}, policy{action: retry, untouched: true, overloaded: true}},
		{wire.Exception{Class: hbase + "MultiActionResultTooLarge"},
			policy{action: retry, untouched: true, atOnce: quickRetries}},
		{wire.Exception{Class: hbase + "UnknownScannerException", DoNotRetry: true},
			policy{action: reopenScanner, untouched: true, atOnce: 1}},
		{wire.Exception{Class: hbase + "exceptions.RequestTooBigException", DoNotRetry: true},
			policy{action: splitBatch, untouched: true, err: ErrTooLarge}},
		{wire.Exception{Class: hbase + "PleaseHoldException"}, moved},
		{wire.Exception{Class: hbase + "ipc.FailedServerException"}, moved},
		{wire.Exception{Class: hbase + "TableNotFoundException", DoNotRetry: true}, policy{untouched: true, err: ErrNoTable}},
		{wire.Exception{Class: hbase + "exceptions.FailedSanityCheckException", DoNotRetry: true},
			policy{untouched: true, err: ErrRejected}},
		{wire.Exception{Class: hbase + "exceptions.FailedSanityCheckException", DoNotRetry: true,
			Message: "Requested row out of range for batchMutate on HRegion"}, moved},
		{wire.Exception{Class: "java.lang.IllegalArgumentException"}, policy{untouched: true, err: ErrRejected}},
		{wire.Exception{Class: "com.example.IllegalArgumentException"}, policy{action: relocate, atOnce: 1}},
		{wire.Exception{Class: "java.io.IOException"}, policy{action: relocate, atOnce: 1}},
		{wire.Exception{Class: "java.io.IOException", DoNotRetry: true}, policy{err: ErrRejected}},
	} {
		if got := policyOf(&test.exception); got != test.want {
			t.Errorf("%+v: got %+v, want %+v", test.exception, got, test.want)
		}
	}
}
