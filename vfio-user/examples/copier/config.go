// SPDX-License-Identifier: Apache-2.0

package main

import "encoding/binary"

// configSize is that of a conventional PCI device: no PCI Express capability.
const configSize = 256

// Places in config space (PCI Local Bus Specification 3.0, 6.1 and 6.8.2).
const (
	cfgVendor  = 0x00
	cfgDevice  = 0x02
	cfgCommand = 0x04
	cfgStatus  = 0x06
	cfgClass   = 0x08 // revision, programming interface, sub-class, class
	cfgBAR0    = 0x10
	cfgBAR1    = 0x14
	cfgCapPtr  = 0x34
	cfgIntLine = 0x3c
	cfgMSIX    = 0x40 // id, next, control, table, pending bits

	commandMemory    = 1 << 1
	commandMaster    = 1 << 2
	commandIntxOff   = 1 << 10
	statusCapList    = 1 << 4
	classOther       = 0x0880 // system peripheral, other
	capMSIX          = 0x11
	msixFunctionMask = 1 << 14
	msixEnable       = 1 << 15
)

// config is the device's config space. QEMU keeps the BARs and MSI-X itself and
// only tells what the guest wrote; it takes the type of a BAR from here, the size
// from the layout.
type config [configSize]byte

func powerOnConfig() config {
	var c config
	le := binary.LittleEndian
	le.PutUint16(c[cfgVendor:], 0x1234)
	le.PutUint16(c[cfgDevice:], 0xc0b1)
	le.PutUint16(c[cfgStatus:], statusCapList)
	le.PutUint32(c[cfgClass:], classOther<<16)
	c[cfgCapPtr] = cfgMSIX
	c[cfgMSIX] = capMSIX
	le.PutUint16(c[cfgMSIX+2:], 0) // one vector
	le.PutUint32(c[cfgMSIX+4:], barMSIX)
	le.PutUint32(c[cfgMSIX+8:], pbaPlace|barMSIX)
	return c
}

// writable are the bits that a guest can change: everything else is ignored, with
// success, because QEMU complains about each error.
func writable() config {
	var w config
	le := binary.LittleEndian
	le.PutUint16(w[cfgCommand:], commandMemory|commandMaster|commandIntxOff)
	le.PutUint32(w[cfgBAR0:], ^uint32(barSize-1))
	le.PutUint32(w[cfgBAR1:], ^uint32(barSize-1))
	w[cfgIntLine] = 0xff
	le.PutUint16(w[cfgMSIX+2:], msixEnable|msixFunctionMask)
	return w
}

func (c *config) write(offset uint64, p []byte) {
	mask := writable()
	for i, b := range p {
		at := offset + uint64(i)
		c[at] = c[at]&^mask[at] | b&mask[at]
	}
}

func (c *config) busMaster() bool {
	return binary.LittleEndian.Uint16(c[cfgCommand:])&commandMaster != 0
}
