// SPDX-License-Identifier: Apache-2.0

package devmodel

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/fw"
	"github.com/vrnic/vrnic/devmodel/lan"
	"github.com/vrnic/vrnic/devmodel/pci"
)

// card is a device with a client: registers by offset and recorded messages.
type card struct {
	*Device
	t testing.TB

	mu     sync.Mutex
	sent   []int
	events []any
}

func newCard(t *testing.T) *card { return newCardOn(t, engine.Config{}) }

func newCardOn(t *testing.T, e engine.Config) *card {
	c := &card{t: t}
	c.Device = New(Config{MAC: [6]byte{2, 0, 0, 0, 0, 1}, Engine: e, Emit: func(event any) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.events = append(c.events, event)
	}})
	t.Cleanup(c.Close)
	c.attach()
	return c
}

func (c *card) attach() {
	c.Attach(func(index, vector int) {
		if index != msixIndex {
			c.t.Errorf("interrupt of index %d", index)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.sent = append(c.sent, vector)
	})
}

func (c *card) rd(off uint64) uint32 {
	c.t.Helper()
	var p [4]byte
	if err := c.ReadRegion(pci.RegisterBAR, off, p[:]); err != nil {
		c.t.Fatal(err)
	}
	return binary.LittleEndian.Uint32(p[:])
}

func (c *card) wr(off uint64, v uint32) {
	c.t.Helper()
	var p [4]byte
	binary.LittleEndian.PutUint32(p[:], v)
	if err := c.WriteRegion(pci.RegisterBAR, off, p[:]); err != nil {
		c.t.Fatal(err)
	}
}

// Offsets used here (ice_hw_autogen.h, icrdma_hw.h).
const (
	pfgenCtrl   = 0x91000
	rtrig       = 0xB8190
	rstat       = 0xB8188
	oicr        = 0x16CA00
	oicrEna     = 0x16C900
	oicrCtl     = 0x16CA80
	dynCtl0     = 0x160000
	fwATQLen    = 0x80200
	qrxCtrl     = 0x120000
	ccqpStatus  = 0x50A000
	ccqpHigh    = 0x50A100
	ccqpLow     = 0x50A080
	lbarCtrl    = 0x9DE74
	nvmULD      = 0xB6008
	cpuStatus0  = 0x50BA5C
	command     = 4
	pcieDevCtl  = 0xA8
	someUnnamed = 0x1FF0000
)

func TestTableIsConsistent(t *testing.T) {
	c := newCard(t)
	if err := c.regs.Overlaps(); err != nil {
		t.Error(err)
	}
	for _, r := range c.regs.Rows() {
		if r.Source == "" {
			t.Errorf("register %s has no source", r.Name)
		}
	}
	if fw.NumQueues != lan.Queues || fw.NumVectors != pci.Vectors {
		t.Errorf("firmware reports %d queues and %d vectors, the device has %d and %d", fw.NumQueues, fw.NumVectors, lan.Queues, pci.Vectors)
	}
}

func TestIdentity(t *testing.T) {
	c := newCard(t)
	for _, x := range []struct {
		name string
		off  uint64
		want uint32
	}{{"GLPCI_LBARCTRL", lbarCtrl, 0x20}, {"GLNVM_ULD", nvmULD, 0x73B}, {"GLPE_CPUSTATUS0", cpuStatus0, 0x80}, {"GLGEN_RSTAT", rstat, 0}} {
		if got := c.rd(x.off); got != x.want {
			t.Errorf("%s = %#x, want %#x", x.name, got, x.want)
		}
	}
}

func TestAccessOutsideRegions(t *testing.T) {
	c := newCard(t)
	for _, x := range []struct {
		region int
		off    uint64
		n      int
	}{{0, pci.RegisterSize, 4}, {0, pci.RegisterSize - 2, 4}, {0, ^uint64(0), 4}, {1, 0, 1}, {7, 4095, 2}, {-1, 0, 4}, {9, 0, 4}} {
		if err := c.ReadRegion(x.region, x.off, make([]byte, x.n)); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("read of region %d at %#x: %v", x.region, x.off, err)
		}
		if err := c.WriteRegion(x.region, x.off, make([]byte, x.n)); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("write of region %d at %#x: %v", x.region, x.off, err)
		}
	}
}

// dirty leaves traces in every unit.
func (c *card) dirty() {
	c.wr(qrxCtrl, 1)
	c.wr(fwATQLen, 1<<31|64)
	c.wr(oicrEna, 1<<20)
	c.wr(oicrCtl, 1<<30)
	c.wr(dynCtl0, 0x1B)
	c.wr(someUnnamed, 0x1234)
}

func TestResets(t *testing.T) {
	for _, x := range []struct {
		name       string
		do         func(c *card)
		keepsStray bool // a register without a row survives
	}{
		{"PFR", func(c *card) { c.wr(pfgenCtrl, 1) }, true},
		{"FLR", func(c *card) {
			if err := c.WriteRegion(configRegion, pcieDevCtl, []byte{0, 0x80}); err != nil {
				c.t.Fatal(err)
			}
		}, true},
		{"device reset", func(c *card) { c.Reset() }, false},
		{"new client", func(c *card) { c.Detach(); c.attach() }, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := newCard(t)
			c.dirty()
			x.do(c)
			for name, off := range map[string]uint64{"QRX_CTRL(0)": qrxCtrl, "PF_FW_ATQLEN": fwATQLen, "PFINT_OICR_ENA": oicrEna,
				"GLINT_DYN_CTL(0)": dynCtl0, "PFGEN_CTRL": pfgenCtrl, "PFPE_CCQPSTATUS": ccqpStatus} {
				if got := c.rd(off); got != 0 {
					t.Errorf("%s = %#x", name, got)
				}
			}
			if got := c.rd(someUnnamed); (got != 0) != x.keepsStray {
				t.Errorf("the register without a row reads %#x", got)
			}
		})
	}
}

func TestNoDMAWithoutBusMaster(t *testing.T) {
	c := newCard(t)
	f := ramFile(t, 1<<16)
	// A CQP context for a ring of 4 at 0x200, generation 2.
	ctx := make([]byte, 64)
	binary.LittleEndian.PutUint64(ctx[0:], 2<<3|1<<8)
	binary.LittleEndian.PutUint64(ctx[8:], 0x200)
	binary.LittleEndian.PutUint64(ctx[32:], 1<<16)
	if _, err := f.WriteAt(ctx, 0x1000); err != nil {
		t.Fatal(err)
	}
	if err := c.MapDMA(0, 1<<16, f, 0, true, true); err != nil {
		t.Fatal(err)
	}
	create := func() uint32 {
		c.wr(ccqpStatus, 0)
		c.wr(ccqpHigh, 0)
		c.wr(ccqpLow, 0x1000)
		return c.rd(ccqpStatus)
	}
	if got := create(); got&(1<<31) == 0 {
		t.Errorf("without bus mastering: PFPE_CCQPSTATUS = %#x, want an error", got)
	}
	if err := c.WriteRegion(configRegion, command, []byte{6, 0}); err != nil {
		t.Fatal(err)
	}
	if got := create(); got != 1 {
		t.Errorf("with bus mastering: PFPE_CCQPSTATUS = %#x, want 1", got)
	}
}

// Whatever a guest writes anywhere, its device survives and can be reset.
func TestRandomWritesThenReset(t *testing.T) {
	clock := &engine.ManualClock{}
	c := newCardOn(t, engine.Config{Clock: clock})
	rows := c.regs.Rows()
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 100000 {
		r := rows[rnd.IntN(len(rows))]
		off := uint64(r.Offset)
		if r.N > 1 {
			off += uint64(rnd.IntN(r.N)) * uint64(r.Stride)
		}
		if r.M > 1 {
			off += uint64(rnd.IntN(r.M)) * uint64(r.Stride2)
		}
		if rnd.IntN(4) == 0 {
			c.rd(off)
		}
		v := rnd.Uint32() >> rnd.IntN(32)
		if r.Name == "GLGEN_RTRIG" || r.Name == "PFGEN_CTRL" {
			// Resets wipe what was set up, and are slow under the race detector.
			if rnd.IntN(50) != 0 {
				v = 0
			}
		}
		c.wr(off, v)
		if c.rd(rstat)&3 != 0 {
			clock.Advance(globalResetDelay)
			clock.Advance(globalResetTime)
		}
	}
	c.wr(pfgenCtrl, 1)
	for c.rd(pfgenCtrl) != 0 {
		runtime.Gosched()
	}
	if got := c.rd(fwATQLen) | c.rd(qrxCtrl) | c.rd(dynCtl0) | c.rd(ccqpStatus); got != 0 {
		t.Errorf("registers read %#x after the function reset", got)
	}
}
