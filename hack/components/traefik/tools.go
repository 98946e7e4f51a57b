//go:build tools

// Package traefik names the proxy that leads requests from outside to Services.
package traefik

import _ "github.com/traefik/traefik/v3/cmd/traefik"
