package api

import (
	"context"
	"fmt"
	"net/url"

	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/storage"
)

// absent stands for the parts of a Prometheus that promtsd has not: it scrapes nothing, evaluates no rules and keeps no
// exemplars.
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

func (a absent) ExemplarQuerier(context.Context) (storage.ExemplarQuerier, error) { return a, nil }

func (absent) Select(_, _ int64, _ ...[]*labels.Matcher) ([]exemplar.QueryResult, error) {
	return []exemplar.QueryResult{}, nil
}

// emptyConfig is the configuration file of a Prometheus that does nothing by itself, with the default way of naming
// OTLP metrics.
func emptyConfig() config.Config { return config.Config{OTLPConfig: config.DefaultOTLPConfig} }
