package hbase_test

import (
	"os"
	"testing"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
)

func TestMain(m *testing.M) { os.Exit(promtest.SharedHBase.Main(m)) }
