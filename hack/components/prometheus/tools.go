//go:build tools

// Package prometheus names the Prometheus that a sandbox runs.
package prometheus

import _ "github.com/prometheus/prometheus/cmd/prometheus"
