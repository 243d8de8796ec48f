// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"encoding/binary"
	"fmt"
)

// ReadRegion fills p from the region at off.
func (c *Client) ReadRegion(region int, off uint64, p []byte) error {
	c.access.Lock()
	defer c.access.Unlock()
	a := access{off, uint32(region), uint32(len(p))}
	var req [regionHeaderSize]byte
	a.put(req[:])
	reply, err := c.call(CmdRegionRead, req[:], nil, regionHeaderSize+len(p))
	if err != nil {
		return err
	}
	if len(reply) != regionHeaderSize+len(p) || parseAccess(reply) != a {
		return fmt.Errorf("%v: %w: asked for %+v, got %d bytes", CmdRegionRead, ErrProtocol, a, len(reply))
	}
	copy(p, reply[regionHeaderSize:])
	return nil
}

// WriteRegion stores p in the region at off and waits until it is done.
func (c *Client) WriteRegion(region int, off uint64, p []byte) error {
	c.access.Lock()
	defer c.access.Unlock()
	a := access{off, uint32(region), uint32(len(p))}
	reply, err := c.call(CmdRegionWrite, a.request(p), nil, regionHeaderSize)
	if err != nil {
		return err
	}
	if len(reply) != regionHeaderSize || parseAccess(reply) != a {
		return fmt.Errorf("%v: %w: wrote %+v, got % x", CmdRegionWrite, ErrProtocol, a, reply)
	}
	return nil
}

// PostRegion stores p in the region at off and does not wait: whether it worked
// remains unknown, but what is sent later takes effect later. QEMU writes memory
// BARs like that.
func (c *Client) PostRegion(region int, off uint64, p []byte) error {
	return c.post(CmdRegionWrite, access{off, uint32(region), uint32(len(p))}.request(p))
}

func (a access) request(data []byte) []byte {
	req := make([]byte, regionHeaderSize, regionHeaderSize+len(data))
	a.put(req)
	return append(req, data...)
}

// RegionWriteOp is one write of PostRegions.
type RegionWriteOp struct {
	Region int
	Offset uint64
	Data   []byte // at most 8 bytes
}

// PostRegions posts several writes in as few messages as QEMU would under
// pressure: up to 200 in one, if the server agreed to write_multiple.
func (c *Client) PostRegions(writes []RegionWriteOp) error {
	for len(writes) > 0 {
		if !c.server.writeMultiple {
			w := writes[0]
			if err := c.PostRegion(w.Region, w.Offset, w.Data); err != nil {
				return err
			}
			writes = writes[1:]
			continue
		}
		n := min(len(writes), multiMax)
		req := make([]byte, multiHeaderSize+n*multiEntrySize)
		binary.LittleEndian.PutUint64(req, uint64(n))
		for i, w := range writes[:n] {
			if len(w.Data) > multiEntryData {
				return fmt.Errorf("%v: %d bytes in one write, at most %d", CmdRegionWriteMulti, len(w.Data), multiEntryData)
			}
			entry := req[multiHeaderSize+i*multiEntrySize:]
			access{w.Offset, uint32(w.Region), uint32(len(w.Data))}.put(entry)
			copy(entry[regionHeaderSize:], w.Data)
		}
		if err := c.post(CmdRegionWriteMulti, req); err != nil {
			return err
		}
		writes = writes[n:]
	}
	return nil
}

// Read32 reads a little-endian register.
func (c *Client) Read32(region int, off uint64) (uint32, error) {
	var b [4]byte
	err := c.ReadRegion(region, off, b[:])
	return binary.LittleEndian.Uint32(b[:]), err
}

// Read64 reads a little-endian register.
func (c *Client) Read64(region int, off uint64) (uint64, error) {
	var b [8]byte
	err := c.ReadRegion(region, off, b[:])
	return binary.LittleEndian.Uint64(b[:]), err
}

// Write32 writes a little-endian register and waits until it is done. Post32 is
// what a driver's writel comes to.
func (c *Client) Write32(region int, off uint64, v uint32) error {
	return c.WriteRegion(region, off, binary.LittleEndian.AppendUint32(nil, v))
}

// Write64 writes a little-endian register and waits until it is done.
func (c *Client) Write64(region int, off uint64, v uint64) error {
	return c.WriteRegion(region, off, binary.LittleEndian.AppendUint64(nil, v))
}

// Post32 writes a little-endian register and does not wait.
func (c *Client) Post32(region int, off uint64, v uint32) error {
	return c.PostRegion(region, off, binary.LittleEndian.AppendUint32(nil, v))
}
