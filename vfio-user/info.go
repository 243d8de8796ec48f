// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"encoding/binary"
	"fmt"
)

// infoArgs checks what the three information requests share: a payload that
// holds the structure, and argsz, the longest reply the client takes.
func infoArgs(p []byte, size int) error {
	if len(p) < size {
		return fmt.Errorf("payload of %d bytes", len(p))
	}
	if argsz := binary.LittleEndian.Uint32(p); argsz < uint32(size) {
		return fmt.Errorf("argsz %d", argsz)
	}
	return nil
}

func (c *conn) deviceInfo(m *request) (int, error) {
	if err := infoArgs(m.payload, deviceInfoSize); err != nil {
		return 0, err
	}
	flags := DevicePCI
	if c.srv.layout.Resettable {
		flags |= DeviceReset
	}
	out := c.payload(deviceInfoSize)
	binary.LittleEndian.PutUint32(out, deviceInfoSize)
	binary.LittleEndian.PutUint32(out[4:], flags)
	binary.LittleEndian.PutUint32(out[8:], NumRegions)
	binary.LittleEndian.PutUint32(out[12:], NumIRQs)
	return deviceInfoSize, nil
}

func (c *conn) regionInfo(m *request) (int, error) {
	if err := infoArgs(m.payload, regionInfoSize); err != nil {
		return 0, err
	}
	index := binary.LittleEndian.Uint32(m.payload[8:])
	if index >= NumRegions {
		return 0, fmt.Errorf("region %d does not exist", index)
	}
	r := c.srv.layout.Regions[index]
	if r.Size == 0 {
		r.Flags = 0
	}
	out := c.payload(regionInfoSize)
	clear(out) // no capabilities, no file behind the region
	binary.LittleEndian.PutUint32(out, regionInfoSize)
	binary.LittleEndian.PutUint32(out[4:], r.Flags&(RegionRead|RegionWrite))
	binary.LittleEndian.PutUint32(out[8:], index)
	binary.LittleEndian.PutUint64(out[16:], r.Size)
	return regionInfoSize, nil
}

func (c *conn) irqInfo(m *request) (int, error) {
	if err := infoArgs(m.payload, irqInfoSize); err != nil {
		return 0, err
	}
	index := binary.LittleEndian.Uint32(m.payload[8:])
	if index >= NumIRQs {
		return 0, fmt.Errorf("index %d does not exist", index)
	}
	// Never NORESIZE: it makes QEMU switch MSI-X off to add a vector.
	flags := IRQEventFD
	if index == IRQIntx {
		flags |= IRQMaskable | IRQAutomasked
	}
	out := c.payload(irqInfoSize)
	binary.LittleEndian.PutUint32(out, irqInfoSize)
	binary.LittleEndian.PutUint32(out[4:], flags)
	binary.LittleEndian.PutUint32(out[8:], index)
	binary.LittleEndian.PutUint32(out[12:], c.srv.layout.IRQs[index])
	return irqInfoSize, nil
}
