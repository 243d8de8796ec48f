// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// fileSize is how long a File is.
const fileSize = 64 << 10

// open makes the descriptors to send; close closes those that are not kept.
func (r *runner) open(fds []FD) (send []int, close func(), err error) {
	var mine []int
	close = func() {
		for _, fd := range mine {
			unix.Close(fd)
		}
	}
	for _, f := range fds {
		if f.Kind == Same {
			send = append(send, r.fds[f.Name])
			continue
		}
		give, keep, err := f.open()
		if err != nil {
			close()
			return nil, nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		send = append(send, give)
		if give != keep {
			mine = append(mine, give)
		}
		r.keep(f.Name, keep)
	}
	return send, close, nil
}

// keep owns fd under this name.
func (r *runner) keep(name string, fd int) {
	if old, ok := r.fds[name]; ok {
		unix.Close(old)
	}
	r.fds[name] = fd
}

// open makes the descriptor to send and the one to keep.
func (f FD) open() (send, keep int, err error) {
	switch f.Kind {
	case Pipe:
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			return 0, 0, err
		}
		return p[1], p[0], nil
	case File:
		fd, err := unix.MemfdCreate(f.Name, unix.MFD_CLOEXEC)
		if err != nil {
			return 0, 0, err
		}
		content := make([]byte, fileSize)
		binary.LittleEndian.PutUint64(content, f.Value)
		if _, err := unix.Pwrite(fd, content, 0); err != nil {
			unix.Close(fd)
			return 0, 0, err
		}
		return fd, fd, nil
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil && f.Value != 0 {
		_, err = unix.Write(fd, binary.NativeEndian.AppendUint64(nil, f.Value))
	}
	return fd, fd, err
}

func (r *runner) check(ctx context.Context, c Check) error {
	fd, ok := r.fds[c.Name]
	switch {
	case !ok:
		return fmt.Errorf("no such descriptor")
	case c.Hangup:
		if ok, err := poll(ctx, fd); err != nil || !ok {
			return fmt.Errorf("server keeps the descriptor open (%v)", err)
		}
		return nil
	case c.Bytes != nil:
		return checkFile(fd, c)
	}
	if c.Count != 0 {
		if ok, err := poll(ctx, fd); err != nil || !ok {
			return fmt.Errorf("eventfd is not signalled (%v)", err)
		}
	}
	b := make([]byte, 8)
	_, err := unix.Read(fd, b)
	if err != nil && err != unix.EAGAIN {
		return err
	}
	if got := binary.NativeEndian.Uint64(b); got != c.Count {
		return fmt.Errorf("eventfd counted %d, want %d", got, c.Count)
	}
	return nil
}

// checkFile goes through a mapping, as a guest does: not every file that can be
// mapped can be written otherwise.
func checkFile(fd int, c Check) error {
	page := int64(unix.Getpagesize())
	start := c.Offset &^ (page - 1)
	end := c.Offset + int64(len(c.Bytes))
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Size < end {
		return fmt.Errorf("file of %d bytes, want at least %d", st.Size, end)
	}
	m, err := unix.Mmap(fd, start, int(end-start), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	defer unix.Munmap(m)
	if c.Store {
		copy(m[c.Offset-start:], c.Bytes)
	} else if got := m[c.Offset-start:]; !bytes.Equal(got, c.Bytes) {
		return fmt.Errorf("file holds %s at %#x, want %s", short(got), c.Offset, short(c.Bytes))
	}
	return nil
}
