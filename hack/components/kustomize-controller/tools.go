//go:build tools

// Package kustomizecontroller names the part of Flux that applies what a Kustomization leads to.
package kustomizecontroller

import _ "github.com/fluxcd/kustomize-controller"
