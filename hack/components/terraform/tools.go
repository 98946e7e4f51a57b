//go:build tools

// Package terraform names the other engine that runs Terraform configurations.
package terraform

import _ "github.com/hashicorp/terraform"
