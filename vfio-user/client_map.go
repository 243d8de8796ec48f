// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
)

// RegionMap is a region and how to map it.
type RegionMap struct {
	RegionInfo
	File  *os.File // the caller's; nil if nothing can be mapped
	Areas []Area   // in the region; the place in File is RegionInfo.Offset further
}

// MapInfo asks about region i as QEMU does: once, and again with more room if the
// server has more to say.
func (c *Client) MapInfo(i int) (RegionMap, error) {
	fail := func(err error) (RegionMap, error) {
		return RegionMap{}, fmt.Errorf("%v %d: %w: %w", CmdGetRegionInfo, i, ErrProtocol, err)
	}
	k, err := c.regionInfo(i, regionInfoSize)
	if err != nil {
		return RegionMap{}, err
	}
	le := binary.LittleEndian
	if need := int(le.Uint32(k.reply)); need > regionInfoSize {
		k.close()
		if le.Uint32(k.reply[4:])&RegionCaps != 0 || need > maxDataTransfer {
			return fail(fmt.Errorf("short answer % x", k.reply))
		}
		if k, err = c.regionInfo(i, need); err != nil {
			return RegionMap{}, err
		}
		if len(k.reply) != need {
			k.close()
			return fail(fmt.Errorf("answer has %d bytes, not %d", len(k.reply), need))
		}
	}
	m := RegionMap{File: k.file, RegionInfo: RegionInfo{
		Flags: le.Uint32(k.reply[4:]), Size: le.Uint64(k.reply[16:]), Offset: le.Uint64(k.reply[24:])}}
	if (m.File != nil) != (m.Flags&RegionMmap != 0) {
		k.close()
		return fail(fmt.Errorf("flags %#x, descriptor %v", m.Flags, m.File != nil))
	}
	switch {
	case m.Flags&RegionCaps != 0:
		if m.Areas, err = parseAreas(k.reply, le.Uint32(k.reply[12:])); err != nil {
			k.close()
			return fail(err)
		}
	case m.File != nil:
		m.Areas = []Area{{0, m.Size}}
	}
	return m, nil
}

// regionInfo asks about region i with room for argsz bytes.
func (c *Client) regionInfo(i, argsz int) (*call, error) {
	k := newCall(CmdGetRegionInfo, argsz)
	k.keep = true
	req := append(words(uint32(argsz), 0, uint32(i), 0), make([]byte, 16)...)
	if err := c.do(k, req, nil); err != nil {
		return nil, err
	}
	if len(k.reply) < regionInfoSize || binary.LittleEndian.Uint32(k.reply[8:]) != uint32(i) {
		k.close()
		return nil, fmt.Errorf("%v %d: %w: payload % x", CmdGetRegionInfo, i, ErrProtocol, k.reply)
	}
	return k, nil
}

// close closes the descriptor of the reply.
func (k *call) close() {
	if k.file != nil {
		k.file.Close()
	}
}

// parseAreas follows the chain of capabilities to the list of areas.
func parseAreas(p []byte, at uint32) ([]Area, error) {
	le := binary.LittleEndian
	for at != 0 {
		if at < regionInfoSize || int(at) > len(p)-capHeaderSize {
			return nil, fmt.Errorf("capability at %d", at)
		}
		id, version, next := le.Uint16(p[at:]), le.Uint16(p[at+2:]), le.Uint32(p[at+4:])
		if id != capSparseMmap {
			if next != 0 && next <= at {
				return nil, errors.New("capabilities in a circle")
			}
			at = next
			continue
		}
		body := p[at+capHeaderSize:]
		if version != capSparseMmapVersion || len(body) < sparseHeaderSize {
			return nil, fmt.Errorf("areas of version %d in %d bytes", version, len(body))
		}
		n := le.Uint32(body)
		if body = body[sparseHeaderSize:]; uint64(n) > uint64(len(body)/areaSize) {
			return nil, fmt.Errorf("%d areas in %d bytes", n, len(body))
		}
		areas := make([]Area, n)
		for i := range areas {
			areas[i] = Area{le.Uint64(body[i*areaSize:]), le.Uint64(body[i*areaSize+8:])}
		}
		return areas, nil
	}
	return nil, errors.New("no list of areas")
}

func readFull(conn *net.UnixConn, p []byte) error {
	_, err := io.ReadFull(conn, p)
	return err
}
