// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/vrnic/vrnic/devmodel/frame/frametest"
)

// nowhereAddress is in no map.
const nowhereAddress = 0x7000_0000_0000

// malice is something that no driver may do with a transmit queue.
type malice struct {
	name   string
	do     func(m *victim)
	source string
	rule   string
}

// victim is a queue with memory to point at.
type victim struct {
	t *testing.T
	i *ICE
	q *queuePair
	// frame is a TCP frame of frameSize bytes in a buffer.
	frame *Buf
}

// Words of descriptors for the frame of a victim.
const (
	frameHeaders = 54
	framePayload = 1000
	frameSize    = frameHeaders + framePayload

	frameOffsets = 14/2<<txMACLenBit | 20/4<<txIPLenBit | 20/4<<txL4LenBit
	frameTCP     = frameOffsets | txCmdIPv4Csum | txCmdTCP
	lastOne      = txCmdEOP | txCmdRS
)

func sized(n int) uint64 { return uint64(n) << txSizeBit }
func tsoWord(n, mss int) uint64 {
	return txDtypeContext | ctxCmdTSO | uint64(n)<<ctxTSOLenBit | uint64(mss)<<ctxMSSBit
}
func (m *victim) kick()         { m.i.Kick(m.q) }
func (m *victim) whole() uint64 { return sized(frameSize) | lastOne }
func (m *victim) post(w ...uint64) {
	for n := 0; n < len(w); n += 2 {
		m.q.post(w[n], w[n+1])
	}
	m.kick()
}

// tso posts the frame behind a context descriptor.
func (m *victim) tso(context0, context1, word uint64) {
	m.post(context0, context1, m.frame.IOVA, word|m.whole())
}

func malices() []malice {
	tx := func(name string, do func(m *victim)) malice {
		return malice{name: name, do: do, source: "TX_TCLAN", rule: "lan-descriptor"}
	}
	return []malice{
		{"tail beyond the ring", func(m *victim) { m.i.F.Write32(QTX_COMM_DBELL(m.q.id), ringLen) }, "TX_PQM", "lan-tail"},
		{"tail of all ones", func(m *victim) { m.i.F.Write32(QTX_COMM_DBELL(m.q.id), 0xffffffff) }, "TX_PQM", "lan-tail"},
		tx("zero length", func(m *victim) { m.post(m.frame.IOVA, lastOne) }),
		tx("zero length in a frame", func(m *victim) { m.post(m.frame.IOVA, sized(100), m.frame.IOVA, 0, m.frame.IOVA, sized(100)|lastOne) }),
		tx("no EOP", func(m *victim) { m.post(m.frame.IOVA, sized(frameSize)) }),
		tx("a context descriptor and nothing", func(m *victim) { m.post(0, tsoWord(framePayload, 500)) }),
		tx("a context descriptor in a frame", func(m *victim) { m.post(m.frame.IOVA, sized(100), 0, txDtypeContext, m.frame.IOVA, sized(100)|lastOne) }),
		tx("unmapped", func(m *victim) { m.post(nowhereAddress, sized(100)|lastOne) }),
		tx("half unmapped", func(m *victim) { m.post(m.i.F.Guest.lastByte()-49, sized(100)|lastOne) }),
		tx("an address that overflows", func(m *victim) { m.post(^uint64(0)-10, sized(100)|lastOne) }),
		tx("a type that is none", func(m *victim) { m.post(m.frame.IOVA, m.whole()|5) }),
		tx("runt", func(m *victim) { m.post(m.frame.IOVA, sized(13)|lastOne) }),
		tx("longer than the MAC sends", func(m *victim) { m.post(m.frame.IOVA, sized(16000)|lastOne) }),
		tx("MSS 0", func(m *victim) { m.tso(0, tsoWord(framePayload, 0), frameTCP) }),
		tx("MSS 63", func(m *victim) { m.tso(0, tsoWord(framePayload, 63), frameTCP) }),
		tx("MSS beyond the MAC", func(m *victim) { m.tso(0, tsoWord(framePayload, 16000), frameTCP) }),
		tx("TSO_LEN wrong", func(m *victim) { m.tso(0, tsoWord(framePayload+1, 500), frameTCP) }),
		tx("TSO_LEN 0", func(m *victim) { m.tso(0, tsoWord(0, 500), frameTCP) }),
		tx("segmentation of no protocol", func(m *victim) { m.tso(0, tsoWord(framePayload, 500), frameOffsets|txCmdIPv4Csum) }),
		tx("segmentation without IP", func(m *victim) { m.tso(0, tsoWord(framePayload, 500), frameOffsets|txCmdTCP) }),
		tx("headers beyond the frame", func(m *victim) {
			m.post(m.frame.IOVA, 127<<txMACLenBit|127<<txIPLenBit|15<<txL4LenBit|txCmdIPv4|txCmdTCP|sized(100)|lastOne)
		}),
		tx("a tunnel beyond the frame", func(m *victim) {
			m.tso(ctxIPv4|127<<ctxIPLenBit|ctxUDP|127<<ctxNATLenBit, tsoWord(framePayload, 500), frameTCP)
		}),
		tx("a ring that cannot be written", func(m *victim) { m.remake(m.i.F.Guest.ROM().IOVA) }),
		tx("a ring that is nowhere", func(m *victim) { m.remake(nowhereAddress) }),
	}
}

// remake adds the transmit queue anew with its ring elsewhere, and rings it.
func (m *victim) remake(iova uint64) {
	m.t.Helper()
	real := m.q.tx.IOVA
	m.q.tx.IOVA = iova
	must(m.t, m.i.dropTxQueue(m.q))
	must(m.t, m.i.addTxQueue(m.i.main, m.q))
	m.q.tx.IOVA = real
	m.i.F.Write32(QTX_COMM_DBELL(m.q.id), 1)
}

// What no driver may do stops the queue it is done with, and no other: it is
// latched, it interrupts, it is a finding, and the queue runs again when it is
// made anew.
func TestHostileTransmit(t *testing.T) {
	for list := range slices.Chunk(malices(), victims) {
		hostileTransmit(t, list)
	}
}

// victims are the queues of a card that get into trouble; one does not.
const victims = 7

func hostileTransmit(t *testing.T, list []malice) {
	t.Helper()
	i, w, complaints := wired(t, Linux61(), Options{CPUs: len(list) + 1})
	good := frametest.Build(t, etherLayer(i, true, 0x800), ipv4Layer(protoTCP), &layers.TCP{SrcPort: 1, DstPort: 2, ACK: true}, pattern(framePayload))
	if len(good) != frameSize {
		t.Fatalf("a frame of %d bytes", len(good))
	}
	b := i.F.alloc(16 << 10)
	copy(b.Bytes(), good)
	defer b.Free()
	healthy := i.queues[len(list)]
	pass := func(what string, q *queuePair) {
		t.Helper()
		s, err := i.Send(q, Packet{Data: good}, false)
		must(t, err)
		if err := i.Wait(s); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		sameFrame(t, what, w.next(), good)
	}
	for n, c := range list {
		m := &victim{t, i, i.queues[n], b}
		pass(c.name+": before", m.q)
		c.do(m)
		oicr := uint32(0)
		for oicr&oicrMalDetect == 0 {
			got, _, err := i.WaitMisc()
			if err != nil {
				t.Fatalf("%s: MAL_DETECT: %v", c.name, err)
			}
			oicr |= got
		}
		got, err := i.HandleMalice()
		must(t, err)
		if len(got) != 1 || got[0] != (Malice{c.source, m.q.id, i.PF}) {
			t.Errorf("%s: %+v, want %s and queue %d", c.name, got, c.source, m.q.id)
		}
		lines := complaints.take()
		if len(lines) != 1 || !strings.Contains(lines[0], "error["+c.rule+"] queue "+strconv.Itoa(m.q.id)) {
			t.Errorf("%s: findings %q, want one of %s for queue %d", c.name, lines, c.rule, m.q.id)
		}
		pass(c.name+": another queue", healthy)
		m.kick() // the queue is deaf
		i.F.flush()
		if extra := onWire(t, i, w, healthy); len(extra) != 0 {
			t.Errorf("%s: the wire has % x", c.name, extra[0])
		}
		must(t, i.Reopen(n))
		pass(c.name+": made anew", i.queues[n])
	}
	if oicr := i.F.Read32(PFINT_OICR); oicr != 0 {
		t.Errorf("PFINT_OICR is %#x at the end", oicr)
	}
	must(t, i.Remove())
	quiet(t, complaints)
}

// The same for receive queues: buffers, rings and contexts.
func TestHostileReceive(t *testing.T) {
	buffer := func(iova func(i *ICE) uint64) func(*ICE, *queuePair) {
		return func(i *ICE, q *queuePair) { q.rx.Store64(q.rxNext*rxDescSize, iova(i)) }
	}
	context := func(change func(b []byte)) func(*ICE, *queuePair) {
		return func(i *ICE, q *queuePair) {
			must(t, i.enableRx(q.id, false))
			b := rxContext(q)
			change(b)
			for n := range 8 {
				i.F.Write32(QRX_CONTEXT(n, q.id), le.Uint32(b[4*n:]))
			}
			i.F.Write32(QRX_CTRL(q.id), qrxCtrlQENAReq)
			i.F.flush()
		}
	}
	rom := func(i *ICE) uint64 { return i.F.Guest.ROM().IOVA }
	nowhere := func(*ICE) uint64 { return nowhereAddress }
	ring := func(iova func(i *ICE) uint64) func(*ICE, *queuePair) {
		return func(i *ICE, q *queuePair) {
			context(func(b []byte) {
				clear(b[4:11])
				putBits(b, 32, 57, iova(i)/128)
				putBits(b, 89, 13, ringLen)
			})(i, q)
		}
	}
	list := []trap{
		{"a buffer that is nowhere", buffer(nowhere), "lan-rx-descriptor", true},
		{"a buffer that overflows", buffer(func(*ICE) uint64 { return ^uint64(0) - 5 }), "lan-rx-descriptor", true},
		{"a buffer in the ROM", buffer(rom), "lan-rx-descriptor", true},
		{"a buffer at the end of memory", buffer(func(i *ICE) uint64 { return i.F.Guest.lastByte() - 20 }), "lan-rx-descriptor", true},
		{"a ring that is nowhere", ring(nowhere), "lan-rx-descriptor", true},
		{"a ring in the ROM", ring(rom), "lan-rx-descriptor", true},
		{"a ring of length 0", context(func(b []byte) {
			for n := range 13 {
				b[(89+n)/8] &^= 1 << ((89 + n) % 8)
			}
		}), "lan-rx-context", false},
		{"a head beyond the ring", context(func(b []byte) { putBits(b, 0, 13, ringLen) }), "lan-rx-context", false},
		{"header split without a header buffer", context(func(b []byte) { putBits(b, 114, 2, 1) }), "lan-rx-context", false},
	}
	for list := range slices.Chunk(list, victims) {
		hostileReceive(t, list)
	}
}

// trap is a receive queue that cannot be used.
type trap struct {
	name string
	do   func(i *ICE, q *queuePair)
	rule string
	// enabled: it shows when a frame comes; else when the queue is enabled.
	enabled bool
}

func hostileReceive(t *testing.T, list []trap) {
	t.Helper()
	i, w, complaints := wired(t, Linux61(), Options{CPUs: len(list) + 1})
	f := frametest.Build(t, etherLayer(i, false, 0x800), ipv4Layer(protoTCP), &layers.TCP{SrcPort: 1, DstPort: 2, ACK: true}, pattern(500))
	steer := func(n int) { must(t, i.SetRSSTable(bytes.Repeat([]byte{byte(n)}, i.Caps.RSSTable))) }
	pass := func(what string, n int) {
		t.Helper()
		steer(n)
		w.inject(f)
		got := collect(t, i, 1)[0]
		sameFrame(t, what, got.Data, f)
		if got.Queue != i.queues[n].id {
			t.Errorf("%s: queue %d, want %d", what, got.Queue, i.queues[n].id)
		}
	}
	for n, c := range list {
		q := i.queues[n]
		pass(c.name+": before", n)
		c.do(i, q)
		if c.enabled {
			steer(n)
			w.inject(f)
		}
		oicr, _, err := i.WaitMisc()
		if err != nil || oicr&oicrMalDetect == 0 {
			t.Fatalf("%s: OICR %#x, %v", c.name, oicr, err)
		}
		got, err := i.HandleMalice()
		must(t, err)
		if len(got) != 1 || got[0] != (Malice{"RX", q.id, i.PF}) {
			t.Errorf("%s: %+v, want RX and queue %d", c.name, got, q.id)
		}
		lines := complaints.take()
		if len(lines) != 1 || !strings.Contains(lines[0], "error["+c.rule+"] queue "+strconv.Itoa(q.id)) {
			t.Errorf("%s: findings %q, want one of %s for queue %d", c.name, lines, c.rule, q.id)
		}
		if stat := i.F.Read32(QRX_CTRL(q.id)); !c.enabled && stat&qrxCtrlQENAStat != 0 {
			t.Errorf("%s: QRX_CTRL %#x, the queue is enabled", c.name, stat)
		}
		// What comes for it now is dropped; others go on.
		steer(n)
		before := i.F.Read32(GLPRT_UPRC)
		w.inject(f)
		must(t, i.F.poll("a frame for a queue that is stopped", func() bool { return i.F.Read32(GLPRT_UPRC) != before }))
		pass(c.name+": another queue", len(list))
		must(t, i.Reopen(n))
		pass(c.name+": made anew", n)
	}
	must(t, i.Remove())
	quiet(t, complaints)
}
