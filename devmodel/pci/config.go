// SPDX-License-Identifier: Apache-2.0

// Package pci is the device as the PCI core sees it: configuration space with
// its capabilities, BAR sizes and MSI-X (Config), and the path from an
// interrupt cause to a vector (Interrupts).
//
// Traps:
//   - Behind vfio-user the client owns the MSI-X table, its masks and pending
//     bits: the device never sees them. It only signals vectors.
//   - QEMU reads the BARs' type bits from configuration space and their sizes
//     from the region information; it never sizes a BAR by writing ones.
//   - A function level reset arrives as a configuration write, no message.
package pci

import (
	"encoding/binary"
	"sync/atomic"
)

// Identity of the E810-C QSFP function (ice_devids.h, ICE_DEV_ID_E810C_QSFP).
// The subsystem must not be one that ice takes for an E810-T board.
const (
	VendorID    = 0x8086
	DeviceID    = 0x1592
	SubVendorID = 0x8086
	SubDeviceID = 0x0002
	revision    = 0x02
	classCode   = 0x020000
)

// BAR layout. BAR0 holds all registers and the user doorbell page at 8 MiB -
// 64 KiB (ICRDMA_DB_ADDR_OFFSET); BAR3 the MSI-X table and pending bits.
const (
	RegisterBAR  = 0
	RegisterSize = 32 << 20
	MSIXBAR      = 3
	MSIXSize     = 64 << 10
	pbaOffset    = 0x8000

	// ConfigSize is the size of a PCI Express function's configuration space.
	ConfigSize = 4096

	// Vectors is the size of the MSI-X table; it equals capability 0x43 that
	// firmware reports, and covers the wishes of all kernels up to 24 CPUs.
	Vectors = 64
)

// Offsets inside configuration space.
const (
	offCommand    = 0x04
	offStatus     = 0x06
	offBAR0       = 0x10
	offCapPtr     = 0x34
	offIntLine    = 0x3c
	offIntPin     = 0x3d
	capPM         = 0x40
	capMSIX       = 0x70
	capExpress    = 0xa0
	extAER        = 0x100
	extDSN        = 0x150
	offDevCtl     = capExpress + 8
	devCtlFLR     = 1 << 15
	commandMaster = 1 << 2
	commandMask   = 0x0546 // memory, bus master, parity, SERR, INTx disable
)

// Config is the configuration space of one function. The caller holds the
// device's control lock.
type Config struct {
	data, mask [ConfigSize]byte // mask: bits that software may change
	reset      [ConfigSize]byte
	master     atomic.Bool
	// FLR is called when software starts a function level reset; Config has
	// already reset itself.
	FLR func()
}

// NewConfig builds the space of one card. serial is its Device Serial Number,
// which must differ between cards: ice keys its shared adapter object by it
// (ice_adapter.c:ice_adapter_index).
func NewConfig(serial uint64) *Config {
	c := &Config{}
	d := c.data[:]
	le := binary.LittleEndian
	le.PutUint16(d[0:], VendorID)
	le.PutUint16(d[2:], DeviceID)
	le.PutUint16(d[offStatus:], 1<<4) // capability list
	d[8] = revision
	d[9], d[10], d[11] = classCode&0xff, classCode>>8&0xff, classCode>>16
	le.PutUint32(d[offBAR0+4*RegisterBAR:], 0xc) // 64-bit, prefetchable
	le.PutUint32(d[offBAR0+4*MSIXBAR:], 0xc)
	le.PutUint16(d[0x2c:], SubVendorID)
	le.PutUint16(d[0x2e:], SubDeviceID)
	d[offCapPtr] = capPM
	d[offIntPin] = 1

	// Power management: version 3, no reset on D3hot to D0.
	le.PutUint16(d[capPM:], 0x01|capMSIX<<8)
	le.PutUint16(d[capPM+2:], 0x0003)
	le.PutUint16(d[capPM+4:], 1<<3)

	le.PutUint16(d[capMSIX:], 0x11|capExpress<<8)
	le.PutUint16(d[capMSIX+2:], Vectors-1)
	le.PutUint32(d[capMSIX+4:], MSIXBAR)
	le.PutUint32(d[capMSIX+8:], pbaOffset|MSIXBAR)

	// PCI Express endpoint, version 2: 512-byte payloads, FLR, 16 GT/s x16.
	le.PutUint16(d[capExpress:], 0x10)
	le.PutUint16(d[capExpress+2:], 0x0002)
	le.PutUint32(d[capExpress+4:], 1<<28|1<<15|2)
	le.PutUint16(d[offDevCtl:], 0x2810)
	le.PutUint32(d[capExpress+0x0c:], 16<<4|4)
	le.PutUint16(d[capExpress+0x12:], 16<<4|4)
	le.PutUint32(d[capExpress+0x2c:], 0x1e<<0) // supported link speeds to 16 GT/s
	le.PutUint16(d[capExpress+0x30:], 4)       // target link speed

	le.PutUint32(d[extAER:], 0x0001|2<<16|extDSN<<20)
	le.PutUint32(d[extDSN:], 0x0003|1<<16)
	le.PutUint64(d[extDSN+4:], serial)
	c.reset = c.data

	m := c.mask[:]
	le.PutUint16(m[offCommand:], commandMask)
	m[0x0c] = 0xff // cache line size
	le.PutUint32(m[offBAR0+4*RegisterBAR:], ^uint32(RegisterSize-1))
	le.PutUint32(m[offBAR0+4*RegisterBAR+4:], ^uint32(0))
	le.PutUint32(m[offBAR0+4*MSIXBAR:], ^uint32(MSIXSize-1))
	le.PutUint32(m[offBAR0+4*MSIXBAR+4:], ^uint32(0))
	m[offIntLine] = 0xff
	le.PutUint16(m[capPM+4:], 0x0103)   // power state, PME enable
	le.PutUint16(m[capMSIX+2:], 3<<14)  // enable, function mask
	le.PutUint16(m[offDevCtl:], 0x7fff) // FLR reads 0
	le.PutUint16(m[capExpress+0x10:], 0x0fff)
	le.PutUint16(m[capExpress+0x28:], 0x001f)
	le.PutUint16(m[capExpress+0x30:], 0x000f)
	le.PutUint32(m[extAER+0x08:], 0x07fff030) // uncorrectable mask
	le.PutUint32(m[extAER+0x0c:], 0x07fff030) // uncorrectable severity
	le.PutUint32(m[extAER+0x14:], 0x0000f1c1) // correctable mask
	return c
}

// Read copies configuration bytes at off into p; together they lie inside
// the space.
func (c *Config) Read(off uint64, p []byte) { copy(p, c.data[off:]) }

// Write takes p at off. Read-only bits stay; nothing is refused, since a guest
// may write anything.
func (c *Config) Write(off uint64, p []byte) {
	flr := false
	for i, v := range p {
		o := int(off) + i
		c.data[o] = c.data[o]&^c.mask[o] | v&c.mask[o]
		flr = flr || o == offDevCtl+1 && v&(devCtlFLR>>8) != 0
	}
	c.master.Store(c.data[offCommand]&commandMaster != 0)
	if flr {
		// Bus mastering goes last: what it stops has ended by then.
		if c.FLR != nil {
			c.FLR()
		}
		c.Reset()
	}
}

// Reset puts the space back to its power-on contents: the BARs and COMMAND
// are 0, which QEMU relies on after a device reset.
func (c *Config) Reset() {
	c.data = c.reset
	c.master.Store(false)
}

// BusMaster tells whether the function may start DMA. It may be called
// without the control lock.
func (c *Config) BusMaster() bool { return c.master.Load() }
