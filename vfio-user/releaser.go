// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxReleasers bounds the threads that a client can hold in a close.
	maxReleasers = 8
	// maxUnreleased is how many descriptors may wait for those before whoever
	// brings more has to wait.
	maxUnreleased = 256
	// releaseTime is how long that may take, and how long the end of Serve waits
	// for the last.
	releaseTime = time.Second
)

// releaser closes what clients sent and nobody wanted. Such a close can take for
// ever: that of a TCP socket with data to send, of a file whose file system is the
// client's own process, of a socket in whose queue such a descriptor lies. So it
// happens on goroutines for which nobody waits.
type releaser struct {
	mu      sync.Mutex
	queue   []func()
	workers int
	idle    chan struct{} // closed when the last of the workers ends
	space   chan struct{} // closed when there is room; nil if nobody waits for it
}

// descriptor closes fd.
func (r *releaser) descriptor(fd int) {
	r.add(func() {
		// A socket is closed in the background then. It fails for all else.
		_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{})
		unix.Close(fd)
	})
}

// connection closes a socket with what may lie in its queue.
func (r *releaser) connection(sock *net.UnixConn) { r.add(func() { sock.Close() }) }

func (r *releaser) add(release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(r.queue, release)
	if r.workers == maxReleasers {
		return
	}
	if r.workers == 0 {
		r.idle = make(chan struct{})
	}
	r.workers++
	go r.run()
}

func (r *releaser) run() {
	for release := r.next(); release != nil; release = r.next() {
		release()
	}
}

// next takes from the queue. With nothing there the calling worker is none any
// more.
func (r *releaser) next() func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		if r.workers--; r.workers == 0 {
			close(r.idle)
		}
		return nil
	}
	release := r.queue[0]
	r.queue = r.queue[1:]
	if r.space != nil && len(r.queue) < maxUnreleased {
		close(r.space)
		r.space = nil
	}
	return release
}

// room waits for room for more, but not for long. It tells whether there is some.
func (r *releaser) room() bool {
	r.mu.Lock()
	if len(r.queue) < maxUnreleased {
		r.mu.Unlock()
		return true
	}
	if r.space == nil {
		r.space = make(chan struct{})
	}
	space := r.space
	r.mu.Unlock()
	return soon(space)
}

// wait waits until all is closed, but not for long. It tells whether that is so.
func (r *releaser) wait() bool {
	r.mu.Lock()
	idle, busy := r.idle, r.workers > 0
	r.mu.Unlock()
	return !busy || soon(idle)
}

// soon tells whether c is closed within releaseTime.
func soon(c <-chan struct{}) bool {
	timeout := time.NewTimer(releaseTime)
	defer timeout.Stop()
	select {
	case <-c:
		return true
	case <-timeout.C:
		return false
	}
}
