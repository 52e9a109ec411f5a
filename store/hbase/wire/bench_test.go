package wire_test

import (
	"encoding/binary"
	"testing"

	"github.com/promtsd/promtsd/store/hbase/wire"
)

// The cells of the benchmarks are those of time series: 43 bytes of row, 1 of family, 4 of qualifier, 8 of value, 80
// with all; 3000 to a batch.
const cellsPerBatch = 3000

// fill puts a batch's cells, run cells to a row.
func fill(batch *wire.MutationBatch, run int) {
	row, qualifier, value := make([]byte, 43), make([]byte, 4), make([]byte, 8)
	for i := range cellsPerBatch {
		binary.BigEndian.PutUint32(row[20:], uint32(i/run))
		binary.BigEndian.PutUint32(qualifier, uint32(i%run))
		batch.Put(row, "t", qualifier, 1_700_000_000_000, value)
	}
}

func benchmarkPuts(b *testing.B, run int) {
	var batch wire.MutationBatch
	var param []byte
	region := []byte("tsdb,,1795263262674.9c4796109091696458687ce25a5d8f50.")
	b.ReportAllocs()
	b.SetBytes(cellsPerBatch * 80)
	for b.Loop() {
		batch.Reset()
		fill(&batch, run)
		param = batch.AppendRegionAction(param[:0], region, wire.TableDurability)
	}
	b.ReportMetric(float64(b.N)*cellsPerBatch/b.Elapsed().Seconds(), "cells/s")
}

func BenchmarkEncodePuts_RowOfOneCell(b *testing.B)  { benchmarkPuts(b, 1) }
func BenchmarkEncodePuts_RowOfTenCells(b *testing.B) { benchmarkPuts(b, 10) }

func BenchmarkIterateCells(b *testing.B) {
	var batch wire.MutationBatch
	fill(&batch, 10)
	b.ReportAllocs()
	b.SetBytes(int64(len(batch.Block())))
	n := 0
	for b.Loop() {
		for it := wire.NewCellIter(batch.Block()); it.Next(); {
			n += len(it.Cell.Value)
		}
	}
	if n != 8*cellsPerBatch*b.N {
		b.Fatalf("got %d bytes of values", n)
	}
	b.ReportMetric(float64(b.N)*cellsPerBatch/b.Elapsed().Seconds(), "cells/s")
}

func BenchmarkWalkMultiResponse(b *testing.B) {
	response, mark := wire.BeginMessage(nil, 1)
	for i := range cellsPerBatch {
		response = wire.AppendMultiResult(response, i, &wire.Result{}, nil)
	}
	response = wire.EndMessage(response, mark)
	b.ReportAllocs()
	b.SetBytes(int64(len(response)))
	for b.Loop() {
		results := wire.NewMultiResults(response)
		if results.NextFailure() || results.Err() != nil || results.Answered() != cellsPerBatch {
			b.Fatalf("got %v, %v, %d", results.Exception, results.Err(), results.Answered())
		}
	}
	b.ReportMetric(float64(b.N)*cellsPerBatch/b.Elapsed().Seconds(), "actions/s")
}
