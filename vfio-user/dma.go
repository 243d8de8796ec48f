// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

func (c *conn) dmaMap(m *request) (int, error) {
	p := m.payload
	if len(p) < dmaMapSize {
		return 0, fmt.Errorf("payload of %d bytes", len(p))
	}
	le := binary.LittleEndian
	argsz, flags := le.Uint32(p), le.Uint32(p[4:])
	offset, iova, size := le.Uint64(p[8:]), le.Uint64(p[16:]), le.Uint64(p[24:])
	if argsz < dmaMapSize {
		return 0, fmt.Errorf("argsz %d", argsz)
	}
	if flags&^(DMARead|DMAWrite|DMAMmap|DMAFile) != 0 {
		return 0, fmt.Errorf("flags %#x", flags)
	}
	if !isPages(size) || iova%pageSize != 0 || !fits(iova, size) {
		return 0, fmt.Errorf("range %#x+%#x", iova, size)
	}
	if c.messages != nil && c.messages.ranges.full() {
		return 0, fmt.Errorf("more than %d ranges: %w", maxDMAMaps, unix.ENOSPC)
	}
	var f *os.File
	switch len(m.fds) {
	case 0:
		if flags&(DMAMmap|DMAFile) != 0 {
			return 0, fmt.Errorf("flags %#x without a descriptor", flags)
		}
	case 1:
		if offset%pageSize != 0 || offset > math.MaxInt64 || size > math.MaxInt64-offset {
			return 0, fmt.Errorf("file range %#x+%#x", offset, size)
		}
		f = os.NewFile(uintptr(m.takeFD(0)), "guest memory")
	default:
		return 0, fmt.Errorf("%d descriptors", len(m.fds))
	}
	err := c.srv.dev.MapDMA(iova, size, f, offset, flags&DMARead != 0, flags&DMAWrite != 0)
	if err != nil {
		return 0, fmt.Errorf("range %#x+%#x: %w", iova, size, err)
	}
	if c.messages != nil {
		c.messages.ranges.add(dmaRange{iova, size, flags&DMARead != 0, flags&DMAWrite != 0})
	}
	return 0, nil
}

// dmaUnmap answers with the structure it got: Cloud Hypervisor wants it, QEMU
// takes it.
func (c *conn) dmaUnmap(m *request) (int, error) {
	p := m.payload
	if len(p) < dmaUnmapSize {
		return 0, fmt.Errorf("payload of %d bytes", len(p))
	}
	le := binary.LittleEndian
	argsz, flags, iova, size := le.Uint32(p), le.Uint32(p[4:]), le.Uint64(p[8:]), le.Uint64(p[16:])
	// argsz is also the longest reply the client takes, which has a limit.
	if argsz < dmaUnmapSize || argsz > maxDataTransfer {
		return 0, fmt.Errorf("argsz %d", argsz)
	}
	switch {
	case flags == DMAUnmapAll && iova == 0 && size == 0:
		if c.messages != nil {
			c.messages.ranges.removeAll()
		}
		c.unsettle()
		c.srv.dev.UnmapAllDMA()
	case flags != 0:
		return 0, fmt.Errorf("flags %#x, range %#x+%#x", flags, iova, size)
	case size == 0 || !fits(iova, size):
		return 0, fmt.Errorf("range %#x+%#x", iova, size)
	default:
		if c.messages != nil {
			c.messages.ranges.remove(iova, size)
		}
		c.unsettle()
		if err := c.srv.dev.UnmapDMA(iova, size); err != nil {
			return 0, fmt.Errorf("range %#x+%#x: %w", iova, size, err)
		}
	}
	out := c.payload(dmaUnmapSize)
	copy(out, p)
	le.PutUint32(out, dmaUnmapSize)
	return dmaUnmapSize, nil
}

// fits tells whether [addr, addr+size) ends at or below 2^64; size is not 0.
func fits(addr, size uint64) bool { return size-1 <= math.MaxUint64-addr }
