// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"encoding/binary"
	"fmt"
	"net"
)

// access is the structure in front of the data of a region access.
type access struct {
	offset uint64
	region uint32
	count  uint32
}

func parseAccess(p []byte) access {
	return access{
		offset: binary.LittleEndian.Uint64(p),
		region: binary.LittleEndian.Uint32(p[8:]),
		count:  binary.LittleEndian.Uint32(p[12:]),
	}
}

func (a access) put(p []byte) {
	binary.LittleEndian.PutUint64(p, a.offset)
	binary.LittleEndian.PutUint32(p[8:], a.region)
	binary.LittleEndian.PutUint32(p[12:], a.count)
}

// check finds out whether the device allows the access. right is RegionRead or
// RegionWrite.
func (a access) check(l *Layout, right uint32) error {
	if a.region >= NumRegions {
		return fmt.Errorf("region %d does not exist", a.region)
	}
	r := &l.Regions[a.region]
	if r.Size == 0 || r.Flags&right == 0 {
		return fmt.Errorf("region %d has flags %#x, size %#x", a.region, r.Flags, r.Size)
	}
	if a.count > maxDataTransfer || uint64(a.count) > r.Size || a.offset > r.Size-uint64(a.count) {
		return fmt.Errorf("%#x+%#x of region %d, which has %#x", a.offset, a.count, a.region, r.Size)
	}
	return nil
}

func (c *conn) regionRead(m *request) (int, error) {
	if len(m.payload) != regionHeaderSize {
		return 0, fmt.Errorf("payload of %d bytes", len(m.payload))
	}
	a := parseAccess(m.payload)
	if err := a.check(&c.srv.layout, RegionRead); err != nil {
		return 0, err
	}
	out := c.payload(regionHeaderSize + int(a.count))
	a.put(out)
	if data := out[regionHeaderSize:]; len(data) > 0 {
		clear(data) // never tell a client what an earlier message held
		if err := c.srv.dev.ReadRegion(int(a.region), a.offset, data); err != nil {
			return 0, fmt.Errorf("%#x+%d of region %d: %w", a.offset, a.count, a.region, err)
		}
	}
	return len(out), nil
}

func (c *conn) regionWrite(m *request) (int, error) {
	if len(m.payload) < regionHeaderSize {
		return 0, fmt.Errorf("payload of %d bytes", len(m.payload))
	}
	a, data := parseAccess(m.payload), m.payload[regionHeaderSize:]
	if uint64(len(data)) != uint64(a.count) {
		return 0, fmt.Errorf("%d bytes of data, count %d", len(data), a.count)
	}
	if err := c.write(a, data); err != nil {
		return 0, err
	}
	a.put(c.payload(regionHeaderSize))
	return regionHeaderSize, nil
}

func (c *conn) write(a access, data []byte) error {
	if err := a.check(&c.srv.layout, RegionWrite); err != nil {
		return err
	}
	if len(data) == 0 {
		return nil
	}
	if a.region == RegionConfig {
		c.unsettle()
	}
	if err := c.srv.dev.WriteRegion(int(a.region), a.offset, data); err != nil {
		return fmt.Errorf("%#x+%d of region %d: %w", a.offset, a.count, a.region, err)
	}
	return nil
}

// regionWriteMulti does several small writes, each as if it had come alone: one
// that fails does not stop the others. The first failure is the reply, if the
// client wants one; QEMU does not. There may be tens of thousands of them, so the
// end of the connection need not wait for the last.
func (c *conn) regionWriteMulti(m *request) (int, error) {
	if !c.answered.writeMultiple {
		return 0, fmt.Errorf("write_multiple was not agreed on")
	}
	if len(m.payload) < multiHeaderSize {
		return 0, fmt.Errorf("payload of %d bytes", len(m.payload))
	}
	n, entries := binary.LittleEndian.Uint64(m.payload), m.payload[multiHeaderSize:]
	if len(entries)%multiEntrySize != 0 || n != uint64(len(entries)/multiEntrySize) {
		return 0, fmt.Errorf("%d writes in %d bytes", n, len(entries))
	}
	var first error
	for ; len(entries) > 0; entries = entries[multiEntrySize:] {
		if c.sock.ended.Load() {
			return 0, net.ErrClosed
		}
		a := parseAccess(entries)
		var err error
		if a.count > multiEntryData {
			err = fmt.Errorf("count %d in a multiple write", a.count)
		} else {
			err = c.write(a, entries[regionHeaderSize:][:a.count])
		}
		if first == nil {
			first = err
		}
	}
	if first != nil {
		return 0, first
	}
	binary.LittleEndian.PutUint64(c.payload(multiHeaderSize), n)
	return multiHeaderSize, nil
}
