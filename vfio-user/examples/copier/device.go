// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/hashicorp/go-hclog"
	vfiouser "github.com/vrnic/vrnic/vfio-user"
	"golang.org/x/sys/unix"
)

// The BARs.
const (
	barRegs  = 0 // the registers below
	barMSIX  = 1 // the MSI-X table and, half a page on, the pending bits
	barSize  = 4096
	pbaPlace = 0x800
)

// The registers, little-endian. They are accessed with their own size.
const (
	regID      = 0x00 // u32, read: "COPY"
	regControl = 0x04 // u32, write: 1 starts; read: the status bits
	regSource  = 0x08 // u64, guest physical
	regTarget  = 0x10 // u64
	regLength  = 0x18 // u32, bytes
	regErrno   = 0x1c // u32, read: why the last copy failed; 0 if it did not
)

const (
	id          = 'C' | 'O'<<8 | 'P'<<16 | 'Y'<<24
	statusBusy  = 1 << 0
	statusError = 1 << 1
)

// chunk is how much is copied at a time. It bounds how long an unmap waits.
const chunk = 64 << 10

func layout() vfiouser.Layout {
	const rw = vfiouser.RegionRead | vfiouser.RegionWrite
	l := vfiouser.Layout{Resettable: true}
	l.Regions[barRegs] = vfiouser.Region{Size: barSize, Flags: rw}
	l.Regions[barMSIX] = vfiouser.Region{Size: barSize, Flags: rw}
	l.Regions[vfiouser.RegionConfig] = vfiouser.Region{Size: configSize, Flags: rw}
	l.IRQs[vfiouser.IRQMSIX] = 1
	l.IRQs[vfiouser.IRQErr] = 1 // never raised; QEMU warns if it is not there
	return l
}

// copier is the device. Its methods are called by the server's goroutine, in the
// order of the guest's accesses; each copy has a goroutine of its own.
type copier struct {
	log hclog.Logger

	// mu guards what follows. It is held for moments only: neither for a copy nor
	// for a message to the client, which might wait for us.
	mu             sync.Mutex
	signal         func(index, vector int)
	config         config
	source, target uint64
	length, errno  uint32
	cancel         context.CancelFunc // of the copy under way; nil: none
	ranges         []dmaRange

	read, write func(ctx context.Context, iova uint64, p []byte) error // by message; set before Attach

	copies sync.WaitGroup

	// touching is held while guest memory is accessed through a descriptor, from
	// the look-up of the range on. Settle waits for it.
	touching sync.Mutex
}

type dmaRange struct {
	iova, size         uint64
	file               *os.File // nil: by message
	offset             uint64
	readable, writable bool
}

func newCopier(log hclog.Logger) *copier { return &copier{log: log, config: powerOnConfig()} }

// AttachMemory implements vfiouser.MessageDMA.
func (d *copier) AttachMemory(read, write func(ctx context.Context, iova uint64, p []byte) error) {
	d.read, d.write = read, write
}

// Attach implements vfiouser.Device.
func (d *copier) Attach(signal func(index, vector int)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.signal = signal
}

// Detach implements vfiouser.Device. The wait is short: message DMA has ended with
// the client, and a copy looks at its context after each chunk.
func (d *copier) Detach() {
	d.Reset()
	d.copies.Wait()
	d.UnmapAllDMA()
}

// Reset implements vfiouser.Device. It does not wait for the copy, which may be
// waiting for a client that waits for us; Settle takes care of the rest.
func (d *copier) Reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stop()
	d.config = powerOnConfig()
	d.source, d.target, d.length, d.errno = 0, 0, 0, 0
}

// stop ends the copy under way: nobody will hear of it. The caller has mu.
func (d *copier) stop() {
	if d.cancel != nil {
		d.cancel()
		d.cancel = nil
	}
}

// Settle implements vfiouser.Settler: after an unmap, a reset or the loss of bus
// mastering no new access starts, and here the server learns whether one is still
// under way.
func (d *copier) Settle() func() {
	if d.touching.TryLock() {
		d.touching.Unlock()
		return nil
	}
	return func() {
		d.touching.Lock()
		d.touching.Unlock() //lint:ignore SA2001 waiting is all
	}
}

// MapDMA implements vfiouser.Device.
func (d *copier) MapDMA(iova, size uint64, f *os.File, offset uint64, readable, writable bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.ranges {
		if iova <= r.iova+(r.size-1) && r.iova <= iova+(size-1) {
			if f != nil {
				f.Close()
			}
			return unix.EEXIST
		}
	}
	d.ranges = append(d.ranges, dmaRange{iova, size, f, offset, readable, writable})
	return nil
}

// UnmapDMA implements vfiouser.Device.
func (d *copier) UnmapDMA(iova, size uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var kept []dmaRange
	for _, r := range d.ranges {
		if r.iova < iova || r.iova+(r.size-1) > iova+(size-1) {
			kept = append(kept, r)
		} else if r.file != nil {
			r.file.Close() // an access under way keeps it open
		}
	}
	d.ranges = kept
	return nil
}

// UnmapAllDMA implements vfiouser.Device.
func (d *copier) UnmapAllDMA() { d.UnmapDMA(0, 0) } // 2^64 bytes

// ReadRegion implements vfiouser.Device.
func (d *copier) ReadRegion(region int, offset uint64, p []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch region {
	case vfiouser.RegionConfig:
		copy(p, d.config[offset:])
		return nil
	case barMSIX:
		return nil // the client has the table; no interrupt is pending
	}
	le := binary.LittleEndian
	switch at := (access{offset, len(p)}); at {
	case access{regID, 4}:
		le.PutUint32(p, id)
	case access{regControl, 4}:
		le.PutUint32(p, d.status())
	case access{regSource, 8}:
		le.PutUint64(p, d.source)
	case access{regTarget, 8}:
		le.PutUint64(p, d.target)
	case access{regLength, 4}:
		le.PutUint32(p, d.length)
	case access{regErrno, 4}:
		le.PutUint32(p, d.errno)
	default:
		return fmt.Errorf("no register: %w", unix.EINVAL)
	}
	return nil
}

// access is a place in BAR 0 and a size.
type access struct {
	offset uint64
	size   int
}

func (d *copier) status() uint32 {
	switch {
	case d.cancel != nil:
		return statusBusy
	case d.errno != 0:
		return statusError
	}
	return 0
}

// WriteRegion implements vfiouser.Device.
func (d *copier) WriteRegion(region int, offset uint64, p []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch region {
	case vfiouser.RegionConfig:
		d.config.write(offset, p)
		if !d.config.busMaster() {
			d.stop()
		}
		return nil
	case barMSIX:
		return nil
	}
	le := binary.LittleEndian
	switch at := (access{offset, len(p)}); at {
	case access{regControl, 4}:
		if le.Uint32(p) == 1 {
			d.start()
		}
	case access{regSource, 8}:
		d.source = le.Uint64(p)
	case access{regTarget, 8}:
		d.target = le.Uint64(p)
	case access{regLength, 4}:
		d.length = le.Uint32(p)
	default:
		return fmt.Errorf("no register: %w", unix.EINVAL)
	}
	return nil
}

// start begins a copy, if none is under way. The write that caused it is answered
// at once: the copy may need the client, who waits for that answer.
func (d *copier) start() {
	if d.cancel != nil || !d.config.busMaster() {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel, d.errno = cancel, 0
	source, target, length := d.source, d.target, uint64(d.length)
	d.copies.Go(func() {
		err := d.copy(ctx, source, target, length)
		d.finish(ctx, err)
	})
}

// finish tells the guest, unless the copy was stopped.
func (d *copier) finish(ctx context.Context, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	d.stop()
	if err != nil {
		errno := unix.EIO
		errors.As(err, &errno)
		d.errno = uint32(errno)
		d.log.Warn("copy failed", "error", err)
	}
	d.signal(vfiouser.IRQMSIX, 0)
}

func (d *copier) copy(ctx context.Context, source, target, length uint64) error {
	buf := make([]byte, min(length, chunk))
	for length > 0 {
		p := buf[:min(length, chunk)]
		if err := d.access(ctx, source, p, false); err != nil {
			return fmt.Errorf("read: %w", err)
		}
		if err := d.access(ctx, target, p, true); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		n := uint64(len(p))
		source, target, length = source+n, target+n, length-n
	}
	return nil
}

// access reads or writes guest memory, range by range.
func (d *copier) access(ctx context.Context, iova uint64, p []byte, write bool) error {
	for len(p) > 0 {
		n, err := d.touch(ctx, iova, p, write)
		if err != nil {
			return fmt.Errorf("%#x: %w", iova, err)
		}
		iova, p = iova+uint64(n), p[n:]
	}
	return nil
}

// touch does what lies in one range. Memory with a descriptor is accessed with
// pread and pwrite: slower than a mapping, but a client that truncates the file
// costs an error and no signal.
func (d *copier) touch(ctx context.Context, iova uint64, p []byte, write bool) (int, error) {
	d.touching.Lock()
	r, err := d.lookup(ctx, iova, write)
	if err != nil {
		d.touching.Unlock()
		return 0, err
	}
	at := iova - r.iova
	p = p[:min(uint64(len(p)), r.size-at)]
	if r.file != nil {
		defer d.touching.Unlock()
		if write {
			return r.file.WriteAt(p, int64(r.offset+at))
		}
		return r.file.ReadAt(p, int64(r.offset+at))
	}
	d.touching.Unlock() // Settle must not wait for a message
	if write {
		return len(p), d.write(ctx, iova, p)
	}
	return len(p), d.read(ctx, iova, p)
}

func (d *copier) lookup(ctx context.Context, iova uint64, write bool) (dmaRange, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return dmaRange{}, err // stopped: Settle has been told
	}
	for _, r := range d.ranges {
		if iova >= r.iova && iova-r.iova < r.size && (write && r.writable || !write && r.readable) {
			return r, nil
		}
	}
	return dmaRange{}, syscall.EFAULT
}
