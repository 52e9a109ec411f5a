package api

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/features"
)

// Features of PromQL that Prometheus has behind its flag --enable-feature, too.
const (
	featureFunctions          = "promql-experimental-functions"
	featureDelayedNameRemoval = "promql-delayed-name-removal"
	featureRangeSelectors     = "promql-extended-range-selectors"
	featureFill               = "promql-binop-fill-modifiers"
	featurePerStepStats       = "promql-per-step-stats"
)

// FeatureNames are those that Config.Features may have.
var FeatureNames = []string{
	featureFunctions, featureDelayedNameRemoval, featureRangeSelectors, featureFill, featurePerStepStats,
}

// enabledFeatures are the names of those that are enabled.
type enabledFeatures map[string]bool

func parseFeatures(names []string) (enabledFeatures, error) {
	enabled := enabledFeatures{}
	for _, name := range names {
		if !slices.Contains(FeatureNames, name) {
			return nil, fmt.Errorf("--enable-feature=%s is not known; there are %s", name, strings.Join(FeatureNames, ", "))
		}
		enabled[name] = true
	}
	return enabled, nil
}

// parser are the options that they are for a parser. Duration expressions are always on, as in Prometheus.
func (e enabledFeatures) parser() parser.Options {
	return parser.Options{
		EnableExperimentalFunctions: e[featureFunctions], ExperimentalDurationExpr: true,
		EnableExtendedRangeSelectors: e[featureRangeSelectors], EnableBinopFillModifiers: e[featureFill],
	}
}

// registry lists what the API can do, for /api/v1/features. The engine adds what it can.
func (e enabledFeatures) registry(c Config) features.Collector {
	r := features.NewRegistry()
	for name, can := range map[string]bool{
		"admin": false, "lifecycle": false, "search": false, "remote_write_receiver": true,
		"otlp_write_receiver": c.OTLP != nil,
		"label_values_match":  true, "query_warnings": true, "query_stats": true, "time_range_series": true,
		"time_range_labels": true, "exclude_alerts": true,
	} {
		r.Set(features.API, name, can)
	}
	return r
}
