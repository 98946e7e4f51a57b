//go:build tools

// Package crane names the program that pushes images to registries and pulls them.
package crane

import _ "github.com/google/go-containerregistry/cmd/crane"
