package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// memoryListener accepts connections from this process alone: each is a pair of
// connected sockets without a name. They are the kernel's, not a pipe written in Go,
// because net/http interrupts a read by a deadline in the past and takes it back:
// with a deadline kept by a timer (as in gRPC's bufconn) it can strike after it was
// taken back, and a request then ends as if its client had gone.
type memoryListener struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func newMemoryListener() *memoryListener {
	return &memoryListener{accepted: make(chan net.Conn), closed: make(chan struct{})}
}

// DialContext makes a pair, hands one end to Accept and returns the other.
func (l *memoryListener) DialContext(ctx context.Context) (net.Conn, error) {
	here, there, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("connect in memory: %w", err)
	}
	select {
	case l.accepted <- there:
		return here, nil
	case <-l.closed:
		err = net.ErrClosed
	case <-ctx.Done():
		err = ctx.Err()
	}
	return nil, errors.Join(err, here.Close(), there.Close())
}

// Accept returns the next connection.
func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends the accepting; connections live on.
func (l *memoryListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr names no place: there is none.
func (l *memoryListener) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

func socketPair() (a, b net.Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	if a, err = connOf(fds[0]); err != nil {
		return nil, nil, errors.Join(err, unix.Close(fds[1]))
	}
	if b, err = connOf(fds[1]); err != nil {
		return nil, nil, errors.Join(err, a.Close())
	}
	return a, b, nil
}

// connOf takes a socket over.
func connOf(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "memory")
	defer f.Close() // the connection has its own copy
	return net.FileConn(f)
}
