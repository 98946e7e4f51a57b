//go:build tools

// Package sourcecontroller names the part of Flux that fetches sources.
package sourcecontroller

import _ "github.com/fluxcd/source-controller"
