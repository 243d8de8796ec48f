// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// serverCommand is a command of the server.
type serverCommand struct {
	Header
	payload []byte
	fds     int // that came with it and are closed
}

// clientMemory is what a client has mapped.
type clientMemory struct {
	mu     sync.Mutex
	ranges []*DMARange
}

func (m *clientMemory) add(r DMARange) *DMARange {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ranges = append(m.ranges, &r)
	return &r
}

// drop forgets r alone, unmap all that lies inside [iova, iova+size).
func (m *clientMemory) drop(r *DMARange) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ranges = slices.DeleteFunc(m.ranges, func(x *DMARange) bool { return x == r })
}

func (m *clientMemory) unmap(iova, size uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ranges = slices.DeleteFunc(m.ranges, func(x *DMARange) bool {
		return x.IOVA >= iova && x.IOVA+(x.Size-1) <= iova+(size-1)
	})
}

func (m *clientMemory) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ranges = nil
}

// access does one transfer, all of it or nothing. What QEMU has no memory for, or
// no right, is ENODEV.
func (m *clientMemory) access(right uint32, iova uint64, p []byte) syscall.Errno {
	m.mu.Lock()
	defer m.mu.Unlock()
	type piece struct {
		file *os.File
		at   int64
		p    []byte
	}
	var pieces []piece
	for len(p) > 0 {
		i := slices.IndexFunc(m.ranges, func(r *DMARange) bool {
			return iova >= r.IOVA && iova-r.IOVA < r.Size && r.Flags&right != 0 && r.guest() != nil
		})
		if i < 0 {
			return unix.ENODEV
		}
		r := m.ranges[i]
		n := min(uint64(len(p)), r.Size-(iova-r.IOVA))
		pieces = append(pieces, piece{r.guest(), int64(r.Offset + (iova - r.IOVA)), p[:n]})
		iova, p = iova+n, p[n:]
	}
	for _, x := range pieces {
		do := x.file.ReadAt
		if right == DMAWrite {
			do = x.file.WriteAt
		}
		if _, err := do(x.p, x.at); err != nil {
			return unix.EIO
		}
	}
	return 0
}

func (r *DMARange) guest() *os.File {
	if r.Guest != nil {
		return r.Guest
	}
	return r.File
}

// mainLoop answers the server's commands like QEMU's, one after the other and
// with the big lock.
func (c *Client) mainLoop() {
	for cmd := range c.commands {
		c.bigLock.Lock()
		err := c.answer(c.conn, cmd)
		c.bigLock.Unlock()
		if err != nil {
			c.end(err)
		}
	}
}

// startTwin takes the server's commands from f.
func (c *Client) startTwin(f *os.File) error {
	conn, err := unixConn(f)
	if err != nil {
		return err
	}
	c.twin = conn
	c.others.Go(func() {
		<-c.done
		conn.Close()
	})
	c.others.Go(func() {
		oob := make([]byte, unix.CmsgSpace(4*scmMaxFD))
		for {
			if err := c.receiveTwin(oob); err != nil {
				c.end(fmt.Errorf("twin socket: %w", err))
				return
			}
		}
	})
	return nil
}

func (c *Client) receiveTwin(oob []byte) error {
	h, fds, err := receiveHeader(c.twin, oob)
	if err != nil {
		return err
	}
	closeAll(fds)
	if h.Flags&FlagTypeMask != FlagCommand {
		return fmt.Errorf("%w: %v with flags %#x", ErrProtocol, h.Command, h.Flags)
	}
	cmd := serverCommand{Header: h, payload: make([]byte, h.Size-headerSize), fds: len(fds)}
	if err := readFull(c.twin, cmd.payload); err != nil {
		return err
	}
	return c.answer(c.twin, cmd)
}

// answer does one command of the server and replies to it.
func (c *Client) answer(conn *net.UnixConn, cmd serverCommand) error {
	payload, errno := c.execute(cmd)
	if cmd.Flags&FlagNoReply != 0 {
		return nil
	}
	h := Header{ID: cmd.ID, Command: cmd.Command, Flags: FlagReply}
	if errno != 0 {
		h.Flags |= FlagError
		h.Errno = uint32(errno)
		payload = nil
	}
	c.send.Lock()
	defer c.send.Unlock()
	return c.transmit(conn, h, payload, nil)
}

// execute gives the payload of the reply, or the errno that QEMU would send
// (hw/vfio-user/pci.c:vfio_user_dma_read, vfio_user_dma_write).
func (c *Client) execute(cmd serverCommand) ([]byte, syscall.Errno) {
	if cmd.fds != 0 {
		return nil, unix.EINVAL
	}
	if cmd.Command != CmdDMARead && cmd.Command != CmdDMAWrite {
		return nil, unix.ENOSYS
	}
	p, size := cmd.payload, dmaHeaderSize
	if c.opts.NarrowDMA {
		size = narrowHeaderSize
	}
	if len(p) < size {
		return nil, unix.EINVAL
	}
	iova, count := binary.LittleEndian.Uint64(p), uint64(binary.LittleEndian.Uint32(p[8:]))
	if !c.opts.NarrowDMA {
		count = binary.LittleEndian.Uint64(p[8:])
	}
	if cmd.Command == CmdDMAWrite {
		data := p[size:]
		if count > uint64(len(data)) {
			return nil, unix.E2BIG
		}
		if errno := c.memory.access(DMAWrite, iova, data[:count]); errno != 0 {
			return nil, errno
		}
		if c.opts.NarrowDMA {
			return nil, 0
		}
		return p[:dmaHeaderSize], 0
	}
	if count > c.server.dataTransfer {
		return nil, unix.E2BIG
	}
	// The narrow reply is as long as the wide one, with its data 4 bytes earlier.
	reply := append(slices.Clone(p[:size]), make([]byte, dmaHeaderSize-size+int(count))...)
	return reply, c.memory.access(DMARead, iova, reply[size:][:count])
}
