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

// TwinCapabilities is QEMUCapabilities with the offer of a twin socket, which QEMU
// does not make.
const TwinCapabilities = `{"capabilities": {"pgsizes": 4096, "max_msg_fds": 16, "max_dma_maps": 65535, ` +
	`"max_data_xfer_size": 1048576, "twin_socket": {"supported": true}, "write_multiple": true}}`

const (
	// replyTimeout is QEMU's default (hw/vfio-user/pci.c, x-msg-timeout).
	replyTimeout = 5 * time.Second
	// defaultMsgFDs is what QEMU takes for max_msg_fds when the server is silent.
	defaultMsgFDs = 8
	// maxQueued is the most commands of the server that may wait for an answer.
	maxQueued = 256
	// multiMax is the most writes QEMU packs into one REGION_WRITE_MULTI.
	multiMax = 200
)

// ClientOptions changes a Client from what QEMU does.
type ClientOptions struct {
	Timeout      time.Duration // for a reply; 0 means 5 s
	Capabilities string        // JSON text of VERSION; "" means QEMUCapabilities
	NoJSON       bool          // VERSION has numbers only
	Minor        uint16        // version; QEMU's is 0
	NarrowDMA    bool          // DMA_READ and DMA_WRITE as QEMU 10 has them, with a count of 32 bits
}

// Client talks to a server as QEMU does, and is stricter: what QEMU would
// overlook in a reply ends the connection with ErrProtocol.
//
// Its methods are safe for concurrent use. As in QEMU only one region access
// waits for its reply at a time. An error reply is an error that wraps the
// [syscall.Errno] of the server.
//
// It answers DMA_READ and DMA_WRITE for the memory that it has mapped, and as in
// QEMU it does so only while none of its own commands waits for a reply: a server
// that needs the answer before it can reply runs into the time-out. Messages that
// come over a twin socket are answered at once.
type Client struct {
	conn    *net.UnixConn
	timeout time.Duration
	opts    ClientOptions
	info    DeviceInfo
	server  limits

	memory   clientMemory
	commands chan serverCommand // for mainLoop
	twin     *net.UnixConn      // nil: DMA messages come over conn
	others   sync.WaitGroup     // mainLoop and the twin's receiver

	// bigLock stands for QEMU's: whoever waits for a reply shares it, mainLoop has
	// it alone.
	bigLock sync.RWMutex

	access sync.Mutex // one waiting region access

	send   sync.Mutex // below: one sender
	out    []byte
	lastID uint16

	mu      sync.Mutex
	pending map[uint16]*call
	err     error         // why the connection ended
	done    chan struct{} // closed by the receiver at its end
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
		conn:     conn,
		timeout:  opts.Timeout,
		opts:     opts,
		commands: make(chan serverCommand, maxQueued),
		pending:  make(map[uint16]*call),
		done:     make(chan struct{}),
		lastID:   ^uint16(0), // the first id is 0
	}
	go c.receive()
	c.others.Go(c.mainLoop)
	if err := c.negotiate(); err != nil {
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

	// Guest is the memory that DMA by message reaches, at Offset too; nil means
	// File. With a nil File it is RAM without a descriptor, with another File it is
	// RAM that is not shared. Guest or File must be open as long as the range is
	// mapped, or such DMA fails.
	Guest *os.File
}

// MapDMA tells the server about a range of guest memory. f may be nil and stays
// the caller's.
func (c *Client) MapDMA(iova, size uint64, f *os.File, offset uint64, flags uint32) error {
	return c.MapDMAs([]DMARange{{IOVA: iova, Size: size, File: f, Offset: offset, Flags: flags}})
}

// MapDMAs sends several maps before it waits for the first reply, as QEMU does
// with one memory transaction. The error joins those of all ranges.
func (c *Client) MapDMAs(ranges []DMARange) error {
	c.bigLock.RLock()
	defer c.bigLock.RUnlock()
	calls := make([]*call, 0, len(ranges))
	noted := make([]*DMARange, 0, len(ranges))
	var all error
	for _, r := range ranges {
		le := binary.LittleEndian
		req := words(dmaMapSize, r.Flags)
		req = le.AppendUint64(req, r.Offset)
		req = le.AppendUint64(req, r.IOVA)
		req = le.AppendUint64(req, r.Size)
		k := newCall(CmdDMAMap, 0)
		n := c.memory.add(r) // the device may ask as soon as it knows
		err := withFD(r.File, func(fds []int) error { return c.start(k, req, fds) })
		if err != nil {
			c.memory.drop(n)
			all = errors.Join(all, err)
			continue
		}
		calls, noted = append(calls, k), append(noted, n)
	}
	for i, k := range calls {
		_, err := c.wait(k)
		if err != nil {
			c.memory.drop(noted[i])
		}
		all = errors.Join(all, err)
	}
	return all
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
	if err == nil && flags == DMAUnmapAll {
		c.memory.clear()
	} else if err == nil {
		c.memory.unmap(iova, size)
	}
	return err
}

// SetIRQ gives the vectors start… of an index one eventfd each; -1 takes a
// vector's eventfd away. The descriptors stay the caller's. As in QEMU the list
// is cut into messages of one kind, with no more descriptors than the server
// takes.
func (c *Client) SetIRQ(index, start int, fds []int) error {
	for len(fds) > 0 {
		n := 1
		for n < len(fds) && n < int(c.server.msgFDs) && (fds[n] < 0) == (fds[0] < 0) {
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
	return c.SendIRQSet(IRQSet{Flags: flags, Index: index, Start: start, Count: count, FDs: fds})
}

// IRQSet is a DEVICE_SET_IRQS.
type IRQSet struct {
	Flags               uint32 // one IRQSetData*, one of IRQSetMask, IRQSetUnmask and IRQSetTrigger
	Index, Start, Count int
	Bools               []byte // one a vector, with IRQSetDataBool
	FDs                 []int  // one a vector or none, with IRQSetDataEventFD; they stay the caller's
}

// SendIRQSet sends s as it is, whether it makes sense or not.
func (c *Client) SendIRQSet(s IRQSet) error {
	req := words(uint32(irqSetSize+len(s.Bools)), s.Flags, uint32(s.Index), uint32(s.Start), uint32(s.Count))
	_, err := c.call(CmdSetIRQs, append(req, s.Bools...), s.FDs, 0)
	return err
}

// Do sends any command and waits for the payload of its reply, of limit bytes at
// most.
func (c *Client) Do(cmd Command, payload []byte, limit int) ([]byte, error) {
	return c.call(cmd, payload, nil, limit)
}

// Close ends the connection without a farewell, as QEMU does.
func (c *Client) Close() error {
	c.end(net.ErrClosed)
	<-c.done
	c.others.Wait()
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
