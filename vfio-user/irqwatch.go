// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// watchKey names what a client does with an eventfd: mask or unmask a vector.
type watchKey struct {
	index, vector int
	mask          bool
}

type watched struct {
	fd    int
	token int32
}

// irqWatch waits for the eventfds by which a client masks and unmasks, as KVM
// does for a level-triggered INTx. Nothing exists until the first one arrives.
//
// The eventfds are watched edge-triggered and never read: every write is an
// event of its own, and a read could block. A client that writes in a loop gets a
// part of a CPU and no more.
type irqWatch struct {
	act  func(index, vector int, mask bool)
	pace pace // of act; the goroutine's

	mu     sync.Mutex
	epoll  *os.File
	done   chan struct{} // closed by the goroutine at its end
	fds    map[watchKey]watched
	tokens map[int32]watchKey
	last   int32
}

// set watches fd, which it owns from now on, instead of what key had before;
// -1 is nothing.
func (w *irqWatch) set(key watchKey, fd int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(key)
	if fd < 0 {
		return nil
	}
	err := w.add(key, fd)
	if err != nil {
		unix.Close(fd)
	}
	return err
}

func (w *irqWatch) add(key watchKey, fd int) error {
	if w.epoll == nil {
		if err := w.start(); err != nil {
			return fmt.Errorf("watch eventfd: %w", err)
		}
	}
	w.last++
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET&0xffffffff, Fd: w.last}
	// The key must be known when the event comes, which may be at once.
	w.fds[key] = watched{fd, w.last}
	w.tokens[w.last] = key
	if err := w.ctl(unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		delete(w.fds, key)
		delete(w.tokens, w.last)
		return fmt.Errorf("watch eventfd: %w", err)
	}
	return nil
}

// drop removes fd from the epoll set before it closes it: the client has the
// same file open, so that closing alone would leave it in.
func (w *irqWatch) drop(key watchKey) {
	if old, ok := w.fds[key]; ok {
		_ = w.ctl(unix.EPOLL_CTL_DEL, old.fd, nil) // fails only for what is not in
		unix.Close(old.fd)
		delete(w.fds, key)
		delete(w.tokens, old.token)
	}
}

// off drops all of an index.
func (w *irqWatch) off(index int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range w.fds {
		if key.index == index {
			w.drop(key)
		}
	}
}

// close drops everything. No act is called after it returned.
func (w *irqWatch) close() {
	w.mu.Lock()
	for key := range w.fds {
		w.drop(key)
	}
	epoll, done := w.epoll, w.done
	w.epoll = nil
	w.mu.Unlock()
	if epoll != nil {
		epoll.Close()
		<-done
	}
}

// start makes the epoll descriptor non-blocking, which lets the runtime wait for
// it like for a socket: the goroutine holds no thread, and Close wakes it.
func (w *irqWatch) start() error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return err
	}
	w.epoll = os.NewFile(uintptr(fd), "irq watch")
	w.done = make(chan struct{})
	w.fds = make(map[watchKey]watched)
	w.tokens = make(map[int32]watchKey)
	go w.run(w.epoll, w.done)
	return nil
}

func (w *irqWatch) ctl(op, fd int, ev *unix.EpollEvent) error {
	raw, err := w.epoll.SyscallConn()
	if err != nil {
		return err
	}
	if e := raw.Control(func(epoll uintptr) { err = unix.EpollCtl(int(epoll), op, fd, ev) }); e != nil {
		return e
	}
	return err
}

func (w *irqWatch) run(epoll *os.File, done chan<- struct{}) {
	defer close(done)
	raw, err := epoll.SyscallConn()
	if err != nil {
		return
	}
	for {
		var events [16]unix.EpollEvent
		n := 0
		err := raw.Read(func(fd uintptr) bool {
			n, err = unix.EpollWait(int(fd), events[:], 0)
			return n > 0 || (err != nil && err != unix.EINTR)
		})
		if err != nil || n <= 0 {
			return
		}
		for _, ev := range events[:n] {
			w.mu.Lock()
			key, ok := w.tokens[ev.Fd]
			w.mu.Unlock()
			if ok {
				w.act(key.index, key.vector, key.mask)
			}
		}
		if pause := w.pace.pause(time.Now(), n); pause > 0 {
			time.Sleep(pause)
		}
	}
}

// pace bounds a rate to most events in a window of time.
type pace struct {
	window time.Duration
	most   int

	start time.Time // of the window
	n     int       // events in it
}

// watchPace is more than an INTx needs: 100,000 a second.
func watchPace() pace { return pace{window: time.Millisecond, most: 100} }

// pause notes that n events came and tells how long to wait before the next.
func (p *pace) pause(now time.Time, n int) time.Duration {
	if now.Sub(p.start) >= p.window {
		p.start, p.n = now, 0
	}
	p.n += n
	if p.n < p.most {
		return 0
	}
	return p.start.Add(p.window).Sub(now)
}
