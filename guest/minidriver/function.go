// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
)

// Patience is how long a Function waits for the device unless it is told
// otherwise. The drivers' own limits are shorter for some waits, but count on a
// machine that is not shared.
const Patience = 10 * time.Second

// Regions and interrupt index as VFIO numbers them.
const (
	bar0         = 0
	configRegion = 7
	msixIndex    = 2
)

// PCI configuration space (include/uapi/linux/pci_regs.h).
const (
	pciVendorID         = 0x00
	pciCommand          = 0x04
	pciCommandMemory    = 1 << 1
	pciCommandMaster    = 1 << 2
	pciStatus           = 0x06
	pciStatusCapList    = 1 << 4
	pciCapabilityList   = 0x34
	pciCapIDExp         = 0x10
	pciCapIDMSIX        = 0x11
	pciExpDevCap        = 4
	pciExpDevCapFLR     = 1 << 28
	pciExpDevCtl        = 8
	pciExpDevCtlFLR     = 1 << 15
	pciExpDevSta        = 10
	pciExpDevStaTrpnd   = 1 << 5
	pciMSIXFlags        = 2
	pciMSIXFlagsQsize   = 0x7ff
	pciMSIXFlagsEnable  = 1 << 15
	pciExtCapIDDSN      = 3
	pciCfgSpaceSize     = 0x100
	pciCfgSpaceExpSize  = 0x1000
	pciCapabilitySizeof = 4
)

// Function is the PCI function in the hands of a kernel: enabled, mastering the
// bus, with BAR0 and MSI-X vectors.
type Function struct {
	Guest    *Guest
	Client   *vfiouser.Client
	Patience time.Duration // bounds every wait for the device
	// Pace, if set, puts driver and device into lockstep: every write of a
	// register waits until it has had its effect, and whoever waits for the
	// device calls Pace, again and again, which lets it do some work. Of a
	// device that does nothing by itself the order of all that happens is then
	// Pace's.
	Pace func()

	ctx     context.Context // the life of the attachment, not of a call
	err     error
	vectors []*Vector
	table   int // entries of the MSI-X table
	exp     int // offset of the PCI Express capability
	msix    int // offset of the MSI-X capability
}

// Attach connects to the device at socket, maps the guest's memory and enables
// the function. All waits of the Function and of the drivers on it end with ctx.
func Attach(ctx context.Context, socket string, g *Guest) (*Function, error) {
	c, err := vfiouser.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	f, err := AttachClient(ctx, c, g)
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", socket, err)
	}
	return f, nil
}

// AttachClient is Attach with a client that is connected already. It is closed
// on error.
func AttachClient(ctx context.Context, c *vfiouser.Client, g *Guest) (*Function, error) {
	f := &Function{Guest: g, Client: c, Patience: Patience, ctx: ctx}
	if err := f.enable(); err != nil {
		c.Close()
		return nil, err
	}
	return f, nil
}

func (f *Function) enable() error {
	if err := f.Guest.Map(f.Client); err != nil {
		return err
	}
	if id := f.config32(pciVendorID); f.err == nil && id != 0x15928086 {
		return broken("vendor and device %#08x, want an E810-C QSFP", id)
	}
	if f.exp = f.capability(pciCapIDExp); f.exp == 0 {
		return broken("no PCI Express capability")
	}
	if f.config32(f.exp+pciExpDevCap)&pciExpDevCapFLR == 0 {
		return broken("no function level reset")
	}
	if f.msix = f.capability(pciCapIDMSIX); f.msix == 0 {
		return broken("no MSI-X capability")
	}
	f.table = int(f.config16(f.msix+pciMSIXFlags)&pciMSIXFlagsQsize) + 1
	return f.master()
}

// master lets the function decode its BARs and do DMA.
func (f *Function) master() error {
	f.setConfig16(pciCommand, f.config16(pciCommand)|pciCommandMemory|pciCommandMaster)
	return f.err
}

// Detach ends the connection without a word, as when QEMU dies.
func (f *Function) Detach() {
	f.fail(fmt.Errorf("detached: %w", context.Canceled))
	f.Client.Close()
	for _, v := range f.vectors {
		v.close()
	}
	f.vectors = nil
}

// Err is why the device is gone, nil while it is there.
func (f *Function) Err() error {
	if f.err == nil {
		if err := f.Client.Err(); err != nil {
			f.fail(err)
		}
	}
	return f.err
}

func (f *Function) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

// Read32 reads a register of BAR0, behind all writes before it.
func (f *Function) Read32(off uint32) uint32 {
	if f.err != nil {
		return 0xffffffff
	}
	v, err := f.Client.Read32(bar0, uint64(off))
	if err != nil {
		f.fail(fmt.Errorf("reading register %#x: %w", off, err))
		return 0xffffffff
	}
	return v
}

// Read64 reads a counter of BAR0.
func (f *Function) Read64(off uint32) uint64 {
	if f.err != nil {
		return ^uint64(0)
	}
	v, err := f.Client.Read64(bar0, uint64(off))
	if err != nil {
		f.fail(fmt.Errorf("reading register %#x: %w", off, err))
		return ^uint64(0)
	}
	return v
}

// Write32 posts a write to a register of BAR0, as a driver's writel does.
func (f *Function) Write32(off, v uint32) {
	if f.err != nil {
		return
	}
	write := f.Client.Post32
	if f.Pace != nil {
		write = f.Client.Write32
	}
	if err := write(bar0, uint64(off), v); err != nil {
		f.fail(fmt.Errorf("writing register %#x: %w", off, err))
	}
}

// flush is the drivers' barrier: a read behind the posted writes
// (ice_osdep.h:ice_flush).
func (f *Function) flush() { f.Read32(GLGEN_STAT) }

// alloc returns guest memory, or memory no device reaches when there is none
// left, in which case the function is as good as gone.
func (f *Function) alloc(size int) *Buf {
	b, err := f.Guest.Alloc(size)
	if err != nil {
		f.fail(err)
		return &Buf{b: make([]byte, size)}
	}
	return b
}

// poll repeats done until it holds. A device that is gone ends it.
func (f *Function) poll(what string, done func() bool) error {
	var start time.Time
	for n := 0; !done(); n++ {
		if f.Err() != nil {
			return f.err
		}
		if err := f.ctx.Err(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if n == 0 {
			start = time.Now()
		} else if time.Since(start) > f.Patience {
			return fmt.Errorf("%s: %w", what, ErrTimeout)
		}
		if f.Pace != nil {
			f.Pace()
		} else {
			yield(n)
		}
	}
	return f.Err()
}

// yield gives way in a loop that looks for something the n-th time in vain:
// first to goroutines, then to threads. On a busy machine the device may wait
// for the processor that this loop has.
func yield(n int) {
	const spins = 64
	runtime.Gosched()
	if n >= spins {
		unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	}
}

func (f *Function) config32(off int) uint32 {
	var b [4]byte
	f.readConfig(off, b[:])
	return binary.LittleEndian.Uint32(b[:])
}

func (f *Function) config16(off int) uint16 {
	var b [2]byte
	f.readConfig(off, b[:])
	return binary.LittleEndian.Uint16(b[:])
}

func (f *Function) readConfig(off int, p []byte) {
	if f.err != nil {
		return
	}
	if err := f.Client.ReadRegion(configRegion, uint64(off), p); err != nil {
		f.fail(fmt.Errorf("reading configuration space at %#x: %w", off, err))
	}
}

func (f *Function) setConfig16(off int, v uint16) {
	if f.err != nil {
		return
	}
	if err := f.Client.WriteRegion(configRegion, uint64(off), binary.LittleEndian.AppendUint16(nil, v)); err != nil {
		f.fail(fmt.Errorf("writing configuration space at %#x: %w", off, err))
	}
}

// capability finds a capability; 0 if there is none.
func (f *Function) capability(id uint8) int {
	if f.config16(pciStatus)&pciStatusCapList == 0 {
		return 0
	}
	off := int(f.config16(pciCapabilityList) & 0xfc)
	for n := 0; off != 0 && n < pciCfgSpaceSize/pciCapabilitySizeof; n++ {
		head := f.config16(off)
		if uint8(head) == id {
			return off
		}
		off = int(head >> 8 & 0xfc)
	}
	return 0
}

// SerialNumber reads the Device Serial Number; 0 if there is none.
func (f *Function) SerialNumber() uint64 {
	for off, n := pciCfgSpaceSize, 0; off != 0 && n < pciCfgSpaceExpSize/pciCapabilitySizeof; n++ {
		head := f.config32(off)
		if head&0xffff == pciExtCapIDDSN {
			return uint64(f.config32(off+8))<<32 | uint64(f.config32(off+4))
		}
		off = int(head >> 20)
	}
	return 0
}

// FLR does a function level reset, as `echo 1 > reset` in sysfs does, and sets
// the command register and MSI-X up again as the PCI core does afterwards.
func (f *Function) FLR() error {
	f.setConfig16(f.exp+pciExpDevCtl, f.config16(f.exp+pciExpDevCtl)|pciExpDevCtlFLR)
	if err := f.master(); err != nil {
		return err
	}
	if len(f.vectors) > 0 {
		f.enableMSIX()
	}
	return f.pendingTransactions()
}

func (f *Function) enableMSIX() {
	f.setConfig16(f.msix+pciMSIXFlags, f.config16(f.msix+pciMSIXFlags)|pciMSIXFlagsEnable)
}

// pendingTransactions waits until the function has none (pci_wait_for_pending_transaction).
func (f *Function) pendingTransactions() error {
	return f.poll("transactions pending", func() bool {
		return f.config16(f.exp+pciExpDevSta)&pciExpDevStaTrpnd == 0
	})
}
