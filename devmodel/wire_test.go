// SPDX-License-Identifier: Apache-2.0

package devmodel

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/lan"
)

// crossed is a wire to one other card.
type crossed struct{ to *Device }

func (c *crossed) Send(f []byte) { c.to.Receive(f) }

// station is a card with 1 MiB of memory at IOVA 0, a VSI that takes all, a
// transmit and a receive queue, number 0 both, on vector 1.
type station struct {
	*card
	memory []byte
}

func newStation(t testing.TB, shared *engine.Engine, wire *crossed) *station {
	c := &card{t: t}
	c.Device = New(Config{Shared: shared, Wire: wire, Emit: func(e any) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.events = append(c.events, e)
	}})
	c.attach()
	fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "guest")
	defer f.Close()
	const size = 1 << 20
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	s := &station{card: c}
	if s.memory, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(s.memory) })
	if err := c.MapDMA(0, size, f, 0, true, true); err != nil {
		t.Fatal(err)
	}
	s.master(true)
	s.lan.Steer(&lan.Steering{Link: true, Default: []uint16{1},
		VSIs: map[uint16]*lan.VSI{1: {Number: 1, Queues: []uint16{0}, LAN: true}}})
	s.enable()
	return s
}

func (s *station) master(on bool) {
	var v [2]byte
	if on {
		v[0] = 6
	}
	if err := s.WriteRegion(configRegion, command, v[:]); err != nil {
		s.t.Fatal(err)
	}
}

// Where a station has things.
const (
	txRingAt, rxRingAt = 0x1000, 0x2000
	txDataAt, rxDataAt = 0x10000, 0x20000
	ringEntries        = 64
)

// enable makes both queues: all but one receive descriptors are posted.
func (s *station) enable() {
	var tx [22]byte
	field := func(c []byte, lsb int, v uint64) {
		for ; v != 0; lsb, v = lsb+1, v>>1 {
			c[lsb/8] |= byte(v&1) << (lsb % 8)
		}
	}
	field(tx[:], 0, txRingAt>>7)
	field(tx[:], 80, 1)
	field(tx[:], 135, ringEntries)
	field(tx[:], 152, 1) // tso_ena
	if err := s.lan.EnableTxQueue(0, tx); err != nil {
		s.t.Fatal(err)
	}
	var rx [32]byte
	field(rx[:], 32, rxRingAt>>7)
	field(rx[:], 89, ringEntries)
	field(rx[:], 102, 16)
	field(rx[:], 116, 3) // dsize, crcstrip
	field(rx[:], 174, 9728)
	for i := range 8 {
		s.wr(0x280000+uint64(i)*0x2000, binary.LittleEndian.Uint32(rx[4*i:]))
	}
	for i := range ringEntries {
		binary.LittleEndian.PutUint64(s.memory[rxRingAt+32*i:], rxDataAt+uint64(i)*2048)
		binary.LittleEndian.PutUint64(s.memory[rxRingAt+32*i+8:], 0)
	}
	s.wr(0x480000, 2)
	s.wr(0x290000, ringEntries-1)
	s.wr(0x150000, 1<<30|1) // QINT_RQCTL
	s.wr(0x160004, 0x1b)    // GLINT_DYN_CTL(1)
	s.wr(qrxCtrl, 1)
	if s.rd(qrxCtrl) != 5 {
		s.t.Fatalf("QRX_CTRL %#x", s.rd(qrxCtrl))
	}
}

// send transmits one frame by slot i of the ring.
func (s *station) send(i int, f []byte) {
	copy(s.memory[txDataAt:], f)
	binary.LittleEndian.PutUint64(s.memory[txRingAt+16*i:], txDataAt)
	binary.LittleEndian.PutUint64(s.memory[txRingAt+16*i+8:], 3<<4|uint64(len(f))<<34) // EOP, RS
	s.wr(0x2C0000, uint32(i+1))
	s.engine.Drain(100)
}

func (s *station) received(i int) bool { return s.memory[rxRingAt+32*i+8]&1 != 0 }

// Two cards that share an engine: a frame goes from one guest's memory to the
// other's in one step, and neither a reset nor the end of one card stops the
// other.
func TestTwoCardsOnAWire(t *testing.T) {
	shared := engine.New(engine.Config{Manual: true, Clock: &engine.ManualClock{}})
	defer shared.Close()
	toA, toB := &crossed{}, &crossed{}
	a, b := newStation(t, shared, toB), newStation(t, shared, toA)
	toA.to, toB.to = a.Device, b.Device
	f := bytes.Repeat([]byte{2, 4, 6, 8, 10, 12, 14, 16}, 100)
	a.send(0, f)
	if !b.received(0) || !bytes.Equal(b.memory[rxDataAt:rxDataAt+len(f)], f) {
		t.Fatal("the frame did not arrive")
	}
	b.mu.Lock()
	if len(b.sent) != 1 || b.sent[0] != 1 {
		t.Errorf("messages %v", b.sent)
	}
	b.mu.Unlock()
	b.send(0, f)
	if !a.received(0) {
		t.Error("no answer")
	}
	b.master(false)
	if a.send(1, f); b.received(1) {
		t.Error("a function that is no bus master wrote")
	}
	b.master(true)
	if a.send(2, f); !b.received(1) {
		t.Error("nothing arrives after bus mastering is on again")
	}
	b.wr(pfgenCtrl, 1)
	if a.send(3, f); b.received(2) {
		t.Error("a frame arrived after the reset")
	}
	b.Close()
	a.send(4, f)
	a.master(true)
	if a.rd(0xE0000) != 5 {
		t.Errorf("the other card's queue stands at %d", a.rd(0xE0000))
	}
	a.Close()
	for _, e := range append(a.events, b.events...) {
		switch e.(type) {
		case lan.BadTxDescriptor, lan.BadRxDescriptor, lan.BadRxContext, lan.BadQueue:
			t.Errorf("event %v", e)
		}
	}
}

// One operation is a TCP packet of 64 KiB that becomes 45 frames in another
// guest's memory.
func BenchmarkWire(b *testing.B) {
	shared := engine.New(engine.Config{Manual: true})
	defer shared.Close()
	toB := &crossed{}
	from, to := newStation(b, shared, toB), newStation(b, shared, &crossed{})
	toB.to = to.Device
	defer from.Close()
	defer to.Close()
	const (
		mss    = 1448
		length = 45 * mss
	)
	header := from.memory[txDataAt:]
	copy(header, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2})
	copy(header[46:], []byte{0x50, 0x10, 1, 0})
	put := binary.LittleEndian.PutUint64
	const word = 7<<16 | 5<<23 | 5<<30 | 3<<9 | 1<<12 // lengths, IPv4 with checksum, TCP
	b.SetBytes(length)
	b.ReportAllocs()
	slot, tail := 0, uint32(ringEntries-1)
	for b.Loop() {
		next := func(w0, w1 uint64) {
			put(from.memory[txRingAt+16*slot:], w0)
			put(from.memory[txRingAt+16*slot+8:], w1)
			slot = (slot + 1) % ringEntries
		}
		next(0, 1|1<<4|length<<30|mss<<50)
		next(txDataAt, word|54<<34)
		for i := range 5 {
			cmd := uint64(word | length/5<<34)
			if i == 4 {
				cmd |= 3 << 4
			}
			next(txDataAt+64, cmd)
		}
		from.wr(0x2C0000, uint32(slot))
		shared.Drain(100)
		for i := range ringEntries {
			put(to.memory[rxRingAt+32*i:], rxDataAt+uint64(i)*2048)
		}
		tail = (tail + 45) % ringEntries
		to.wr(0x290000, tail)
	}
	if n := to.rd(0x294C04 + 4); n != 0 {
		b.Errorf("%d frames dropped", n)
	}
}
