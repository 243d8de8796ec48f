// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Listener is a listening socket together with the lock that tells other
// servers that it is alive. Pass its UnixListener to [Server.Serve].
type Listener struct {
	*net.UnixListener
	path  string
	lock  *os.File
	close sync.Once
	err   error
}

// maxSocketPath is the room in struct sockaddr_un, less the final NUL.
const maxSocketPath = len(syscall.RawSockaddrUnix{}.Path) - 1

// Listen makes a socket of mode 0600 at path. A socket file left behind by a
// server that died is replaced; one of a live server is ErrSocketInUse. Life is
// told by a lock on path+".lock": a connection made as a probe would take the
// client's place.
func Listen(path string) (*Listener, error) {
	if path == "" {
		return nil, errors.New("listen: the socket's path is empty")
	}
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("listen on %s: path is longer than %d bytes", path, maxSocketPath)
	}
	lock, err := takeLock(path + ".lock")
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l := &Listener{path: path, lock: lock}
	if err := removeStale(path); err != nil {
		l.unlock()
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	cfg := net.ListenConfig{Control: modeBeforeBind}
	nl, err := cfg.Listen(context.Background(), "unix", path)
	if err != nil {
		l.unlock()
		return nil, err // names the operation and the path
	}
	l.UnixListener = nl.(*net.UnixListener)
	l.SetUnlinkOnClose(false) // Close does it while the lock is still held
	return l, nil
}

// Path is the path given to Listen.
func (l *Listener) Path() string { return l.path }

// Close stops listening and removes socket and lock. Further calls return what
// the first one did.
func (l *Listener) Close() error {
	l.close.Do(func() {
		l.err = errors.Join(os.Remove(l.path), l.UnixListener.Close())
		l.unlock()
	})
	return l.err
}

// unlock gives the lock up, its file first: takeLock looks at the name again
// once it has the lock.
func (l *Listener) unlock() {
	os.Remove(l.lock.Name())
	l.lock.Close()
}

// takeLock opens and locks the file, until the locked file is the one the name
// stands for: an earlier owner may have removed the one that was opened.
func takeLock(name string) (*os.File, error) {
	for {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, ErrSocketInUse
			}
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		mine, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, err
		}
		if named, err := os.Lstat(name); err == nil && os.SameFile(mine, named) {
			return f, nil
		}
		f.Close()
	}
}

func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%w and is not a socket", fs.ErrExist)
	}
	return os.Remove(path)
}

// modeBeforeBind: bind gives the new file the mode of the socket's inode
// (net/unix/af_unix.c:unix_bind_bsd), so nobody can connect in between.
func modeBeforeBind(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }); e != nil {
		return e
	}
	return err
}
