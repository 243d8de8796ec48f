// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Vector is one MSI-X vector with its eventfd.
type Vector struct {
	Index int // in the MSI-X table, the number in all interrupt registers
	fd    int
	file  *os.File
}

func newVector(index int) (*Vector, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("vector %d: eventfd: %w", index, err)
	}
	return &Vector{Index: index, fd: fd, file: os.NewFile(uintptr(fd), "eventfd")}, nil
}

func (v *Vector) close() { v.file.Close() }

// Take returns how many messages came since the last Take or Wait.
func (v *Vector) Take() uint64 {
	var b [8]byte
	if n, err := unix.Read(v.fd, b[:]); n != 8 || err != nil {
		return 0
	}
	return binary.NativeEndian.Uint64(b[:])
}

// wait blocks until a message of the vector comes and returns the number of
// messages.
func (f *Function) wait(v *Vector) (n uint64, err error) {
	if f.Pace == nil {
		return v.Wait(f.ctx, f.Patience)
	}
	err = f.poll(fmt.Sprintf("vector %d", v.Index), func() bool { n = v.Take(); return n > 0 })
	return n, err
}

// Wait blocks until a message comes, the context ends or patience does, and
// returns the number of messages.
func (v *Vector) Wait(ctx context.Context, patience time.Duration) (uint64, error) {
	if n := v.Take(); n > 0 {
		return n, nil
	}
	if err := v.file.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return 0, fmt.Errorf("vector %d: %w", v.Index, err)
	}
	stop := context.AfterFunc(ctx, func() { v.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var b [8]byte
	if _, err := v.file.Read(b[:]); err != nil {
		switch {
		case ctx.Err() != nil:
			err = ctx.Err()
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = fmt.Errorf("no interrupt: %w", ErrTimeout)
		}
		return 0, fmt.Errorf("vector %d: %w", v.Index, err)
	}
	return binary.NativeEndian.Uint64(b[:]), nil
}

// addVectors gives the function n further vectors. The first call enables
// MSI-X; later ones come while it is on, as with pci_msix_alloc_irq_at.
func (f *Function) addVectors(n int) ([]*Vector, error) {
	first := len(f.vectors)
	if first+n > f.table {
		return nil, fmt.Errorf("%d vectors asked for, the table has %d", first+n, f.table)
	}
	var fds []int
	for i := range n {
		v, err := newVector(first + i)
		if err != nil {
			return nil, err
		}
		f.vectors = append(f.vectors, v)
		fds = append(fds, v.fd)
	}
	if err := f.Client.SetIRQ(msixIndex, first, fds); err != nil {
		return nil, err
	}
	if first == 0 {
		f.enableMSIX()
	}
	return f.vectors[first:], f.Err()
}

// dropVectors switches MSI-X off.
func (f *Function) dropVectors() error {
	if len(f.vectors) == 0 || f.err != nil {
		return f.err
	}
	f.setConfig16(f.msix+pciMSIXFlags, f.config16(f.msix+pciMSIXFlags)&^uint16(pciMSIXFlagsEnable))
	err := f.Client.DisableIRQs(msixIndex)
	for _, v := range f.vectors {
		v.close()
	}
	f.vectors = nil
	return err
}

// Vector returns a vector by its index, nil if the function has none.
func (f *Function) Vector(index int) *Vector {
	if index < 0 || index >= len(f.vectors) {
		return nil
	}
	return f.vectors[index]
}
