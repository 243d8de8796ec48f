// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// QEMUCapabilities is the JSON text of QEMU 11.1's VERSION request, byte for
// byte (hw/vfio-user/proxy.c:caps_json).
const QEMUCapabilities = `{"capabilities": {"pgsizes": 4096, "max_msg_fds": 16, "max_dma_maps": 65535, ` +
	`"max_data_xfer_size": 1048576, "migration": {"max_bitmap_size": 268435456, "pgsize": 4096}, "write_multiple": true}}`

const (
	// replyTimeout is QEMU's default (hw/vfio-user/pci.c, x-msg-timeout).
	replyTimeout = 5 * time.Second
	// defaultMsgFDs is what QEMU takes for max_msg_fds when the server is silent.
	defaultMsgFDs = 8
	// multiMax is the most writes QEMU packs into one REGION_WRITE_MULTI.
	multiMax = 200
)

// ClientOptions changes a Client from what QEMU does.
type ClientOptions struct {
	Timeout      time.Duration // for a reply; 0 means 5 s
	Capabilities string        // JSON text of VERSION; "" means QEMUCapabilities
}

// Client talks to a server as QEMU does, and is stricter: what QEMU would
// overlook in a reply ends the connection with ErrProtocol.
//
// Its methods are safe for concurrent use. As in QEMU only one region access
// waits for its reply at a time. An error reply is an error that wraps the
// [syscall.Errno] of the server.
type Client struct {
	conn    *net.UnixConn
	timeout time.Duration
	info    DeviceInfo
	server  serverLimits

	access sync.Mutex // one waiting region access

	send   sync.Mutex // below: one sender
	out    []byte
	lastID uint16

	mu      sync.Mutex
	pending map[uint16]*call
	err     error         // why the connection ended
	done    chan struct{} // closed by the receiver at its end
}

// serverLimits is what the server told in VERSION.
type serverLimits struct {
	msgFDs        int
	writeMultiple bool
}

// DeviceInfo is the answer to DEVICE_GET_INFO.
type DeviceInfo struct {
	Flags   uint32 // DeviceReset, DevicePCI
	Regions uint32
	IRQs    uint32
}

// RegionInfo is the answer to DEVICE_GET_REGION_INFO.
type RegionInfo struct {
	Flags  uint32 // RegionRead, RegionWrite, RegionMmap, RegionCaps
	Size   uint64
	Offset uint64 // of the region in its descriptor
}

// IRQInfo is the answer to DEVICE_GET_IRQ_INFO.
type IRQInfo struct {
	Flags uint32 // IRQEventFD, IRQMaskable, IRQAutomasked, IRQNoResize
	Count uint32
}

// Dial connects to the server at path and agrees on a version with it, as QEMU
// 11.1 would.
func Dial(ctx context.Context, path string) (*Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	c, err := NewClient(conn.(*net.UnixConn), ClientOptions{})
	if !stop() && ctx.Err() != nil {
		if err == nil {
			c.Close()
		}
		return nil, fmt.Errorf("dial %s: %w", path, ctx.Err())
	}
	return c, err
}

// NewClient agrees on a version with the server at the other end of conn and asks
// for its DeviceInfo. It owns conn, also when it returns an error.
func NewClient(conn *net.UnixConn, opts ClientOptions) (*Client, error) {
	if opts.Timeout == 0 {
		opts.Timeout = replyTimeout
	}
	if opts.Capabilities == "" {
		opts.Capabilities = QEMUCapabilities
	}
	c := &Client{
		conn:    conn,
		timeout: opts.Timeout,
		pending: make(map[uint16]*call),
		done:    make(chan struct{}),
		lastID:  ^uint16(0), // the first id is 0
	}
	go c.receive()
	if err := c.negotiate(opts.Capabilities); err != nil {
		c.Close()
		return nil, err
	}
	if err := c.getInfo(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Info is what the server said about the device.
func (c *Client) Info() DeviceInfo { return c.info }

func (c *Client) getInfo() error {
	req := words(deviceInfoSize, 0, 0, 0)
	reply, err := c.call(CmdDeviceGetInfo, req, nil, len(req))
	if err != nil {
		return err
	}
	if len(reply) != deviceInfoSize {
		return fmt.Errorf("%v: %w: payload of %d bytes", CmdDeviceGetInfo, ErrProtocol, len(reply))
	}
	le := binary.LittleEndian
	c.info = DeviceInfo{Flags: le.Uint32(reply[4:]), Regions: le.Uint32(reply[8:]), IRQs: le.Uint32(reply[12:])}
	return nil
}

// RegionInfo asks about region i, without capabilities.
func (c *Client) RegionInfo(i int) (RegionInfo, error) {
	req := append(words(regionInfoSize, 0, uint32(i), 0), make([]byte, 16)...)
	reply, err := c.call(CmdGetRegionInfo, req, nil, len(req))
	if err != nil {
		return RegionInfo{}, err
	}
	le := binary.LittleEndian
	if len(reply) != regionInfoSize || le.Uint32(reply[8:]) != uint32(i) {
		return RegionInfo{}, fmt.Errorf("%v %d: %w: payload % x", CmdGetRegionInfo, i, ErrProtocol, reply)
	}
	return RegionInfo{Flags: le.Uint32(reply[4:]), Size: le.Uint64(reply[16:]), Offset: le.Uint64(reply[24:])}, nil
}

// IRQInfo asks about interrupt index i.
func (c *Client) IRQInfo(i int) (IRQInfo, error) {
	req := words(irqInfoSize, 0, uint32(i), 0)
	reply, err := c.call(CmdGetIRQInfo, req, nil, len(req))
	if err != nil {
		return IRQInfo{}, err
	}
	le := binary.LittleEndian
	if len(reply) != irqInfoSize || le.Uint32(reply[8:]) != uint32(i) {
		return IRQInfo{}, fmt.Errorf("%v %d: %w: payload % x", CmdGetIRQInfo, i, ErrProtocol, reply)
	}
	return IRQInfo{Flags: le.Uint32(reply[4:]), Count: le.Uint32(reply[12:])}, nil
}

// Reset is DEVICE_RESET.
func (c *Client) Reset() error {
	_, err := c.call(CmdDeviceReset, nil, nil, 0)
	return err
}

// DMARange is one range of guest memory.
type DMARange struct {
	IOVA, Size uint64
	File       *os.File // nil: no descriptor
	Offset     uint64   // of IOVA in File
	Flags      uint32   // DMARead, DMAWrite
}

// MapDMA tells the server about a range of guest memory. f may be nil and stays
// the caller's.
func (c *Client) MapDMA(iova, size uint64, f *os.File, offset uint64, flags uint32) error {
	return c.MapDMAs([]DMARange{{IOVA: iova, Size: size, File: f, Offset: offset, Flags: flags}})
}

// MapDMAs sends several maps before it waits for the first reply, as QEMU does
// with one memory transaction. The error joins those of all ranges.
func (c *Client) MapDMAs(ranges []DMARange) error {
	calls := make([]*call, 0, len(ranges))
	var all error
	for _, r := range ranges {
		le := binary.LittleEndian
		req := words(dmaMapSize, r.Flags)
		req = le.AppendUint64(req, r.Offset)
		req = le.AppendUint64(req, r.IOVA)
		req = le.AppendUint64(req, r.Size)
		k := newCall(CmdDMAMap, 0)
		err := withFD(r.File, func(fds []int) error { return c.start(k, req, fds) })
		if err != nil {
			all = errors.Join(all, err)
			continue
		}
		calls = append(calls, k)
	}
	for _, k := range calls {
		_, err := c.wait(k)
		all = errors.Join(all, err)
	}
	return all
}

// withFD calls do with the descriptor of f, which f keeps open meanwhile, and
// leaves the mode of f alone, which File.Fd would not.
func withFD(f *os.File, do func(fds []int) error) error {
	if f == nil {
		return do(nil)
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if e := raw.Control(func(fd uintptr) { err = do([]int{int(fd)}) }); e != nil {
		return e
	}
	return err
}

// UnmapDMA takes back every range inside [iova, iova+size).
func (c *Client) UnmapDMA(iova, size uint64) error { return c.unmap(0, iova, size) }

// UnmapAllDMA takes back all ranges.
func (c *Client) UnmapAllDMA() error { return c.unmap(DMAUnmapAll, 0, 0) }

func (c *Client) unmap(flags uint32, iova, size uint64) error {
	req := words(dmaUnmapSize, flags)
	req = binary.LittleEndian.AppendUint64(req, iova)
	req = binary.LittleEndian.AppendUint64(req, size)
	_, err := c.call(CmdDMAUnmap, req, nil, len(req))
	return err
}

// SetIRQ gives the vectors start… of an index one eventfd each; -1 takes a
// vector's eventfd away. The descriptors stay the caller's. As in QEMU the list
// is cut into messages of one kind, with no more descriptors than the server
// takes.
func (c *Client) SetIRQ(index, start int, fds []int) error {
	for len(fds) > 0 {
		n := 1
		for n < len(fds) && n < c.server.msgFDs && (fds[n] < 0) == (fds[0] < 0) {
			n++
		}
		var send []int
		if fds[0] >= 0 {
			send = fds[:n]
		}
		if err := c.setIRQs(IRQSetDataEventFD|IRQSetTrigger, index, start, n, send); err != nil {
			return err
		}
		start, fds = start+n, fds[n:]
	}
	return nil
}

// DisableIRQs switches all vectors of an index off.
func (c *Client) DisableIRQs(index int) error {
	return c.setIRQs(IRQSetDataNone|IRQSetTrigger, index, 0, 0, nil)
}

// MaskIRQ and UnmaskIRQ keep vectors quiet and let them speak again; TriggerIRQ
// fires them as if the device had.
func (c *Client) MaskIRQ(index, start, count int) error {
	return c.setIRQs(IRQSetDataNone|IRQSetMask, index, start, count, nil)
}

// UnmaskIRQ: see MaskIRQ.
func (c *Client) UnmaskIRQ(index, start, count int) error {
	return c.setIRQs(IRQSetDataNone|IRQSetUnmask, index, start, count, nil)
}

// TriggerIRQ: see MaskIRQ.
func (c *Client) TriggerIRQ(index, start, count int) error {
	return c.setIRQs(IRQSetDataNone|IRQSetTrigger, index, start, count, nil)
}

// UnmaskIRQByEventFD has the server unmask a vector whenever the eventfd is
// signalled, as KVM wants it for INTx; -1 ends that.
func (c *Client) UnmaskIRQByEventFD(index, vector, fd int) error {
	var fds []int
	if fd >= 0 {
		fds = []int{fd}
	}
	return c.setIRQs(IRQSetDataEventFD|IRQSetUnmask, index, vector, 1, fds)
}

func (c *Client) setIRQs(flags uint32, index, start, count int, fds []int) error {
	_, err := c.call(CmdSetIRQs, words(irqSetSize, flags, uint32(index), uint32(start), uint32(count)), fds, 0)
	return err
}

// Close ends the connection without a farewell, as QEMU does.
func (c *Client) Close() error {
	c.end(net.ErrClosed)
	<-c.done
	return nil
}

// Err is why the connection ended, nil if it has not.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func words(w ...uint32) []byte {
	b := make([]byte, 0, 64)
	for _, x := range w {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

// remoteError is an error reply.
func remoteError(h Header) error {
	errno := syscall.Errno(h.Errno)
	if errno == 0 {
		errno = unix.EIO // the specification allows an error without a number
	}
	return fmt.Errorf("%v: server: %w", h.Command, errno)
}
