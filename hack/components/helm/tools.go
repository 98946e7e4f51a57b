//go:build tools

// Package helm names the program that installs the charts.
package helm

import _ "helm.sh/helm/v3/cmd/helm"
