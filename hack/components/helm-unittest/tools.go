//go:build tools

// Package helmunittest names the program that runs the unit tests of the charts.
package helmunittest

import _ "github.com/helm-unittest/helm-unittest/cmd/helm-unittest"
