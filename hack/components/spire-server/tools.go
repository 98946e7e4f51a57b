//go:build tools

// Package spireserver names SPIRE's server.
package spireserver

import _ "github.com/spiffe/spire/cmd/spire-server"
