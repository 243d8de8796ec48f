// SPDX-License-Identifier: Apache-2.0

package lan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"

	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// ram is guest memory at IOVA 0.
type ram struct {
	mu sync.Mutex
	b  [1 << 20]byte
}

func (r *ram) Read(iova uint64, p []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if iova > uint64(len(r.b)) || uint64(len(p)) > uint64(len(r.b))-iova {
		return fmt.Errorf("no memory at %#x", iova)
	}
	copy(p, r.b[iova:])
	return nil
}

func (r *ram) Write(iova uint64, p []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if iova > uint64(len(r.b)) || uint64(len(p)) > uint64(len(r.b))-iova {
		return fmt.Errorf("no memory at %#x", iova)
	}
	copy(r.b[iova:], p)
	return nil
}

func (r *ram) Store64(iova, v uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if iova+8 > uint64(len(r.b)) {
		return fmt.Errorf("no memory at %#x", iova)
	}
	binary.LittleEndian.PutUint64(r.b[iova:], v)
	return nil
}

func (r *ram) word(iova uint64) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return binary.LittleEndian.Uint64(r.b[iova:])
}

// fixture is a LAN unit on a running engine with queue 1 enabled on VSI 5.
type fixture struct {
	engine *engine.Engine
	*LAN
	*reg.Space
	mem  ram
	done chan int
	bad  chan any
}

const (
	cmdEOP = 1 << bitEOP
	cmdRS  = 1 << bitRS
	ctxTSO = 1 << bitTSO

	ring   = 0x1000
	ringN  = 32
	frames = 0x8000
	theVSI = 5
)

func newFixture(t *testing.T) *fixture {
	f := &fixture{done: make(chan int, 64), bad: make(chan any, 64)}
	e := engine.New(engine.Config{Shards: 2})
	t.Cleanup(e.Close)
	f.engine = e
	f.LAN = New(Config{Mem: &f.mem, Emit: func(e any) { f.bad <- e }, TxDone: func(q int) { f.done <- q }, Engine: e})
	f.Space = reg.NewSpace(32<<20, nil, f.Registers())
	if err := f.EnableTxQueue(1, testContext(ring, ringN)); err != nil {
		t.Fatal(err)
	}
	return f
}

// bell writes the tail of queue 1.
func (f *fixture) bell(tail uint32) {
	f.Write32(0x2C0000+4, tail)
	f.engine.Serve()
}

// testContext packs the fields that matter (ice_common.c:ice_tlan_ctx_info).
func testContext(base uint64, n uint64) (c [22]byte) {
	set := func(lsb int, v uint64) {
		for ; v != 0; lsb, v = lsb+1, v>>1 {
			c[lsb/8] |= byte(v&1) << (lsb % 8)
		}
	}
	set(0, base>>7)
	set(80, theVSI)
	set(135, n)
	set(152, 1)
	return c
}

// post writes a data descriptor for size bytes at buf into slot i.
func (f *fixture) post(i int, buf uint64, size int, cmd uint64) {
	_ = f.mem.Store64(ring+16*uint64(i), buf)
	_ = f.mem.Store64(ring+16*uint64(i)+8, cmd|uint64(size)<<34)
}

func TestTransmitCompletesAndCounts(t *testing.T) {
	f := newFixture(t)
	copy(f.mem.b[frames:], []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	copy(f.mem.b[frames+0x1000:], []byte{0x33, 0x33, 0, 0, 0, 1})
	f.post(0, frames, 42, cmdEOP|cmdRS)          // one short broadcast
	f.post(1, frames+0x1000, 100, 0)             // a multicast in two pieces
	f.post(2, frames+0x2000, 1400, cmdEOP|cmdRS) //
	f.bell(3)
	<-f.done
	for f.Read32(0xE0000+4) != 3 {
		<-f.done
	}
	for i, want := range []uint64{dtypeDone, dtypeData, dtypeDone} {
		if got := f.mem.word(ring+16*uint64(i)+8) & 0xf; got != want {
			t.Errorf("descriptor %d has type %d, want %d", i, got, want)
		}
	}
	for _, c := range []struct {
		name string
		off  uint32
		want uint32
	}{
		{"GLPRT_GOTCL(0)", 0x380B40, 64 + 1504}, {"GLPRT_BPTCL(0)", 0x381240, 1}, {"GLPRT_MPTCL(0)", 0x381200, 1}, {"GLPRT_UPTCL(0)", 0x3811C0, 0},
		{"GLPRT_PTC64L(0)", 0x380B80, 1}, {"GLPRT_PTC1522L(0)", 0x380CC0, 1}, {"GLPRT_GOTCL(1)", 0x380B48, 0},
		{"GLV_GOTCL(5)", 0x300000 + 8*theVSI, 42 + 1500}, {"GLV_BPTCL(5)", 0x30E000 + 8*theVSI, 1}, {"GLV_BPTCL(4)", 0x30E000 + 8*4, 0},
	} {
		if got := f.Read32(c.off); got != c.want {
			t.Errorf("%s = %d, want %d", c.name, got, c.want)
		}
	}
}

func TestRingWrapsAndMoreThanABurst(t *testing.T) {
	f := newFixture(t)
	total := 0
	for round := 0; round < 5; round++ { // 5 × 31 descriptors round a ring of 32
		for n := 0; n < ringN-1; n++ {
			f.post((total+n)%ringN, frames, 60, cmdEOP|cmdRS)
		}
		total += ringN - 1
		f.bell(uint32(total % ringN))
		for f.Read32(0xE0000+4) != uint32(total%ringN) {
			<-f.done
		}
	}
	if got := f.Read32(0x3811C0); got != uint32(total) {
		t.Errorf("GLPRT_UPTCL = %d, want %d", got, total)
	}
}

func TestDisabledQueueIsSilentAndReenabledStartsAtZero(t *testing.T) {
	f := newFixture(t)
	f.post(0, frames, 60, cmdEOP|cmdRS)
	f.DisableTxQueue(1)
	f.bell(1)
	if e := <-f.bad; e != (BadQueue{Queue: 1}) {
		t.Errorf("event %v", e)
	}
	if err := f.EnableTxQueue(1, testContext(ring, ringN)); err != nil {
		t.Fatal(err)
	}
	if got := f.Read32(0xE0000 + 4); got != 0 {
		t.Errorf("head %d after the queue was added again", got)
	}
	if got := f.mem.word(ring+8) & 0xf; got != dtypeData {
		t.Error("the old doorbell was executed")
	}
}

func TestHostileTransmit(t *testing.T) {
	for _, c := range []struct {
		name string
		post func(f *fixture) uint32 // returns the tail
	}{
		{"descriptor type", func(f *fixture) uint32 { f.post(0, frames, 60, 7); return 1 }},
		{"buffer outside memory", func(f *fixture) uint32 { f.post(0, 1<<40, 60, cmdEOP|cmdRS); return 1 }},
		{"runt", func(f *fixture) uint32 { f.post(0, frames, 5, cmdEOP|cmdRS); return 1 }},
		{"TSO", func(f *fixture) uint32 {
			f.post(0, 0, 0, dtypeContext|ctxTSO)
			f.post(1, frames, 9000, cmdEOP|cmdRS)
			return 2
		}},
		{"endless frame", func(f *fixture) uint32 {
			for i := 0; i < ringN-1; i++ {
				f.post(i, frames, 16383, 0)
			}
			f.post(ringN-2, frames, 60, cmdEOP|cmdRS)
			return ringN - 1
		}},
		{"tail beyond the ring", func(f *fixture) uint32 { return ringN }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			f.bell(c.post(f))
			t.Log(<-f.bad)
			if got := f.Read32(0x380B40); got != 0 {
				t.Errorf("GLPRT_GOTCL = %d: something was sent", got)
			}
		})
	}
	f := newFixture(t)
	if err := f.EnableTxQueue(Queues, testContext(ring, ringN)); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("queue beyond the limit: %v", err)
	}
	if err := f.EnableTxQueue(2, testContext(ring, 0)); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("empty ring: %v", err)
	}
	if err := f.EnableTxQueue(1, testContext(ring, ringN)); !errors.Is(err, syscall.EEXIST) {
		t.Errorf("running queue: %v", err)
	}
}

func TestReceiveEnableHandshake(t *testing.T) {
	f := newFixture(t)
	f.Write32(0x120000, qenaReq)
	if got := f.Read32(0x120000); got != qenaReq {
		t.Errorf("QRX_CTRL(0) = %#x without a context", got)
	}
	t.Log(<-f.bad)
	f.Write32(0x120000, 0)
	f.rxContext(0, rxConfig{base: 0x20000, n: 512, dbuf: 2048, max: 9728})
	f.Write32(0x290000, 248) // the tail comes before the enable
	f.Write32(0x120000, qenaReq)
	if got := f.Read32(0x120000); got != qenaReq|qenaStat {
		t.Errorf("QRX_CTRL(0) = %#x after the request", got)
	}
	if got := f.Read32(0x290000); got != 248 {
		t.Errorf("QRX_TAIL(0) = %d, want it kept", got)
	}
	f.Write32(0x120000, 0)
	if got := f.Read32(0x120000); got != 0 {
		t.Errorf("QRX_CTRL(0) = %#x after disabling", got)
	}
	f.Write32(0x120000+4*100, qenaReq)
	if e, got := <-f.bad, f.Read32(0x120000+4*100); got != 0 || e != (BadQueue{Queue: 100, Rx: true}) {
		t.Errorf("QRX_CTRL(100) = %#x, event %v", got, e)
	}
}

func TestResetStopsQueuesAndKeepsStatistics(t *testing.T) {
	f := newFixture(t)
	f.post(0, frames, 60, cmdEOP|cmdRS)
	f.bell(1)
	<-f.done
	f.rxContext(0, rxConfig{base: 0x20000, n: 512, dbuf: 2048, max: 9728})
	f.Write32(0x120000, qenaReq)
	f.LAN.Reset(reg.PFR)
	f.Space.Reset(reg.PFR)
	if f.Read32(0x120000) != 0 {
		t.Error("a receive queue survived the function reset")
	}
	if err := f.EnableTxQueue(1, testContext(ring, ringN)); err != nil {
		t.Errorf("a transmit queue survived the function reset: %v", err)
	}
	if f.Read32(0x3811C0) != 1 {
		t.Error("the function reset cleared statistics")
	}
	f.LAN.Reset(reg.CORER)
	if f.Read32(0x3811C0) != 0 {
		t.Error("the core reset kept statistics")
	}
}

func TestRegisterTable(t *testing.T) {
	f := newFixture(t)
	if err := f.Overlaps(); err != nil {
		t.Error(err)
	}
}
