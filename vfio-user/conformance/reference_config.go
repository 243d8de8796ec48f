// SPDX-License-Identifier: Apache-2.0

package conformance

import "encoding/binary"

const configSize = 4096

// Registers in config space (linux/pci_regs.h).
const (
	cfgCommand = 0x04
	cfgStatus  = 0x06
	cfgBAR0    = 0x10
	cfgROM     = 0x30
	cfgCapPtr  = 0x34
	cfgLine    = 0x3c
	cfgPin     = 0x3d

	capPM     = 0x40
	capPCIe   = 0x48
	capMSI    = 0x84
	capMSIX   = 0x98
	capVendor = 0xa4
	capEnd    = 0xb4
	extDSN    = 0x100
	extVendor = 0x10c
	extEnd    = 0x120

	cfgPMC     = capPM + 2
	cfgPMCSR   = capPM + 4
	cfgDevCap  = capPCIe + 4
	cfgDevCtl  = capPCIe + 8
	cfgLnkCtl  = capPCIe + 0x10
	cfgDevCtl2 = capPCIe + 0x28
	cfgLnkCtl2 = capPCIe + 0x30
	cfgMSICtl  = capMSI + 2
	cfgMSIXCtl = capMSIX + 2

	msixTable = 0x180000
	msixPBA   = 0x190000
)

// Values that cases look for.
const (
	refID       = 0xc0f01234
	refSerial   = 0x0123456789abcdef
	msiControl  = 0x0084 // 64-bit address, up to 4 vectors
	msixControl = refVectors - 1
)

// config is the config space of the reference device. As hardware does, and
// unlike libvfio-user, which fails such writes, it takes every write and changes
// what can be changed: QEMU prints a line for each write that fails.
type config struct {
	data, mask [configSize]byte // mask: the bits that a write changes
}

func newConfig() config {
	var c config
	put16 := func(at int, v, mask uint16) {
		binary.LittleEndian.PutUint16(c.data[at:], v)
		binary.LittleEndian.PutUint16(c.mask[at:], mask)
	}
	put32 := func(at int, v, mask uint32) {
		binary.LittleEndian.PutUint32(c.data[at:], v)
		binary.LittleEndian.PutUint32(c.mask[at:], mask)
	}
	bar := func(i int, size uint32, kind uint32) { put32(cfgBAR0+4*i, kind, ^(size - 1)) }
	put32(0, refID, 0)
	put16(cfgCommand, 0, 0x0547) // I/O, memory, master, parity, SERR, INTx disable
	put16(cfgStatus, 0x0010, 0)  // capabilities
	put32(0x08, 0xff000001, 0)
	bar(refRegs, regsSize, 0)
	bar(refMapped, mappedSize, 0)
	const wide, prefetchable = 4, 8
	put32(cfgBAR0+4*refReadOnly, wide|prefetchable, 0)
	put32(cfgBAR0+4*refAbsent, 0, ^uint32(hugeSize>>32-1))
	bar(refMemory, memorySize, prefetchable)
	bar(refSparse, sparseSize, 0)
	put32(cfgROM, 0, ^uint32(romSize-1)|1)
	c.data[cfgCapPtr], c.data[cfgPin], c.mask[cfgLine] = capPM, 1, 0xff

	chain := func(at, next int, id byte) { c.data[at], c.data[at+1] = id, byte(next) }
	chain(capPM, capPCIe, 0x01)
	put16(cfgPMC, 0x0003, 0)
	put16(cfgPMCSR, 0x0008, 0x0103) // no reset by leaving D3; state, PME enable
	chain(capPCIe, capMSI, 0x10)
	put16(capPCIe+2, 0x0002, 0)
	put32(cfgDevCap, 1<<28, 0) // FLR
	put16(cfgDevCtl, 0x2810, 0x7fff)
	put16(cfgLnkCtl, 0, 0x01c3)
	put16(cfgDevCtl2, 0, 0x041f)
	put16(cfgLnkCtl2, 1, 0x00bf)
	chain(capMSI, capMSIX, 0x05)
	put16(cfgMSICtl, msiControl, 0x0071)
	put32(capMSI+4, 0, ^uint32(3))
	put32(capMSI+8, 0, ^uint32(0))
	put16(capMSI+12, 0, 0xffff)
	chain(capMSIX, capVendor, 0x11)
	put16(cfgMSIXCtl, msixControl, 0xc000)
	put32(capMSIX+4, msixTable|refMemory, 0)
	put32(capMSIX+8, msixPBA|refMemory, 0)
	chain(capVendor, 0, 0x09)
	c.data[capVendor+2] = capEnd - capVendor
	for i := capVendor + 3; i < capEnd; i++ {
		c.mask[i] = 0xff
	}

	put32(extDSN, 0x0003|1<<16|extVendor<<20, 0)
	binary.LittleEndian.PutUint64(c.data[extDSN+4:], refSerial)
	put32(extVendor, 0x000b|1<<16, 0)
	put32(extVendor+4, 0x0001|(extEnd-extVendor)<<20, 0)
	for i := extVendor + 8; i < extEnd; i++ {
		c.mask[i] = 0xff
	}
	return c
}

// read fills p. level is that of INTx.
func (c *config) read(off uint64, p []byte, level bool) {
	n := copy(p, c.data[off:])
	if at := uint64(cfgStatus); level && at >= off && at < off+uint64(n) {
		p[at-off] |= 1 << 3 // INTx status
	}
}

// write stores p where it can be stored, and tells whether that was a
// function-level reset, after which everything is as at power-on.
func (c *config) write(off uint64, p []byte) (reset bool) {
	most := c.data[cfgMSICtl] >> 1 & 7
	for i, b := range p {
		at := int(off) + i
		old := c.data[at]
		c.data[at] = old&^c.mask[at] | b&c.mask[at]
		switch at {
		case cfgDevCtl + 1:
			reset = reset || b&0x80 != 0
		case cfgMSICtl:
			if c.data[at]>>4&7 > most { // more vectors than there are
				c.data[at] = c.data[at]&^0x70 | old&0x70
			}
		}
	}
	if reset {
		*c = newConfig()
	}
	return reset
}

func (c *config) intxDisabled() bool { return c.data[cfgCommand+1]&4 != 0 }

// sizing is what a BAR reads after ones were written to it.
func sizing(size uint64, kind uint32) uint32 { return uint32(-int64(size)) | kind }
