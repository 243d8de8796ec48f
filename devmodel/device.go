// SPDX-License-Identifier: Apache-2.0

// Package devmodel is the network card as a whole: it builds the units of an
// Intel E810 physical function, wires them to each other and to guest memory,
// and presents them as one device with regions, interrupts and DMA maps.
//
// It knows no transport: its methods have the shape that a vfio-user server
// asks for, in plain Go types, and the same device runs in a test without
// QEMU and without a socket.
//
// Contract and traps:
//   - One control lock per device is held during every register and
//     configuration access and every reset. Payload is moved outside it.
//   - Nothing waits for the data path but Detach and what Settle returns: a
//     reset, an unmap and the end of bus mastering make things unreachable at
//     once, and what has begun before is over when the function that Settle
//     returns has returned.
//   - Attach comes before any access, Detach ends everything: afterwards the
//     device is as at power-on and touches no guest memory.
//   - Interrupt signals are sent from any goroutine with locks held: the signal
//     function must not block and must not call back.
package devmodel

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/frame"
	"github.com/vrnic/vrnic/devmodel/fw"
	"github.com/vrnic/vrnic/devmodel/grace"
	"github.com/vrnic/vrnic/devmodel/guestmem"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/lan"
	"github.com/vrnic/vrnic/devmodel/pci"
	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/devmodel/rdma"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// Regions and interrupt indices as VFIO numbers them.
const (
	configRegion = 7
	msixIndex    = 2
)

// RegionSizes gives the size of each VFIO region; 0 is an absent one.
func RegionSizes() [9]uint64 {
	return [9]uint64{pci.RegisterBAR: pci.RegisterSize, pci.MSIXBAR: pci.MSIXSize, configRegion: pci.ConfigSize}
}

// IRQCounts gives the number of vectors of each VFIO interrupt index: INTx,
// MSI, MSI-X, error, request.
func IRQCounts() [5]uint32 { return [5]uint32{1, 0, pci.Vectors, 1, 1} }

// Config is what a card is made of.
type Config struct {
	// MAC is the permanent address of the port. The card's serial number is
	// derived from it, so it must differ between cards of one guest.
	MAC [6]byte
	// Emit receives every event of every unit, from any goroutine, partly
	// with the control lock held: it must not call into the device. May be
	// nil.
	Emit func(event any)
	// Unwatched: nobody is interested in the protocol engine's events. It emits
	// none, and does not look for what only they would tell.
	Unwatched bool
	// Engine says how the data path runs and what time it is. The zero value
	// is for life; tests take a ManualClock, no goroutine (Manual: then
	// nothing moves but in Drain), or a shuffled order.
	Engine engine.Config
	// Shared, if not nil, is the engine to use instead of one made from Engine:
	// cards on one wire share one, and with it one grace domain, as the step of
	// a sender fills the memory of the receiver's guest. Whoever made it closes
	// it, after the cards.
	Shared *engine.Engine
	// Wire is the card's place on an Ethernet segment: Send takes a frame
	// without FCS, of at least 60 bytes, valid during the call, in a step of
	// the engine. nil: a segment without other stations. What comes from there
	// goes to Device.Receive. A Wire with a method Crowded(dst [6]byte) bool tells
	// by it, in steps, that frames to dst would better wait; what can wait then
	// does.
	Wire interface{ Send(frame []byte) }
	// Notes takes comments on the protocol engine's frames there; nil: nobody
	// captures.
	Notes qp.Notes
	// Near finds cards on that segment, and on the same engine, that need no
	// frames; nil: there are none.
	Near Near
	// Timing is the protocol's, on that clock; zero: qp.DefaultTiming.
	Timing qp.Timing
	// Profile is what the RDMA engine offers its driver; zero: hmc.SmallGuest.
	Profile hmc.Profile
}

// Device is one card.
type Device struct {
	mem guestmem.Memory

	signal atomic.Pointer[func(index, vector int)]

	mu     sync.Mutex // the control lock
	regs   *reg.Space
	config *pci.Config
	irqs   *pci.Interrupts
	fw     *fw.Firmware
	lan    *lan.LAN
	rdma   *rdma.Engine
	engine *engine.Engine
	shared bool // the engine is somebody else's
	system system
	emit   func(any)
	remote remote

	// rests: the client's goroutine calls Rest before it waits.
	rests atomic.Bool

	// unsettled: something was ended that the data path may be using.
	unsettled bool
}

// New makes a card in power-on state. Close releases it.
func New(c Config) *Device {
	d := &Device{}
	if c.Emit == nil {
		c.Emit = func(any) {}
	}
	d.emit = func(event any) {
		if b, ok := event.(fw.BlankDescriptor); ok {
			d.suspect(b)
		}
		c.Emit(d.judge(event))
	}
	d.config = pci.NewConfig(serialNumber(c.MAC))
	d.config.FLR = func() { d.reset(reg.FLR) }
	d.mem.Missing = d.missing
	mem := dma{&d.mem, d.config.BusMaster}
	d.engine, d.shared = c.Shared, c.Shared != nil
	if !d.shared {
		d.engine = engine.New(c.Engine)
	}
	d.irqs = pci.NewInterrupts(d.engine.Clock(), func(v int) {
		if signal := d.signal.Load(); signal != nil {
			(*signal)(msixIndex, v)
		}
	})
	lanConfig := lan.Config{Mem: mem, Emit: d.emit, TxDone: d.irqs.TxQueue, RxDone: d.irqs.RxQueue, MayDMA: d.config.BusMaster,
		Overtaken: d.system.stragglers.Load,
		Malicious: func() { d.irqs.OICR(pci.OICRMalDetect) }, Engine: d.engine,
		RDMA:  func(f []byte, i frame.Info) { d.rdma.Receive(f, i) },
		Group: func(a [6]byte) bool { return d.rdma.Group(a) }}
	if c.Wire != nil {
		lanConfig.Wire = c.Wire.Send
	}
	d.system.after = grace.NewAfter(d.engine.Grace(), &d.mu)
	d.system.leaving = grace.NewAfter(d.engine.Grace(), &d.mu)
	d.system.release = d.engine.Clock().NewTimer(d.released)
	d.lan = lan.New(lanConfig)
	d.fw = fw.New(fw.Config{Mem: mem, Emit: d.emit, MAC: c.MAC, Event: d.irqs.FW, LAN: d.lan,
		EMPR:  func() { d.globalReset(reg.EMPR) },
		Grace: d.engine.Grace(), Lock: &d.mu})
	rdmaEmit := d.emit
	if c.Unwatched {
		rdmaEmit = nil
	}
	d.rdma = rdma.New(rdma.Config{Mem: mem, Emit: rdmaEmit, CEQ: d.irqs.CEQ, AEQ: d.irqs.AEQ, OICR: d.irqs.OICR,
		MAC: func() [6]byte { return c.MAC }, Wire: newPort(d.lan, c.Wire), Notes: c.Notes, Near: d.near(c.Near), Payload: &d.mem, MayDMA: d.config.BusMaster, Engine: d.engine, Timing: c.Timing, Profile: c.Profile, Lock: &d.mu, Overtake: d.overtake, Overtaken: d.system.stragglers.Load})
	d.regs = reg.NewSpace(pci.RegisterSize, d.emit, d.systemRegisters(), diagnosticRegisters(), d.irqs.Registers(), d.lan.Registers(), d.fw.Registers(), d.rdma.Registers())
	return d
}

// Close ends the card's goroutines and drops its maps. With a shared engine it
// waits until no step uses the card.
func (d *Device) Close() {
	d.Detach()
	d.system.after.Close()
	d.system.leaving.Close()
	d.rdma.Close()
	d.fw.Close()
	if !d.shared {
		d.engine.Close()
	}
}

// Receive takes a frame, without FCS, from the wire. It may be called from any
// goroutine, steps included; the frame is valid during the call. Without room
// for the frame it is dropped and counted, as by hardware.
func (d *Device) Receive(frame []byte) { d.lan.Receive(frame) }

// Drain runs the data path of a card made with Engine.Manual until it has
// nothing to do, or limit steps; see engine.Engine.Drain. It returns the number
// of steps taken.
func (d *Device) Drain(limit int) int { return d.engine.Drain(limit) }

// serialNumber makes the EUI-64 of a MAC address as network cards show it.
func serialNumber(mac [6]byte) uint64 {
	var s uint64
	for _, b := range [8]byte{mac[0], mac[1], mac[2], 0xff, 0xff, mac[3], mac[4], mac[5]} {
		s = s<<8 | uint64(b)
	}
	return s
}

// Attach starts the life of the device with one client; signal sends the
// message of an interrupt.
func (d *Device) Attach(signal func(index, vector int)) {
	d.remote.attach()
	d.powerOn()
	d.emit(Attached{})
	d.signal.Store(&signal)
	d.rests.Store(false)
}

// Attached is the event of a client taking the device.
type Attached struct{}

func (Attached) String() string { return "client attached" }

// Detach ends it: power-on state, no maps, no DMA.
func (d *Device) Detach() {
	d.signal.Store(nil)
	d.mu.Lock()
	d.reset(reg.POR)
	d.config.Reset()
	d.unsettled = false
	d.mu.Unlock()
	d.irqs.Release()
	d.mem.UnmapAll()
	d.engine.Grace().Wait()
	d.remote.detach()
}

// Settle is to be called after UnmapDMA, UnmapAllDMA, Reset and writes of the
// configuration space: it returns nil if the data path is done with what those
// have ended, or else a function, for another goroutine, that returns when it
// is: within the time of one step.
func (d *Device) Settle() (wait func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	unsettled := d.unsettled && !d.engine.Grace().Quiet()
	d.unsettled = false
	accesses := d.mem.Settle()
	if !unsettled {
		return accesses
	}
	return func() {
		if accesses != nil {
			accesses()
		}
		d.engine.Grace().Wait()
	}
}

// Reset is the bus's device reset: everything but the maps is as at power-on.
func (d *Device) Reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reset(reg.POR)
	d.config.Reset()
}

// ReadRegion fills p from offset of a region. Errors wrap EINVAL.
func (d *Device) ReadRegion(region int, offset uint64, p []byte) error {
	if err := checkAccess("read", region, offset, len(p)); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch region {
	case pci.RegisterBAR:
		d.regs.Read(offset, p)
	case configRegion:
		d.config.Read(offset, p)
	default:
		// MSI-X table and pending bits: the client keeps both.
		clear(p)
	}
	return nil
}

// WriteRegion takes p to offset of a region. Errors wrap EINVAL. What a doorbell
// is rung for begins before it returns, or in Rest.
func (d *Device) WriteRegion(region int, offset uint64, p []byte) error {
	if err := checkAccess("write", region, offset, len(p)); err != nil {
		return err
	}
	d.write(region, offset, p)
	if !d.rests.Load() {
		d.engine.Serve()
	}
	return nil
}

// Rest is for a bus that lets its goroutine do what it has brought about, with one
// call for many accesses, before it waits for more. It calls Rest after Attach,
// too: then WriteRegion leaves that to it.
func (d *Device) Rest() {
	d.rests.Store(true)
	d.engine.Serve()
}

func (d *Device) write(region int, offset uint64, p []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch region {
	case pci.RegisterBAR:
		if !d.system.frozen(offset) {
			d.regs.Write(offset, p)
			d.hasten()
		}
	case configRegion:
		allowed := d.config.BusMaster()
		d.config.Write(offset, p)
		if allowed && !d.config.BusMaster() {
			d.unsettled = true
		}
	}
}

func checkAccess(op string, region int, offset uint64, n int) error {
	sizes := RegionSizes()
	if region < 0 || region >= len(sizes) || offset > sizes[region] || uint64(n) > sizes[region]-offset {
		return fmt.Errorf("%s of %d bytes at %#x of region %d: %w", op, n, offset, region, syscall.EINVAL)
	}
	return nil
}

// MapDMA makes [iova, iova+size) of guest memory reachable; see
// guestmem.Memory.Map.
func (d *Device) MapDMA(iova, size uint64, f *os.File, offset uint64, readable, writable bool) error {
	return d.mem.Map(iova, size, f, offset, readable, writable)
}

// UnmapAllDMA is UnmapDMA of everything.
func (d *Device) UnmapAllDMA() { d.mem.Clear() }

// GlobalReset begins a reset of the whole card that another function asked for:
// dom is reg.CORER, reg.GLOBR or reg.EMPR. GLGEN_RSTAT tells when it is over.
func (d *Device) GlobalReset(dom reg.Domain) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.globalReset(dom)
}

// SetLink is the medium's carrier coming or going.
func (d *Device) SetLink(up bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fw.SetLink(up)
}
