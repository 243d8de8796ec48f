// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrInUse: another process has the address of an uplink.
var ErrInUse = errors.New("in use by another process")

// socketFile owns the path of a unix socket, by a lock on path+".lock".
type socketFile struct {
	path string
	lock *os.File
}

// ownSocketFile takes the path and removes what a process that died left there.
func ownSocketFile(path string) (*socketFile, error) {
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, err
	}
	s := &socketFile{path, lock}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, nil
	case err == nil && info.Mode().Type() != fs.ModeSocket:
		err = fmt.Errorf("%s exists and is not a socket", path)
	case err == nil:
		err = os.Remove(path)
	}
	if err != nil {
		s.unlock()
		return nil, err
	}
	return s, nil
}

// lockFile locks the file that has the name: an owner that leaves removes it,
// perhaps after it was opened here.
func lockFile(name string) (*os.File, error) {
	for {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				err = ErrInUse
			}
			return nil, err
		}
		opened, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, err
		}
		if named, err := os.Lstat(name); err == nil && os.SameFile(opened, named) {
			return f, nil
		}
		f.Close()
	}
}

// Close removes the socket and gives the path up.
func (s *socketFile) Close() error {
	err := os.Remove(s.path)
	s.unlock()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (s *socketFile) unlock() {
	os.Remove(s.lock.Name())
	s.lock.Close()
}

// private gives a unix socket mode 0600 before bind makes its file.
func private(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }); e != nil {
		return e
	}
	return err
}
