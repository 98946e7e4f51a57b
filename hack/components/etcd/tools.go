//go:build tools

// Package etcd names the etcd server that a sandbox stores its objects in.
package etcd

import _ "go.etcd.io/etcd/server/v3"
