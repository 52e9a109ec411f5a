package ingest_test

import (
	"testing"

	"github.com/promtsd/promtsd/mapping/ingest"
	"github.com/promtsd/promtsd/store/storetest"
)

// The clock stands still while samples that do not follow each other drive cell timestamps ahead of it, and moves hardly
// while promtsd is started again: what comes then still counts over what is there.
func TestStart_CellTimestampsGoOnAboveThoseGivenBefore(t *testing.T) {
	for name, change := range map[string]func(*ingest.Config){
		"direct": func(c *ingest.Config) { c.Alone = true }, "journal": journalRoad,
	} {
		t.Run(name, func(t *testing.T) {
			st := storetest.NewMem()
			for round := range 4 {
				db := open(t, st, nil, change)
				*db.clock += int64(round) * 21
				if err := db.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				for i := range 20 {
					db.append(t, raw("__name__", "m"), sample(now+1000, float64(-i)), sample(now, float64(round*100)+float64(i)/3))
					if err := db.FlushAll(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if err := db.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				want := float64(round*100) + 19.0/3
				for _, points := range read(t, st, db.settings.Schema) {
					if points[now] != want || points[now+1000] != -19 {
						t.Fatalf("round %d: got %v, want %v and -19", round, points, want)
					}
				}
			}
		})
	}
}
