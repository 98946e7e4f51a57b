//go:build tools

// Package node names the Kubernetes programs that a sandbox's node runs.
package node

import (
	_ "k8s.io/kubernetes/cmd/kube-proxy"
	_ "k8s.io/kubernetes/cmd/kubelet"
)
