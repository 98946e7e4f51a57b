//go:build tools

// Package provider names the provider of local files for OpenTofu.
package provider

import _ "github.com/terraform-providers/terraform-provider-local"
