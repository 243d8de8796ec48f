// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
	"github.com/vrnic/vrnic/vfio-user/internal/byaddr"
	"golang.org/x/sys/unix"
)

// Regions of the reference device.
const (
	refRegs     = 0 // 4 KiB: memory, and the registers below
	refMapped   = 1 // 4 KiB of memory, all of it mappable
	refReadOnly = 2 // 8 GiB that cannot be written, all zero; a 64-bit BAR
	refAbsent   = 3 // the other half of that BAR
	refMemory   = 4 // 2 MiB of memory; the MSI-X structures are there
	refSparse   = 5 // 32 KiB of memory, two areas of it mappable
	refROM      = 6 // 2 KiB
	refVGA      = 8 // absent
	refVectors  = 2048
)

// The mappable regions in their file.
const (
	mappedAt   = 0x1000
	sparseAt   = 0x8000
	mappedSize = 0x1000
	sparseSize = 0x8000
	romSize    = 2048
	hugeSize   = 8 << 30
	memorySize = 2 << 20
	regsSize   = 4096
)

// sparseAreas are what libvfio-user's own test has.
var sparseAreas = [...]vfiouser.Area{{Offset: 0x2000, Size: 0x1000}, {Offset: 0x4000, Size: 0x2000}}

// Registers of the reference device, in region 0. Reads have 4 or 8 bytes.
const (
	regFire    = 0xf00 // write: raise this MSI-X vector
	regFireINT = 0xf08 // write: raise INTx
	regMaps    = 0xf10 // read: DMA maps
	regResets  = 0xf18 // read: DEVICE_RESETs since the client came
	regMasked  = 0xf20 // read: the last mask change, 1<<31 | index<<16 | vector if masked
	regAddress = 0xf28 // write: the address for regFetch
	regFetch   = 0xf30 // read: 8 bytes of guest memory at regAddress; EFAULT if there are none
	regLevel   = 0xf38 // write: the level of INTx, which is raised while it is 1
	regDMA     = 0xf40 // write: store regLength bytes of a pattern at this address, and read them back
	regDMARead = 0xf48 // write: read 8 bytes from this address into regDMAData
	regLength  = 0xf58 // write: bytes for regDMA, 64 at first
	regStatus  = 0xf60 // read: errno of the DMA that ended last | how many have ended<<32
	regDMAData = 0xf68 // read: see regDMARead
	regBusy    = 0xf70 // write: take this many ms, or until 0 is written, for what ends DMA
	regFLRs    = 0xf78 // read: function-level resets since the client came
)

// refDone is the MSI-X vector raised when a DMA has ended.
const refDone = 9

// Reference is the device that the cases know: memory, capabilities, and
// registers that let a client see what reached it. It accesses guest memory
// through the descriptor of a map if there is one, and else by messages.
type Reference struct {
	mu      sync.Mutex
	signal  func(index, vector int)
	mem     map[int][]byte
	backing *os.File // of the mappable regions, once Layout was called
	shared  []byte   // its mapping
	config  config

	maps            byaddr.Map[refMap]
	resets, flrs    uint64
	masked          uint64
	address, length uint64
	level           bool
	busy            chan struct{} // closed when the device is quiet; nil: it is
	busyTime        time.Duration

	read, write  func(ctx context.Context, iova uint64, p []byte) error
	running      map[*operation]bool
	ended        sync.WaitGroup
	status, data uint64
}

type refMap struct {
	iova, size, offset uint64
	file               *os.File
	readable, writable bool
}

func (m refMap) last() uint64 { return m.iova + (m.size - 1) }

// operation is a DMA under way.
type operation struct {
	iova, size uint64
	cancel     context.CancelFunc
}

// NewReference makes a reference device. It has nothing to close unless Layout
// is called.
func NewReference() *Reference {
	r := &Reference{running: make(map[*operation]bool)}
	r.mem = map[int][]byte{
		refRegs: make([]byte, regsSize), refMapped: make([]byte, mappedSize), refMemory: make([]byte, memorySize),
		refSparse: make([]byte, sparseSize), refROM: make([]byte, romSize),
	}
	r.powerOn()
	return r
}

// ReferenceLayout is the layout of the device without mappable regions.
func ReferenceLayout() vfiouser.Layout {
	const rw = vfiouser.RegionRead | vfiouser.RegionWrite
	l := vfiouser.Layout{
		IRQs:       [vfiouser.NumIRQs]uint32{vfiouser.IRQIntx: 1, vfiouser.IRQMSIX: refVectors, vfiouser.IRQErr: 1, vfiouser.IRQReq: 1},
		MSIX:       &vfiouser.MSIXPlace{TableBAR: refMemory, TableOffset: msixTable, PBABAR: refMemory, PBAOffset: msixPBA},
		Resettable: true,
	}
	l.Regions[refRegs] = vfiouser.Region{Size: regsSize, Flags: rw}
	l.Regions[refMapped] = vfiouser.Region{Size: mappedSize, Flags: rw}
	l.Regions[refReadOnly] = vfiouser.Region{Size: hugeSize, Flags: vfiouser.RegionRead}
	l.Regions[refAbsent] = vfiouser.Region{Flags: rw} // no size: the flags mean nothing
	l.Regions[refMemory] = vfiouser.Region{Size: memorySize, Flags: rw}
	l.Regions[refSparse] = vfiouser.Region{Size: sparseSize, Flags: rw}
	l.Regions[refROM] = vfiouser.Region{Size: romSize, Flags: vfiouser.RegionRead}
	l.Regions[vfiouser.RegionConfig] = vfiouser.Region{Size: configSize, Flags: rw}
	return l
}

// Layout is the layout to serve the device with, mappable regions and all. It is
// called before the device is served; Close gives back what it took.
func (r *Reference) Layout() (vfiouser.Layout, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := ReferenceLayout()
	if r.backing == nil {
		fd, err := unix.MemfdCreate("reference", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			return l, fmt.Errorf("reference device: %w", err)
		}
		f := os.NewFile(uintptr(fd), "reference")
		m, err := mapBacking(f)
		if err != nil {
			f.Close()
			return l, fmt.Errorf("reference device: %w", err)
		}
		r.backing, r.shared = f, m
		r.mem[refMapped], r.mem[refSparse] = m[mappedAt:][:mappedSize], m[sparseAt:][:sparseSize]
	}
	whole, sparse := &l.Regions[refMapped], &l.Regions[refSparse]
	whole.File, whole.Offset = r.backing, mappedAt
	sparse.File, sparse.Offset, sparse.Areas = r.backing, sparseAt, sparseAreas[:]
	return l, nil
}

// mapBacking seals the file, or a client could take pages of the mapping away.
func mapBacking(f *os.File) ([]byte, error) {
	if err := f.Truncate(sparseAt + sparseSize); err != nil {
		return nil, err
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL); err != nil {
		return nil, err
	}
	return unix.Mmap(int(f.Fd()), 0, sparseAt+sparseSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// Close gives back what Layout took. Nobody may serve the device any more.
func (r *Reference) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.backing == nil {
		return nil
	}
	r.mem[refMapped], r.mem[refSparse] = make([]byte, mappedSize), make([]byte, sparseSize)
	err := errors.Join(unix.Munmap(r.shared), r.backing.Close())
	r.backing, r.shared = nil, nil
	return err
}

func (r *Reference) powerOn() {
	for _, m := range r.mem {
		clear(m)
	}
	copy(r.mem[refROM], romStart)
	r.config = newConfig()
	r.maps.Clear()
	r.resets, r.flrs, r.masked = 0, 0, 0
	r.address, r.length = 0, 64
	r.level = false
	r.status, r.data = 0, 0
}

// romStart is the signature of an expansion ROM (PCI Firmware Specification, 5.1).
const romStart = "\x55\xaa\x04"

// Attach implements vfiouser.Device.
func (r *Reference) Attach(signal func(index, vector int)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.signal = signal
}

// Detach implements vfiouser.Device.
func (r *Reference) Detach() {
	r.mu.Lock()
	r.signal = nil
	r.abandon(0, 0)
	r.quiet()
	r.mu.Unlock()
	r.ended.Wait()
	r.UnmapAllDMA()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.powerOn()
}

// Signal raises an interrupt from outside, if a client is there.
func (r *Reference) Signal(index, vector int) {
	r.mu.Lock()
	signal := r.signal
	r.mu.Unlock()
	if signal != nil {
		signal(index, vector)
	}
}

// raise is Signal with the lock held.
func (r *Reference) raise(index, vector int) {
	if r.signal != nil {
		r.signal(index, vector)
	}
}

// ReadRegion implements vfiouser.Device.
func (r *Reference) ReadRegion(region int, offset uint64, p []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case region == vfiouser.RegionConfig:
		r.config.read(offset, p, r.level)
		return nil
	case region != refRegs || offset < regFire:
		if m := r.mem[region]; offset < uint64(len(m)) {
			copy(p, m[offset:])
		}
		return nil
	}
	var v uint64
	switch offset {
	case regMaps:
		v = uint64(r.maps.Len())
	case regResets:
		v = r.resets
	case regFLRs:
		v = r.flrs
	case regMasked:
		v = r.masked
	case regStatus:
		v = r.status
	case regDMAData:
		v = r.data
	case regFetch:
		if len(p) != 8 {
			return unix.EINVAL
		}
		return r.mapped(r.address, p, false)
	default:
		return unix.EINVAL
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	copy(p, b[:])
	return nil
}

// WriteRegion implements vfiouser.Device.
func (r *Reference) WriteRegion(region int, offset uint64, p []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case region == vfiouser.RegionConfig:
		if r.config.write(offset, p) {
			r.flrs++
			r.stop()
		}
		r.assert()
		return nil
	case region != refRegs || offset < regFire:
		copy(r.mem[region][offset:], p)
		return nil
	}
	var b [8]byte
	if copy(b[:], p) < len(p) {
		return unix.EINVAL
	}
	v := binary.LittleEndian.Uint64(b[:])
	switch offset {
	case regFire:
		r.raise(vfiouser.IRQMSIX, int(v))
	case regFireINT:
		r.raise(vfiouser.IRQIntx, int(v))
	case regLevel:
		r.level = v != 0
		r.assert()
	case regAddress:
		r.address = v
	case regLength:
		if v > memorySize {
			return unix.EINVAL
		}
		r.length = v
	case regDMA:
		r.start(v, r.length, r.storeAndLoad)
	case regDMARead:
		r.start(v, 8, r.load)
	case regBusy:
		r.quiet()
		if v != 0 {
			r.busy, r.busyTime = make(chan struct{}), time.Duration(min(v, 10_000))*time.Millisecond
		}
	default:
		return unix.EINVAL
	}
	return nil
}

// assert raises INTx if its level is up and COMMAND allows it.
func (r *Reference) assert() {
	if r.level && !r.config.intxDisabled() {
		r.raise(vfiouser.IRQIntx, 0)
	}
}

// Reset implements vfiouser.Device.
func (r *Reference) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resets++
	r.config = newConfig()
	r.stop()
}

// stop is what every reset ends.
func (r *Reference) stop() {
	r.level = false
	r.abandon(0, 0)
}

// quiet ends the time for which the device is busy.
func (r *Reference) quiet() {
	if r.busy != nil {
		close(r.busy)
		r.busy = nil
	}
}

// Settle implements vfiouser.Settler.
func (r *Reference) Settle() (wait func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	busy, limit := r.busy, r.busyTime
	if busy == nil {
		return nil
	}
	return func() {
		t := time.NewTimer(limit)
		defer t.Stop()
		select {
		case <-busy:
		case <-t.C:
		}
	}
}

// IRQMasked implements vfiouser.IRQMasker.
func (r *Reference) IRQMasked(index, vector int, masked bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.masked = uint64(index)<<16 | uint64(vector)
	if masked {
		r.masked |= 1 << 31
	} else if index == vfiouser.IRQIntx {
		r.assert()
	}
}
