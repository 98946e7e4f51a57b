//go:build tools

// Package spirecontrollermanager names the controller that makes SPIRE's entries from objects of Kubernetes.
package spirecontrollermanager

import _ "github.com/spiffe/spire-controller-manager/cmd"
