//go:build tools

// Package spireagent names SPIRE's agent, and the provider of its OIDC discovery document.
package spireagent

import (
	_ "github.com/spiffe/spire/cmd/spire-agent"
	_ "github.com/spiffe/spire/support/oidc-discovery-provider"
)
