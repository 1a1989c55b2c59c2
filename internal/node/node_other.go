//go:build !linux

package node

import (
	"context"
	"errors"
)

var errNotLinux = errors.New("a node needs Linux: containers are a part of its kernel")

const kubeletPort = 10250

// Node is a running node; there is none here.
type Node struct{}

// Supported says why this machine cannot be a node.
func Supported() error { return errNotLinux }

// Programs has nothing to look for.
func Programs(string) error { return errNotLinux }

// SetPodCIDR sets nothing.
func (*Node) SetPodCIDR(string) error { return errNotLinux }

// Start starts no node.
func Start(context.Context, Config) (*Node, error) { return nil, errNotLinux }

// Wait returns at once.
func (*Node) Wait() error { return errNotLinux }

// Stop has nothing to stop.
func (*Node) Stop() error { return nil }

// Cleanup has nothing to clean up.
func Cleanup(string) error { return nil }

// BoxMain is the process that a node lives in.
func BoxMain([]string) error { return errNotLinux }
