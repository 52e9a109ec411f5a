package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/alecthomas/kingpin/v2"
)

func addHealthcheck(app *kingpin.Application) (string, command) {
	cmd := app.Command("healthcheck", "Ask a running promtsd whether it is healthy; for container health checks.")
	url := cmd.Flag("url", "What to ask.").Default("http://127.0.0.1:9201/-/healthy").String()
	file := cmd.Flag("http.config.file", "File that says how, where TLS or authentication is on, "+
		httpConfigHelp).Default("").String()
	timeout := cmd.Flag("timeout", "How long to wait for the answer.").Default("3s").Duration()
	return cmd.FullCommand(), func(ctx context.Context, env environment) error {
		ctx, cancel := context.WithTimeout(ctx, *timeout)
		defer cancel()
		client, err := loadHTTPClient("http.config.file", *file)
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, *url, nil)
		if err != nil {
			return errors.New("--url is no address, such as http://localhost:9201")
		}
		start := time.Now()
		res, err := client.Do(req)
		if err != nil {
			return fmt.Errorf("not healthy: %w", err)
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("not healthy: %s answered %s", redacted(*url), res.Status)
		}
		fmt.Fprintf(env.out, "healthy, answered in %s\n", time.Since(start).Round(time.Millisecond))
		return nil
	}
}
