package api

import (
	"fmt"
	"net/url"

	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/scrape"
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

// emptyConfig is the configuration file of a Prometheus that does nothing by itself, with the default way of naming
// OTLP metrics.
func emptyConfig() config.Config { return config.Config{OTLPConfig: config.DefaultOTLPConfig} }
