// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
	"golang.org/x/sys/unix"
)

// MapDMA implements vfiouser.Device.
func (r *Reference) MapDMA(iova, size uint64, f *os.File, offset uint64, readable, writable bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Maps do not overlap: the one that starts last says whether any is in the way.
	if m, ok := r.maps.Floor(iova + (size - 1)); ok && m.last() >= iova {
		closeFile(f)
		return unix.EEXIST
	}
	r.maps.Set(iova, refMap{iova, size, offset, f, readable, writable})
	return nil
}

// UnmapDMA implements vfiouser.Device.
func (r *Reference) UnmapDMA(iova, size uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var inside []refMap
	for _, m := range r.maps.From(iova) {
		if m.last() > iova+(size-1) {
			break // and all behind it
		}
		inside = append(inside, m)
	}
	for _, m := range inside {
		closeFile(m.file)
		r.abandon(m.iova, m.size)
		r.maps.Delete(m.iova)
	}
	return nil
}

// UnmapAllDMA implements vfiouser.Device.
func (r *Reference) UnmapAllDMA() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.maps.From(0) {
		closeFile(m.file)
	}
	r.maps.Clear()
	r.abandon(0, 0)
}

func closeFile(f *os.File) {
	if f != nil {
		f.Close()
	}
}

// AttachMemory implements vfiouser.MessageDMA.
func (r *Reference) AttachMemory(read, write func(ctx context.Context, iova uint64, p []byte) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read, r.write = read, write
}

// mapped accesses memory that there is a descriptor for.
func (r *Reference) mapped(iova uint64, p []byte, store bool) error {
	m, at, ok := r.find(iova, uint64(len(p)))
	if !ok || m.file == nil || (store && !m.writable) || (!store && !m.readable) {
		return unix.EFAULT
	}
	access := m.file.ReadAt
	if store {
		access = m.file.WriteAt
	}
	if _, err := access(p, int64(m.offset+at)); err != nil {
		return fmt.Errorf("guest memory: %w", err)
	}
	return nil
}

// find finds the one map that all of the range is in.
func (r *Reference) find(iova, size uint64) (m refMap, at uint64, ok bool) {
	m, ok = r.maps.Floor(iova)
	if !ok || iova > m.last() {
		return refMap{}, 0, false
	}
	at = iova - m.iova
	return m, at, size <= m.size-at
}

// memory reaches guest memory in one of the two ways.
type memory struct {
	read, write func(iova uint64, p []byte) error
}

// start runs a DMA: at once in mapped memory, on its own in memory that messages
// reach, because the answers come only when the reply to the write of the register
// is out.
func (r *Reference) start(iova, size uint64, run func(m memory, iova, size uint64) (data uint64, err error)) {
	if m, _, ok := r.find(iova, size); ok && m.file != nil {
		r.end(run(memory{
			read:  func(iova uint64, p []byte) error { return r.mapped(iova, p, false) },
			write: func(iova uint64, p []byte) error { return r.mapped(iova, p, true) },
		}, iova, size))
		return
	}
	if r.read == nil {
		r.end(0, unix.ENODEV) // a server that cannot
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	op := &operation{iova, size, cancel}
	r.running[op] = true
	read, write := r.read, r.write
	r.ended.Go(func() {
		defer cancel()
		data, err := run(memory{
			read:  func(iova uint64, p []byte) error { return read(ctx, iova, p) },
			write: func(iova uint64, p []byte) error { return write(ctx, iova, p) },
		}, iova, size)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.running, op)
		r.end(data, err)
	})
}

// end tells how a DMA ended.
func (r *Reference) end(data uint64, err error) {
	errno := syscall.Errno(0)
	switch {
	case err == nil:
		r.data = data
	case errors.Is(err, vfiouser.ErrNarrowDMA):
		errno = unix.EPROTONOSUPPORT
	case errors.Is(err, context.Canceled):
		errno = unix.ECANCELED
	case !errors.As(err, &errno):
		errno = unix.EPROTO // the answer made no sense
	}
	r.status = (r.status>>32+1)<<32 | uint64(errno)
	r.raise(vfiouser.IRQMSIX, refDone)
}

// abandon gives up DMA by message that touches the range; size 0 is all of it.
func (r *Reference) abandon(iova, size uint64) {
	for op := range r.running {
		if size == 0 || (op.iova <= iova+(size-1) && iova <= op.iova+(op.size-1)) {
			op.cancel()
		}
	}
}

func (r *Reference) storeAndLoad(m memory, iova, size uint64) (uint64, error) {
	want := pattern(int(size))
	if err := m.write(iova, want); err != nil {
		return 0, err
	}
	got := make([]byte, size)
	if err := m.read(iova, got); err != nil {
		return 0, err
	}
	if !bytes.Equal(got, want) {
		return 0, unix.EILSEQ
	}
	return 0, nil
}

func (r *Reference) load(m memory, iova, _ uint64) (uint64, error) {
	var b [8]byte
	err := m.read(iova, b[:])
	return binary.LittleEndian.Uint64(b[:]), err
}

// pattern is what regDMA stores.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(7*i + i>>8 + 3)
	}
	return b
}
