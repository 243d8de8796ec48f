// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"bytes"
	"context"
	"encoding/binary"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/vrnic/vrnic/devmodel/frame/frametest"
)

// FuzzLAN lets a driver write what it wants into the rings of a queue pair, and
// the world send what it wants. Whatever they do, the device lives, writes to
// nothing but posted buffers and the rings, sends no frame that is none, and
// goes on with another queue pair and with this one once it is made anew.
//
// The input is a list of instructions: a byte that tells the kind, then
//
//	0 transmit descriptor: two words (16)
//	1 proper packet:       which (1), a mask over its first and its last
//	                       descriptor's second words (8)
//	2 transmit doorbell:   value (2); its highest bit: where the ring is filled
//	3 receive descriptor:  slot (1), two words (16)
//	4 receive tail:        value (2)
//	5 frame of the world:  length (1), that many bytes behind the addresses
//	6 proper frame:        which (1), its length's reduction (1), what to change (2),
//	                       how (1)
//	7 receive context:     word (1), value (4), and the queue is enabled anew
//
// A word whose highest byte is 'G' is an address in scratch memory; other
// addresses are nowhere, or in the ROM.
func FuzzLAN(f *testing.F) {
	for _, seed := range lanSeeds() {
		f.Add(seed)
	}
	// The mark goes to the queue that nothing else does.
	markFrame := frametest.Build(f, &layers.Ethernet{SrcMAC: worldMAC, DstMAC: worldMAC, EthernetType: 0x800}, ipv4Layer(protoUDP), &layers.UDP{SrcPort: 77, DstPort: 78}, pattern(64))
	i, w, complaints := wiredIn(f, context.Background(), Linux612(), Options{})
	i.F.Patience = fuzzPatience
	copy(markFrame, i.MAC[:])
	key, lut := bytes.Repeat([]byte{1, 0x5a, 0x77}, 14), make([]byte, i.Caps.RSSTable)
	lut[toeplitz(key, tuple(markFrame, 14, 34))%uint32(len(lut))] = 1
	for _, err := range []error{i.SetRSSKey(key), i.SetRSSTable(lut), i.AddVLAN(100), i.OpenTunnelPort(0, 4789)} {
		if err != nil {
			f.Fatal(err)
		}
	}
	frames := worldFrames(f, i)
	scratch := i.F.alloc(64 << 10)
	copy(scratch.Bytes(), pattern(64<<10))
	f.Fuzz(func(t *testing.T, program []byte) {
		w.t = t
		packets := segmentations(t, i)
		m := &lanFuzz{i: i, w: w, scratch: scratch, packets: packets, frames: frames}
		m.run(program)
		i.F.flush()
		must(t, i.F.Err())
		// What the world has sent has come when the mark has.
		w.inject(markFrame)
		must(t, i.F.poll("mark", func() bool {
			got, ok, err := i.Receive(i.queues[1])
			must(t, err)
			return ok && bytes.Equal(got.Data, markFrame)
		}))
		must(t, i.Reopen(0))
		i.mem.free(m.bufs...)
		for _, f := range onWire(t, i, w, i.queues[1]) {
			if len(f) < 60 || len(f) > maxFrame {
				t.Errorf("a frame of %d bytes", len(f))
			}
		}
		i.F.Read32(PFINT_OICR)
		_, err := i.HandleMalice()
		must(t, err)
		i.rearm(i.misc)
		i.misc.Take()
		complaints.take()
		// Both go on as ever.
		good := packets[0]
		first := good.make(cut{first: true}, pattern(good.size)[:good.mss])
		s, err := i.Send(i.queues[0], good.super(first, pattern(good.size)), false)
		must(t, err)
		must(t, i.Wait(s))
		sameFrame(t, "afterwards", w.next(), first)
		if n := len(onWire(t, i, w, i.queues[0])); n != (good.size-1)/good.mss {
			t.Errorf("%d further segments", n)
		}
		w.inject(frames[0])
		sameFrame(t, "afterwards", collect(t, i, 1)[0].Data, frames[0])
		i.aq.trace = nil
		must(t, i.F.Guest.Check())
	})
}

// worldFrames are frames of all kinds that the world may send.
func worldFrames(t testing.TB, i *ICE) [][]byte {
	eth := func(t layers.EthernetType) *layers.Ethernet { return etherLayer(i, false, t) }
	tcp := &layers.TCP{SrcPort: 1, DstPort: 2, ACK: true}
	udp := &layers.UDP{SrcPort: 9, DstPort: 4789}
	return [][]byte{
		frametest.Build(t, eth(0x88b6), pattern(200)),
		frametest.Build(t, eth(0x800), ipv4Layer(protoTCP), tcp, pattern(1400)),
		frametest.Build(t, eth(0x86dd), ipv6Layer(protoSCTP), &layers.SCTP{}, pattern(100)),
		frametest.Build(t, eth(0x8100), &layers.Dot1Q{VLANIdentifier: 100, Type: 0x86dd}, ipv6Layer(protoUDP), udp, pattern(100)),
		frametest.Build(t, eth(0x800), ipv4Layer(protoUDP), udp, &layers.VXLAN{ValidIDFlag: true}, eth(0x800), ipv4Layer(protoTCP), tcp, pattern(1300)),
		frametest.Build(t, eth(0x86dd), ipv6Layer(protoGRE), &layers.GRE{Protocol: 0x6558, KeyPresent: true}, eth(0x86dd), ipv6Layer(protoTCP), tcp, pattern(700)),
		frametest.Build(t, eth(0x800), ipv4Layer(protoIPIP), ipv4Layer(1), &layers.ICMPv4{TypeCode: 0x800}, pattern(56)),
		frametest.Build(t, eth(0x88b6), pattern(9700)),
	}
}

// lanFuzz executes an input.
type lanFuzz struct {
	i       *ICE
	w       *wire
	scratch *Buf
	packets []segmentation
	frames  [][]byte
	bufs    []*Buf // of packets sent
}

// address makes an address of a word; scratch memory goes on for 32 KiB there.
func (m *lanFuzz) address(w uint64) uint64 {
	switch {
	case w>>56 == 'G':
		return m.scratch.IOVA + w&0x7fff
	case w>>56 == 'R':
		return m.i.F.Guest.ROM().IOVA + w&0xffff
	}
	return w | 1<<62
}

func (m *lanFuzz) run(p []byte) {
	take := func(n int) []byte {
		b := make([]byte, n)
		p = p[copy(b, p):]
		return b
	}
	f, q := m.i.F, m.i.queues[0]
	for n := 0; len(p) > 0 && n < 64; n++ {
		switch take(1)[0] & 7 {
		case 0:
			w0, w1 := le.Uint64(take(8)), le.Uint64(take(8))
			if w1&txDtypeMask == txDtypeData {
				w0 = m.address(w0)
			}
			q.post(w0, w1)
		case 1:
			c := m.packets[int(take(1)[0])%len(m.packets)]
			mask := le.Uint64(take(8))
			data := pattern(c.size)
			first := q.txNext
			s, err := m.i.Send(q, c.super(c.make(cut{first: true}, data[:min(c.mss, c.size)]), data), true)
			if err != nil {
				break
			}
			m.bufs = append(m.bufs, s.bufs...)
			for _, slot := range []int{first, s.last} {
				b := q.tx.Bytes()[slot*txDescSize+8:]
				le.PutUint64(b, le.Uint64(b)^mask)
			}
		case 2:
			v := uint32(le.Uint16(take(2)))
			if v>>15 != 0 {
				v = uint32(q.txNext)
			}
			f.Write32(QTX_COMM_DBELL(q.id), v)
		case 3:
			at := int(take(1)[0]) * rxDescSize
			for k := range 2 {
				q.rx.Store64(at+8*k, m.address(le.Uint64(take(8))))
			}
		case 4:
			f.Write32(QRX_TAIL(q.id), uint32(le.Uint16(take(2))))
		case 5:
			m.w.inject(append(append(bytes.Clone(m.i.MAC[:]), worldMAC...), take(2+int(take(1)[0]))...))
		case 6:
			b := bytes.Clone(m.frames[int(take(1)[0])%len(m.frames)])
			b = b[:max(60, len(b)-int(take(1)[0]))]
			at, how := int(le.Uint16(take(2)))%len(b), take(1)[0]
			if at >= 12 { // the addresses stay
				b[at] ^= how
			}
			m.w.inject(b)
		case 7:
			m.context(q, int(take(1)[0]), le.Uint32(take(4)))
		}
	}
}

// context changes a word of the receive context, but for where the ring is and
// how long, and lets all buffers be in scratch memory: they may be large then.
func (m *lanFuzz) context(q *queuePair, word int, v uint32) {
	f := m.i.F
	f.Write32(QRX_CTRL(q.id), 0)
	f.flush()
	for slot := range ringLen {
		q.rx.Store64(slot*rxDescSize, m.scratch.IOVA+uint64(slot)*64)
		q.rx.Store64(slot*rxDescSize+8, m.scratch.IOVA+0x8000)
	}
	const qlen3 = 1<<6 - 1 // what of qlen is in word 3
	word %= 8
	old := f.Read32(QRX_CONTEXT(word, q.id))
	switch word {
	case 1, 2:
		v = old
	case 3:
		v = v&^qlen3 | old&qlen3
	}
	f.Write32(QRX_CONTEXT(word, q.id), v)
	f.Write32(QRX_CTRL(q.id), qrxCtrlQENAReq)
}

// lanSeeds are inputs that come to all of it.
func lanSeeds() (list [][]byte) {
	words := func(kind byte, w ...uint64) []byte {
		b := []byte{kind}
		for _, v := range w {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
		return b
	}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	const g = 'G' << 56
	ring := []byte{2, 0xff, 0xff}
	for n := range byte(20) {
		list = append(list, join([]byte{1, n}, make([]byte, 8), ring))
	}
	for bit := range 64 {
		list = append(list, join([]byte{1, byte(bit)}, binary.LittleEndian.AppendUint64(nil, 1<<bit), ring, words(0, g, sized(60)|lastOne), ring))
	}
	list = append(list,
		join(words(0, g, sized(100)|lastOne), words(0, g|0x800, sized(9000)), words(0, g, sized(500)|lastOne), ring),
		join(words(0, g, sized(9728)|lastOne|txCmdIL2TAG1), ring),
		join(words(0, 0x2005<<32, txDtypeContext|ctxCmdIL2TAG2), words(0, g, sized(60)|lastOne|txCmdIL2TAG1), ring),
		join(words(0, 'R'<<56, sized(60)|lastOne), ring),
		join(words(0, 5, sized(60)|lastOne), ring),
		join(words(0, g, 8), words(0, g, sized(512)|lastOne|0x410<<4), ring),
		[]byte{2, 0, 1}, []byte{2, 5, 0}, []byte{2, 0xff, 0x7f},
		[]byte{5, 46}, join([]byte{5, 60, 8, 0, 0x45, 0, 0, 60}, make([]byte, 56)),
	)
	for n := range byte(8) {
		list = append(list, []byte{6, n, 0, 0, 0, 0}, []byte{6, n, 9, 50, 0, 1}, []byte{7, n, 0xff, 0xff, 0xff, 0xff, 6, 1, 0, 0, 0, 0, 6, 7, 0, 0, 0, 0})
	}
	list = append(list,
		join(words(3, 5, 5)[:1], []byte{0}, words(3, 5, 5)[1:], []byte{6, 1, 0, 0, 0, 0}),
		join([]byte{3, 0}, words(0, 'R'<<56, g)[1:], []byte{6, 1, 0, 0, 0, 0}),
		join([]byte{3, 0}, words(0, g, g)[1:], []byte{4, 1, 0, 6, 1, 0, 0, 0, 0, 6, 1, 0, 0, 0, 0}),
		[]byte{4, 0xff, 0x1f, 6, 7, 0, 0, 0, 0},
		// Header split at all points, small buffers, FCS kept.
		[]byte{7, 3, 0x40, 0xa0, 0x14, 0x0f, 6, 1, 0, 0, 0, 0, 6, 4, 0, 0, 0, 0, 6, 5, 0, 0, 0, 0},
	)
	return list
}
