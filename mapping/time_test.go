package mapping_test

import (
	"errors"
	"math"
	"testing"

	"github.com/promtsd/promtsd/mapping"
)

func TestBaseTime_IsTheHourInSeconds(t *testing.T) {
	for _, c := range []struct {
		ms   int64
		want uint32
	}{
		{0, 0},
		{mapping.HourMs - 1, 0},
		{mapping.HourMs, 3600},
		{1356998400000, 0x50e22700},
		{1357001999999, 0x50e22700},
		{mapping.MaxTime, 4294965600},
	} {
		if got := mapping.BaseTime(c.ms); got != c.want {
			t.Errorf("BaseTime(%d) = %d, want %d", c.ms, got, c.want)
		}
	}
}

func TestCheckTime_RefusesWhatNoRowCanHold(t *testing.T) {
	for _, ms := range []int64{0, 1, 1356998400000, mapping.MaxTime} {
		if err := mapping.CheckTime(ms); err != nil {
			t.Errorf("CheckTime(%d) = %v, want nil", ms, err)
		}
	}
	for _, ms := range []int64{-1, math.MinInt64, mapping.MaxTime + 1, math.MaxInt64} {
		if err := mapping.CheckTime(ms); !errors.Is(err, mapping.ErrInvalid) {
			t.Errorf("CheckTime(%d) = %v, want ErrInvalid", ms, err)
		}
	}
}
