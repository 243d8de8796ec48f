// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"slices"
)

// Layout is what a server tells its clients about the device. It is fixed for
// the device's life.
type Layout struct {
	Regions    [NumRegions]Region
	IRQs       [NumIRQs]uint32 // vectors per index: INTx, MSI, MSI-X, ERR, REQ
	Resettable bool            // the client may send DEVICE_RESET

	// MSIX says where config space puts the MSI-X structures. Only a device that
	// has MSI-X and a mappable region needs it.
	MSIX *MSIXPlace
}

// Region is one region of the device. QEMU takes the size of a BAR from here
// and its type from config space, and aborts if the size of a BAR is not a
// power of two.
//
// A BAR with a File can be mapped: the client's accesses to it, or to its Areas,
// go to the file and reach no one. The server still sends ReadRegion and
// WriteRegion for such bytes, because QEMU traps them while an INTx is up and
// always on DMA from another device: the device must serve them from the same
// file. It has a price: QEMU posts no write any more, to no region of the device.
type Region struct {
	Size  uint64 // bytes; 0 means that the region is absent
	Flags uint32 // RegionRead, RegionWrite

	// File backs the mappable part; nil means that there is none. It stays the
	// caller's and open while the server serves. Every client gets a descriptor
	// of it, with which it could also shorten the file under the device: a memfd
	// sealed with F_SEAL_SHRINK is safe.
	File   *os.File
	Offset uint64 // of the region's first byte in File
	// Areas are the mappable parts, by their offset in the region; none means all
	// of it.
	Areas []Area
}

// Area is a part of a region.
type Area struct{ Offset, Size uint64 }

// MSIXPlace is where a device has its MSI-X table, of 16 bytes a vector, and its
// pending bits (PCI Local Bus Specification 3.0, 6.8.2).
type MSIXPlace struct {
	TableBAR    int
	TableOffset uint64
	PBABAR      int
	PBAOffset   uint64
}

// maxVectors is what PCI allows (PCI Local Bus Specification 3.0, 6.8; one pin a
// function) and vfio has of the last two.
var maxVectors = [NumIRQs]uint32{IRQIntx: 1, IRQMSI: 32, IRQMSIX: 2048, IRQErr: 1, IRQReq: 1}

// maxAreas keeps the answer about a region below a page. A client maps each area
// by itself.
const maxAreas = 128

// Check finds what would make a client fail or die. A server does it before it
// serves.
func (l *Layout) Check() error {
	for i, n := range l.IRQs {
		if n > maxVectors[i] {
			return fmt.Errorf("layout: %d vectors of interrupt index %d, at most %d", n, i, maxVectors[i])
		}
	}
	for i := range l.Regions {
		r := &l.Regions[i]
		err := r.check(i)
		if err == nil && r.File != nil {
			err = l.checkMappable(i)
		}
		if err != nil {
			return fmt.Errorf("layout: region %d: %w", i, err)
		}
	}
	return nil
}

func (r *Region) check(i int) error {
	switch {
	case r.Flags&^(RegionRead|RegionWrite) != 0:
		return fmt.Errorf("flags %#x", r.Flags)
	case i <= RegionBAR5 && r.Size != 0 && bits.OnesCount64(r.Size) != 1:
		return fmt.Errorf("size %#x is not a power of two", r.Size)
	case i == RegionConfig && r.Size != 0 && r.Size != 256 && r.Size != 4096:
		return fmt.Errorf("size %#x is not that of a config space", r.Size)
	case r.File == nil && (r.Areas != nil || r.Offset != 0):
		return errors.New("areas without a file")
	}
	return nil
}

// checkMappable: each of these makes QEMU fail, trap what was to be mapped, or
// die of a signal when the guest touches it.
func (l *Layout) checkMappable(i int) error {
	r := &l.Regions[i]
	if i > RegionBAR5 {
		return errors.New("only a BAR can be mapped")
	}
	if r.Size == 0 || r.Flags != RegionRead|RegionWrite {
		return fmt.Errorf("mappable, but has size %#x, flags %#x", r.Size, r.Flags)
	}
	if len(r.Areas) > maxAreas {
		return fmt.Errorf("%d areas, at most %d", len(r.Areas), maxAreas)
	}
	info, err := r.File.Stat()
	if err != nil {
		return err
	}
	areas := slices.Clone(r.mappable())
	slices.SortFunc(areas, func(a, b Area) int {
		if a.Offset < b.Offset {
			return -1
		}
		return 1
	})
	end := uint64(0) // of the area before
	for _, a := range areas {
		switch {
		case !isPages(a.Size) || a.Offset%pageSize != 0 || r.Offset%pageSize != 0:
			return fmt.Errorf("area %#x+%#x of file offset %#x is not made of pages", a.Offset, a.Size, r.Offset)
		case a.Size > r.Size || a.Offset > r.Size-a.Size:
			return fmt.Errorf("area %#x+%#x is outside", a.Offset, a.Size)
		case a.Offset < end:
			return fmt.Errorf("area %#x+%#x overlaps another", a.Offset, a.Size)
		}
		if have := uint64(info.Size()); r.Offset > have || a.Offset+a.Size > have-r.Offset {
			return fmt.Errorf("area %#x+%#x ends behind the file, which has %#x bytes from offset %#x on", a.Offset, a.Size, info.Size(), r.Offset)
		}
		end = a.Offset + a.Size
	}
	return l.checkMSIX(i, areas)
}

// checkMSIX: QEMU serves the table itself, from another place than the file.
func (l *Layout) checkMSIX(i int, areas []Area) error {
	n := uint64(l.IRQs[IRQMSIX])
	if n == 0 {
		return nil
	}
	m := l.MSIX
	if m == nil {
		return errors.New("mappable, and nobody says where the MSI-X table is")
	}
	for _, a := range areas {
		if m.TableBAR == i && a.meets(m.TableOffset, 16*n) {
			return fmt.Errorf("area %#x+%#x has the MSI-X table in it", a.Offset, a.Size)
		}
		if m.PBABAR == i && a.meets(m.PBAOffset, (n+63)/64*8) {
			return fmt.Errorf("area %#x+%#x has the MSI-X pending bits in it", a.Offset, a.Size)
		}
	}
	return nil
}

// meets tells whether the area and [offset, offset+size) have a byte in common.
// The area is inside a region: its end does not wrap.
func (a Area) meets(offset, size uint64) bool {
	return offset < a.Offset+a.Size && (offset >= a.Offset || a.Offset-offset < size)
}

// mappable are the areas of a region with a file.
func (r *Region) mappable() []Area {
	if len(r.Areas) == 0 {
		return []Area{{0, r.Size}}
	}
	return r.Areas
}
