package main

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/prometheus/common/config"
)

// loadHTTPClient makes a client as a file says, in the form that Prometheus has for its own clients; as without one if
// file is empty. It follows no redirects.
func loadHTTPClient(flag, file string) (*http.Client, error) {
	c := &config.DefaultHTTPClientConfig
	if file != "" {
		var err error
		if c, _, err = config.LoadHTTPConfigFile(file); err != nil {
			return nil, fmt.Errorf("--%s=%s: %w", flag, file, err)
		}
	}
	own := *c
	own.FollowRedirects = false
	own.EnableHTTP2 = false // a server that ends waits for connections that are
	client, err := config.NewClientFromConfig(own, "promtsd")
	if err != nil {
		return nil, fmt.Errorf("--%s=%s: %w", flag, file, err)
	}
	return client, nil
}

// httpConfigHelp is what the help says of a flag for loadHTTPClient.
const httpConfigHelp = "in the format of Prometheus's http_config: tls_config, basic_auth, authorization, and so on."

// redacted is an address as it may be shown.
func redacted(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "(not an address)"
	}
	return u.Redacted()
}
