package api

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/util/notifications"
)

// absent stands for the parts of a Prometheus that promtsd has not: it scrapes nothing and evaluates no rules.
type absent struct{}

func (absent) ScrapePools() []string { return []string{} }

func (absent) TargetsActive() map[string][]*scrape.Target  { return nil }
func (absent) TargetsDropped() map[string][]*scrape.Target { return nil }
func (absent) TargetsDroppedCounts() map[string]int        { return map[string]int{} }

func (absent) ScrapePoolConfig(name string) (*config.ScrapeConfig, error) {
	return nil, fmt.Errorf("promtsd scrapes nothing: there is no scrape pool %q", name)
}

func (absent) Alertmanagers() []*url.URL        { return nil }
func (absent) DroppedAlertmanagers() []*url.URL { return nil }

func (absent) RuleGroups() []*rules.Group           { return nil }
func (absent) AlertingRules() []*rules.AlertingRule { return nil }

func (absent) notifications() []notifications.Notification { return []notifications.Notification{} }

// subscribe says that nobody can be told anything.
func (absent) subscribe() (<-chan notifications.Notification, func(), bool) { return nil, nil, false }

var errNoTSDB = errors.New("promtsd has no TSDB")

func (absent) CleanTombstones() error                                         { return errNoTSDB }
func (absent) Delete(context.Context, int64, int64, ...*labels.Matcher) error { return errNoTSDB }
func (absent) Snapshot(string, bool) error                                    { return errNoTSDB }
func (absent) Stats(string, int) (*tsdb.Stats, error)                         { return nil, errNoTSDB }
func (absent) BlockMetas() ([]tsdb.BlockMeta, error)                          { return nil, errNoTSDB }

// WALReplayStatus says that nothing is left to replay: before that nothing is served here.
func (absent) WALReplayStatus() (tsdb.WALReplayStatus, error) { return tsdb.WALReplayStatus{}, nil }

// emptyConfig is the configuration file of a Prometheus that does nothing by itself, with the default way of naming
// OTLP metrics.
func emptyConfig() config.Config { return config.Config{OTLPConfig: config.DefaultOTLPConfig} }
