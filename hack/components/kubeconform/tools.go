//go:build tools

// Package kubeconform names the program that checks rendered objects against the schemas of their kinds.
package kubeconform

import _ "github.com/yannh/kubeconform/cmd/kubeconform"
