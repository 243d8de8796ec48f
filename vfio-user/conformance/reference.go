// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
	"golang.org/x/sys/unix"
)

// Regions of the reference device.
const (
	refRegs     = 0 // 4 KiB: memory, and the registers below
	refReadOnly = 2 // 4 KiB that cannot be written
	refMemory   = 4 // 2 MiB of memory
	refAbsent   = 1
	refVectors  = 2048
)

// Registers of the reference device, in region 0. Reads have 4 or 8 bytes.
const (
	regFire    = 0xf00 // write: raise this MSI-X vector
	regFireINT = 0xf08 // write: raise INTx
	regMaps    = 0xf10 // read: DMA maps
	regResets  = 0xf18 // read: DEVICE_RESETs since the client came
	regMasked  = 0xf20 // read: the last mask change, 1<<31 | index<<16 | vector if masked
	regAddress = 0xf28 // write: the address for regFetch
	regFetch   = 0xf30 // read: 8 bytes of guest memory at regAddress; EFAULT if there are none
)

// Reference is the device that the cases know. It is a plain memory with a few
// registers that let a client see what reached it.
type Reference struct {
	mu      sync.Mutex
	signal  func(index, vector int)
	mem     map[int][]byte
	maps    map[uint64]refMap
	resets  uint64
	masked  uint64
	address uint64
}

type refMap struct {
	size, offset uint64
	file         *os.File
	readable     bool
}

// NewReference makes a reference device.
func NewReference() *Reference {
	r := &Reference{}
	r.powerOn()
	return r
}

// ReferenceLayout is the layout to serve it with.
func ReferenceLayout() vfiouser.Layout {
	const rw = vfiouser.RegionRead | vfiouser.RegionWrite
	l := vfiouser.Layout{
		IRQs:       [vfiouser.NumIRQs]uint32{vfiouser.IRQIntx: 1, vfiouser.IRQMSIX: refVectors, vfiouser.IRQErr: 1, vfiouser.IRQReq: 1},
		Resettable: true,
	}
	l.Regions[refRegs] = vfiouser.Region{Size: 4096, Flags: rw}
	l.Regions[refAbsent] = vfiouser.Region{Flags: rw} // no size: the flags mean nothing
	l.Regions[refReadOnly] = vfiouser.Region{Size: 4096, Flags: vfiouser.RegionRead}
	l.Regions[refMemory] = vfiouser.Region{Size: 2 << 20, Flags: rw}
	l.Regions[vfiouser.RegionConfig] = vfiouser.Region{Size: 4096, Flags: rw}
	return l
}

func (r *Reference) powerOn() {
	r.mem = make(map[int][]byte)
	for i, region := range ReferenceLayout().Regions {
		r.mem[i] = make([]byte, region.Size)
	}
	r.maps = make(map[uint64]refMap)
	r.resets, r.masked, r.address = 0, 0, 0
}

// Attach implements vfiouser.Device.
func (r *Reference) Attach(signal func(index, vector int)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.signal = signal
}

// Detach implements vfiouser.Device.
func (r *Reference) Detach() {
	r.UnmapAllDMA()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.signal = nil
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

// ReadRegion implements vfiouser.Device.
func (r *Reference) ReadRegion(region int, offset uint64, p []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if region != refRegs || offset < regFire {
		copy(p, r.mem[region][offset:])
		return nil
	}
	var v uint64
	switch offset {
	case regMaps:
		v = uint64(len(r.maps))
	case regResets:
		v = r.resets
	case regMasked:
		v = r.masked
	case regFetch:
		if len(p) != 8 {
			return unix.EINVAL
		}
		return r.fetch(p)
	default:
		return unix.EINVAL
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	copy(p, b[:])
	return nil
}

func (r *Reference) fetch(p []byte) error {
	for iova, m := range r.maps {
		if at := r.address - iova; r.address >= iova && at < m.size && m.file != nil && m.readable {
			if _, err := m.file.ReadAt(p, int64(m.offset+at)); err != nil {
				return fmt.Errorf("fetch: %w", err)
			}
			return nil
		}
	}
	return unix.EFAULT
}

// WriteRegion implements vfiouser.Device.
func (r *Reference) WriteRegion(region int, offset uint64, p []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if region != refRegs || offset < regFire {
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
		r.signal(vfiouser.IRQMSIX, int(v))
	case regFireINT:
		r.signal(vfiouser.IRQIntx, int(v))
	case regAddress:
		r.address = v
	default:
		return unix.EINVAL
	}
	return nil
}

// MapDMA implements vfiouser.Device.
func (r *Reference) MapDMA(iova, size uint64, f *os.File, offset uint64, readable, _ bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at, m := range r.maps {
		if iova <= at+(m.size-1) && at <= iova+(size-1) {
			closeFile(f)
			return unix.EEXIST
		}
	}
	r.maps[iova] = refMap{size, offset, f, readable}
	return nil
}

// UnmapDMA implements vfiouser.Device.
func (r *Reference) UnmapDMA(iova, size uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at, m := range r.maps {
		if at >= iova && at+(m.size-1) <= iova+(size-1) {
			closeFile(m.file)
			delete(r.maps, at)
		}
	}
	return nil
}

// UnmapAllDMA implements vfiouser.Device.
func (r *Reference) UnmapAllDMA() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.maps {
		closeFile(m.file)
	}
	clear(r.maps)
}

// Reset implements vfiouser.Device.
func (r *Reference) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resets++
}

// IRQMasked implements vfiouser.IRQMasker.
func (r *Reference) IRQMasked(index, vector int, masked bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.masked = uint64(index)<<16 | uint64(vector)
	if masked {
		r.masked |= 1 << 31
	}
}

func closeFile(f *os.File) {
	if f != nil {
		f.Close()
	}
}
