//go:build tools

// Package provider names the provider of random values for OpenTofu.
package provider

import _ "github.com/terraform-providers/terraform-provider-random"
