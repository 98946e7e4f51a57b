//go:build tools

// Package spiffecsidriver names the CSI driver that mounts the socket of SPIRE's agent into pods.
package spiffecsidriver

import _ "github.com/spiffe/spiffe-csi/cmd/spiffe-csi-driver"
