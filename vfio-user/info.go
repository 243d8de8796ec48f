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

// regionInfo tells about a region and hands out the file behind it. A client
// whose argsz has no room for the list of areas gets the answer without list and
// file, and asks again. It must not have the CAPS flag then: QEMU would look for
// the list.
func (c *conn) regionInfo(m *request) (int, error) {
	if err := infoArgs(m.payload, regionInfoSize); err != nil {
		return 0, err
	}
	index := binary.LittleEndian.Uint32(m.payload[8:])
	if index >= NumRegions {
		return 0, fmt.Errorf("region %d does not exist", index)
	}
	r := &c.srv.layout.Regions[index]
	var flags uint32
	if r.Size != 0 {
		flags = r.Flags & (RegionRead | RegionWrite)
	}
	size, full, capOffset := regionInfoSize, regionInfoSize, uint32(0)
	if r.File != nil && c.client.takesFD() {
		flags |= RegionMmap
		if len(r.Areas) > 0 {
			full += capHeaderSize + sparseHeaderSize + len(r.Areas)*areaSize
		}
		if binary.LittleEndian.Uint32(m.payload) >= uint32(full) {
			c.fd = r.File
			size = full
		}
		if size > regionInfoSize {
			flags |= RegionCaps
			capOffset = regionInfoSize
		}
	}
	out := c.payload(size)
	le := binary.LittleEndian
	le.PutUint32(out, uint32(full))
	le.PutUint32(out[4:], flags)
	le.PutUint32(out[8:], index)
	le.PutUint32(out[12:], capOffset)
	le.PutUint64(out[16:], r.Size)
	le.PutUint64(out[24:], r.Offset)
	if size > regionInfoSize {
		putAreas(out[regionInfoSize:], r.Areas)
	}
	return size, nil
}

// putAreas writes the only capability of a region.
func putAreas(p []byte, areas []Area) {
	le := binary.LittleEndian
	le.PutUint16(p, capSparseMmap)
	le.PutUint16(p[2:], capSparseMmapVersion)
	le.PutUint32(p[4:], 0) // no next one
	le.PutUint32(p[8:], uint32(len(areas)))
	le.PutUint32(p[12:], 0)
	for i, a := range areas {
		at := p[capHeaderSize+sparseHeaderSize+i*areaSize:]
		le.PutUint64(at, a.Offset)
		le.PutUint64(at[8:], a.Size)
	}
}

// regionIOFDs tells of descriptors that stand for parts of a region. There are
// none, and as libvfio-user the server says so with a count of 0: EINVAL would
// tell a client that its request was wrong. A region that does not exist has no
// answer.
func (c *conn) regionIOFDs(m *request) (int, error) {
	if err := infoArgs(m.payload, ioFDsSize); err != nil {
		return 0, err
	}
	le := binary.LittleEndian
	argsz, flags, index, count := le.Uint32(m.payload), le.Uint32(m.payload[4:]), le.Uint32(m.payload[8:]), le.Uint32(m.payload[12:])
	if argsz > maxDataTransfer || flags != 0 || count != 0 {
		return 0, fmt.Errorf("argsz %d, flags %#x, count %d", argsz, flags, count)
	}
	if index >= NumRegions || c.srv.layout.Regions[index].Size == 0 {
		return 0, fmt.Errorf("region %d does not exist", index)
	}
	out := c.payload(ioFDsSize)
	le.PutUint32(out, ioFDsSize)
	le.PutUint32(out[4:], 0)
	le.PutUint32(out[8:], index)
	le.PutUint32(out[12:], 0)
	return ioFDsSize, nil
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
