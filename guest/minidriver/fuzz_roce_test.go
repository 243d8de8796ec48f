// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"bytes"
	"slices"
	"testing"
)

// FuzzRoCE lets the world send what it wants to a connected QP that has work of
// its own. Whatever it sends, the device lives, and writes to nothing but the
// memory that is open to the peer; and it goes on with the next connection.
//
// The input is a list of frames, each of them:
//
//	kind (1)     bit 0: the PSN counts from what the QP sends, not from what it
//	             expects; bit 1: over IPv6, which it is not; bit 2: to another
//	             QP; bit 3: AckReq; bit 4: no VA, key and length of memory that
//	             the peer may use are put in; bit 5: what follows the frame is a
//	             piece of its own to be changed
//	opcode (1), second byte of the BTH (1), PSN (2, signed)
//	headers (1)  behind the BTH in words, up to 15, then so many
//	length (2)   of the payload, up to 8191 bytes
//	place (2), change (1) if bit 5 says so: of a byte, ICRC notwithstanding
func FuzzRoCE(f *testing.F) {
	for _, seed := range roceSeeds() {
		f.Add(seed)
	}
	x := newRoceWorld(f, 1)
	i, w, r := x.i, x.w, x.r
	f.Fuzz(func(t *testing.T, program []byte) {
		w.t = t
		r.AEs, r.cqp.trace, i.aq.trace = nil, nil, nil
		a := x.connected(t, 0, 0)
		before := slices.Clone(a.mem.want)
		must(t, a.qp.PostRecv(RecvWR{ID: 1, SGEs: []SGE{a.sge(0, 3000)}}, RecvWR{ID: 2, SGEs: []SGE{a.sge(3000, 1000)}}))
		read := SendWR{ID: 3, Op: IRDMA_OP_TYPE_RDMA_READ, Signalled: true, SGEs: []SGE{a.sge(4000, 2000)}, RemoteAddr: 1, RKey: 2}
		must(t, a.qp.PostSend(read, a.send(4, 20_000, 700)))
		for len(program) > 0 {
			var frame []byte
			frame, program = roceInput(a, program)
			w.inject(frame)
		}
		// What was sent has been received when a later frame is in a queue. There
		// may be no room for the first such frame.
		must(t, i.F.poll("the mark", func() (seen bool) {
			must(t, r.Work())
			w.inject(mark(i.MAC[:], worldMAC))
			for _, q := range i.queues {
				for {
					x, ok, err := i.Receive(q)
					must(t, err)
					if !ok {
						break
					}
					seen = seen || bytes.Contains(x.Data, []byte("mark"))
				}
			}
			return seen
		}))
		for len(w.frames) > 0 {
			<-w.frames
		}
		must(t, a.qp.Destroy())
		must(t, i.F.Guest.Check())
		// The peer was let into the first 16 KiB.
		a.mem.want = before
		must(t, a.mem.check("memory that nobody opened", 16<<10, a.mem.Size-16<<10))
		a.qp.gone = true
		endSides(t, a)
	})
}

// roceInput makes the next frame of an input.
func roceInput(a *side, in []byte) (frame, rest []byte) {
	take := func(n int) (v uint64) {
		for range n {
			v <<= 8
			if len(in) > 0 {
				v |= uint64(in[0])
				in = in[1:]
			}
		}
		return v
	}
	at := &a.qp.Attr
	kind := take(1)
	r := roceFrame{dstMAC: a.qp.r.ICE.MAC, srcMAC: [6]byte(worldMAC), src: at.DestIP, dst: at.LocalIP, ttl: 9, qp: a.qp.ID, psn: at.RecvPSN,
		ack: kind&8 != 0, ipv6: kind&2 != 0}
	if kind&1 != 0 {
		r.psn = at.SendPSN
	}
	if kind&4 != 0 {
		r.qp++
	}
	r.opcode, r.flags = uint8(take(1)), uint8(take(1))
	r.psn += uint32(int16(take(2)))
	for range take(1) & 15 {
		r.ext = be.AppendUint32(r.ext, uint32(take(4)))
	}
	r.payload = make([]byte, take(2)&0x1fff)
	if kind&16 == 0 && len(r.ext) >= 16 { // into the first 16 KiB only
		copy(r.ext, reth(a.mem.mr.Addr(int(r.ext[7])), a.mem.mr.STag, be.Uint32(r.ext[12:])&0x1fff))
	}
	frame = r.bytes()
	if kind&32 != 0 {
		off, change := take(2), take(1)
		frame[12+int(off)%(len(frame)-12)] ^= byte(change)
	}
	return frame, in
}

// roceSeeds are inputs that get far.
func roceSeeds() (list [][]byte) {
	one := func(kind, opcode byte, psn int, words int, ext []byte, length int) []byte {
		b := []byte{kind, opcode, 0, byte(psn >> 8), byte(psn), byte(words)}
		return append(append(b, ext...), byte(length>>8), byte(length))
	}
	head := reth(0, 0, 600)
	list = append(list,
		slices.Concat(one(8, opSendFirst, 0, 0, nil, 256), one(0, opSendMiddle, 1, 0, nil, 256), one(8, opSendLast, 2, 0, nil, 7)),
		slices.Concat(one(0, opWriteFirst, 0, 4, head, 256), one(0, opWriteMiddle, 1, 0, nil, 256), one(8, opWriteLast, 2, 0, nil, 88)),
		slices.Concat(one(8, opReadRequest, 0, 4, head, 0), one(8, opReadRequest, 3, 4, head, 0), one(8, opReadRequest, 1, 4, head, 0)),
		slices.Concat(one(1, 0x0d, 0, 1, aeth(synACK, 0), 256), one(1, 0x0e, 1, 0, nil, 256), one(1, 0x0f, 7, 1, aeth(synACK, 1), 208)),
		one(8, opSendOnlyInv, 0, 1, []byte{0, 0, 0, 1}, 100),
		one(8, 0x09, 0, 1, []byte{0, 0, 0, 1}, 100),
		one(8, 0x0b, 0, 5, append(reth(0, 0, 100), 1, 2, 3, 4), 100),
		one(0, opCNP, 0, 4, make([]byte, 16), 0),
		one(0, opUD, 0, 2, make([]byte, 8), 100))
	for _, syndrome := range []uint8{synACK, synRNR, synSequence, 0x61, synAccess, 0x63, 0x64, 0x9f} {
		list = append(list, one(1, opAcknowledge, 3, 1, aeth(syndrome, 1), 0))
	}
	return list
}
