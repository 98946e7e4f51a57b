//go:build tools

// Package opentofu names the engine that runs Terraform configurations.
package opentofu

import _ "github.com/opentofu/opentofu/cmd/tofu"
