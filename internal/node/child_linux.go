package node

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	firstPause = time.Second
	longPause  = 30 * time.Second
	steady     = time.Minute // after this long, an end is not counted as another
	logLimit   = 32 << 20
)

// child is a process that is started again whenever it ends.
type child struct {
	name string
	argv []string
	env  []string // in addition to the box's own
	log  string
	logf func(string, ...any)

	stopping chan struct{}
	stopped  chan struct{}
	current  chan *os.Process // holds the running process, or nil between two
}

// startChild fails only if the first start does.
func startChild(c child) (*child, error) {
	c.stopping, c.stopped, c.current = make(chan struct{}), make(chan struct{}), make(chan *os.Process, 1)
	c.current <- nil
	first := make(chan error, 1)
	go c.keep(first)
	if err := <-first; err != nil {
		return nil, err
	}
	return &c, nil
}

// keep runs the process over and over. It holds on to its thread, whose end the
// kernel would take for the end of the process's parent.
func (c *child) keep(first chan<- error) {
	runtime.LockOSThread()
	defer close(c.stopped)
	pause := firstPause
	for tries := 0; ; tries++ {
		began := time.Now()
		cmd, err := c.start()
		if tries == 0 {
			if first <- err; err != nil {
				return
			}
		}
		if err == nil {
			err = cmd.Wait()
			<-c.current
			c.current <- nil
		}
		select {
		case <-c.stopping:
			return
		default:
		}
		if time.Since(began) > steady {
			pause = firstPause
		}
		c.logf("%s has ended (%v); starting it again in %s", c.name, err, pause)
		select {
		case <-c.stopping:
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, longPause)
	}
}

func (c *child) start() (*exec.Cmd, error) {
	if i, err := os.Stat(c.log); err == nil && i.Size() > logLimit {
		_ = os.Rename(c.log, c.log+".1")
	}
	out, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(c.argv[0], c.argv[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), c.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	p := <-c.current
	defer func() { c.current <- p }()
	select {
	case <-c.stopping:
		return nil, fmt.Errorf("%s is being stopped", c.name)
	default:
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	p = cmd.Process
	return cmd, nil
}

// stop asks the process to end, and kills it if it has not within the limit.
func (c *child) stop(limit time.Duration) {
	close(c.stopping)
	c.signal(unix.SIGTERM)
	select {
	case <-c.stopped:
		return
	case <-time.After(limit):
	}
	c.logf("%s did not end in %s; killing it", c.name, limit)
	c.signal(unix.SIGKILL)
	<-c.stopped
}

func (c *child) signal(s os.Signal) {
	p := <-c.current
	if p != nil {
		_ = p.Signal(s)
	}
	c.current <- p
}
