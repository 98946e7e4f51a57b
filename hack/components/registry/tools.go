//go:build tools

// Package registry names the OCI registry that a sandbox runs.
package registry

import _ "github.com/distribution/distribution/v3/cmd/registry"
