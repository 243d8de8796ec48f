// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"math/rand/v2"
	"os"
	"time"

	"github.com/vrnic/vrnic/devmodel/reg"
	vfiouser "github.com/vrnic/vrnic/vfio-user"
)

const barSize = 32 << 20

// storm does to one function what no driver would.
type storm struct {
	rnd   *rand.Rand
	table []reg.Row
	f     *Function
	g     *Guest
	soup  *soup
	reset func(what string) // from outside

	actions int // at most so many in a life

	// What is left of drivers that were in order once.
	m    *machine
	a, b *side
	dead bool   // the admin queue does not answer any more
	at   uint32 // of the sweep over all offsets
}

// action is one thing that a storm does, so many times as often as others.
type action struct {
	name   string
	weight int
	do     func(s *storm)
}

var stormActions = []action{
	{"registers", 8, (*storm).registers},
	{"offsets", 4, (*storm).sweep},
	{"reads", 2, (*storm).reads},
	{"control queues", 3, (*storm).controlQueues},
	{"admin command", 3, (*storm).adminCommand},
	{"CQP", 3, (*storm).createCQP},
	{"control WQEs", 8, (*storm).controlWQEs},
	{"work queues", 8, (*storm).workQueues},
	{"LAN queues", 3, (*storm).lanQueues},
	{"interrupts", 3, (*storm).interrupts},
	{"maps", 4, (*storm).maps},
	{"soup", 4, func(s *storm) { _ = s.soup.stir(64) }},
	{"truncation", 1, (*storm).truncate},
	{"configuration space", 1, (*storm).configSpace},
	{"resets", 1, (*storm).resets},
}

// act does one thing.
func (s *storm) act() string {
	total := 0
	for _, a := range stormActions {
		total += a.weight
	}
	n := s.rnd.IntN(total)
	for _, a := range stormActions {
		if n -= a.weight; n < 0 {
			a.do(s)
			return a.name
		}
	}
	return ""
}

func (s *storm) value() uint32 {
	rnd := s.rnd
	switch rnd.IntN(6) {
	case 0:
		return rnd.Uint32N(2048)
	case 1:
		return 1 << rnd.IntN(32)
	case 2, 3:
		return uint32(s.soup.address() >> (32 * rnd.IntN(2)))
	case 4:
		return rnd.Uint32N(2048) | ctrlqLenEnable
	}
	return rnd.Uint32()
}

// offset is that of a register of the table, any element of it.
func (s *storm) offset() uint32 {
	row := &s.table[s.rnd.IntN(len(s.table))]
	n, m := max(row.N, 1), max(row.M, 1)
	// Mostly one of the first: those are in use.
	if s.rnd.IntN(2) == 0 {
		n, m = min(n, 8), min(m, 8)
	}
	return row.Offset + uint32(s.rnd.IntN(n))*row.Stride + uint32(s.rnd.IntN(m))*row.Stride2
}

// isReset says that a write there would end everything else too often.
func isReset(off uint32) bool { return off == PFGEN_CTRL || off == GLGEN_RTRIG }

// registers writes registers of the table, in all widths, in all kinds of
// messages.
func (s *storm) registers() {
	var batch []vfiouser.RegionWriteOp
	for range 1 + s.rnd.IntN(200) {
		off := s.offset()
		if isReset(off) && s.rnd.IntN(200) > 0 {
			continue
		}
		data := le.AppendUint32(nil, s.value())
		if s.rnd.IntN(20) == 0 {
			data = le.AppendUint32(data, s.value())[:1<<s.rnd.IntN(4)]
			off += s.rnd.Uint32N(2) * s.rnd.Uint32N(4)
		}
		batch = append(batch, vfiouser.RegionWriteOp{Region: bar0, Offset: uint64(off), Data: data})
	}
	switch s.rnd.IntN(3) {
	case 0:
		s.posted(s.f.Client.PostRegions(batch))
	case 1:
		for _, w := range batch {
			s.posted(s.f.Client.PostRegion(w.Region, w.Offset, w.Data))
		}
	default:
		for _, w := range batch[:min(len(batch), 20)] {
			_ = s.f.Client.WriteRegion(w.Region, w.Offset, w.Data)
		}
	}
}

func (s *storm) posted(err error) {
	if err != nil {
		s.f.fail(err)
	}
}

// sweep goes on with a walk that comes to every offset of BAR0 once, in an order
// that is none.
func (s *storm) sweep() {
	const words, step = barSize / 4, 4_194_301 // coprime
	batch := make([]vfiouser.RegionWriteOp, 0, 1000)
	for range cap(batch) {
		s.at = (s.at + step) % words
		if isReset(s.at * 4) {
			continue
		}
		batch = append(batch, vfiouser.RegionWriteOp{Region: bar0, Offset: uint64(s.at) * 4, Data: le.AppendUint32(nil, s.value())})
	}
	s.posted(s.f.Client.PostRegions(batch))
}

// reads takes odd pieces of all regions.
func (s *storm) reads() {
	for range 10 {
		p := make([]byte, 1+s.rnd.IntN(40))
		_ = s.f.Client.ReadRegion(s.rnd.IntN(9), uint64(s.offset())+s.rnd.Uint64N(4), p)
		s.f.Read32(s.offset())
	}
}

// controlQueues points the rings of the firmware, the mailbox and the sideband
// somewhere and rings.
func (s *storm) controlQueues() {
	const sbSend, sbRecv = 0x0022fc00, 0x0022ff80 // PF_SB_ATQBAL, PF_SB_ARQBAL
	rings := []ctrlRegs{
		{PF_FW_ATQBAL, PF_FW_ATQBAH, PF_FW_ATQLEN, PF_FW_ATQH, PF_FW_ATQT},
		{PF_FW_ARQBAL, PF_FW_ARQBAH, PF_FW_ARQLEN, PF_FW_ARQH, PF_FW_ARQT},
		{PF_MBX_ATQBAL, PF_MBX_ATQBAH, PF_MBX_ATQLEN, PF_MBX_ATQH, PF_MBX_ATQT},
		{PF_MBX_ARQBAL, PF_MBX_ARQBAH, PF_MBX_ARQLEN, PF_MBX_ARQH, PF_MBX_ARQT},
		{sbSend, sbSend + 0x80, sbSend + 0x100, sbSend + 0x180, sbSend + 0x200},
		{sbRecv, sbRecv + 0x80, sbRecv + 0x100, sbRecv + 0x180, sbRecv + 0x200},
	}
	r := rings[s.rnd.IntN(len(rings))]
	addr, n := s.soup.address(), s.rnd.Uint32N(1024)
	f := s.f
	f.Write32(r.head, s.rnd.Uint32N(2)*s.value())
	f.Write32(r.tail, s.rnd.Uint32N(2)*s.value())
	f.Write32(r.length, n|ctrlqLenEnable)
	f.Write32(r.bal, uint32(addr))
	f.Write32(r.bah, uint32(addr>>32))
	for range 3 {
		f.Write32(r.tail, s.rnd.Uint32N(n+2))
	}
}

// command sends an admin command to a device which may be dead: then no others
// are sent.
func (s *storm) command(c *Command) {
	s.f.Patience = 5 * time.Millisecond
	if err := s.m.i.Do(c); err != nil && aqCode(err) == AQOK {
		s.dead = true
	}
	s.f.Patience = Patience
}

// adminCommand sends a command through the driver's own queue.
func (s *storm) adminCommand() {
	for n := 0; n < 4 && s.m != nil && s.m.i.aq.send.entries > 0 && !s.dead; n++ {
		c := &Command{Op: stormOpcodes[s.rnd.IntN(len(stormOpcodes))]}
		for n := 0; n < 16; n += 4 {
			le.PutUint32(c.P[n:], s.rnd.Uint32()>>s.rnd.IntN(32))
		}
		if s.rnd.IntN(4) > 0 {
			c.Buf, c.RD = make([]byte, s.rnd.IntN(aqBufSize)), s.rnd.IntN(4) > 0
			for n := 0; n+8 < len(c.Buf) && n < 512; n += 8 {
				le.PutUint64(c.Buf[n:], s.soup.word())
			}
		}
		b := s.m.i.aq.send.bufs[s.m.i.aq.send.next]
		good := b.IOVA
		if s.rnd.IntN(3) == 0 { // its buffer is anywhere
			b.IOVA = s.soup.address()
		}
		s.command(c)
		b.IOVA = good
	}
}

// createCQP makes control QPs of contexts that lie anywhere.
func (s *storm) createCQP() {
	addr := s.soup.address()
	s.f.Write32(PFPE_CCQPHIGH, 0)
	s.f.Write32(PFPE_CCQPLOW, 0)
	s.f.Write32(PFPE_CCQPHIGH, uint32(addr>>32))
	s.f.Write32(PFPE_CCQPLOW, uint32(addr))
	for range 4 {
		s.f.Write32(PFPE_CQPDB, s.rnd.Uint32N(2049))
	}
}

// controlWQEs posts operations on all objects with addresses and numbers that
// are anything, also to a control QP that is in order.
func (s *storm) controlWQEs() {
	if s.m == nil || s.m.r == nil || s.m.r.cqp.ring == nil {
		s.createCQP()
		return
	}
	q := &s.m.r.cqp
	for range 1 + s.rnd.IntN(20) {
		var w WQE
		for k := range w {
			w[k] = s.soup.word()
		}
		w[3] &^= 0x3f<<wqeOpcodeBit | wqeValid
		if s.rnd.IntN(2) == 0 { // of an object that may exist
			w[3] = w[3]&^0xffffff | s.rnd.Uint64N(16)
		}
		if q.used() == cqpSize-1 {
			q.tail = q.head // nobody takes completions here
		}
		_, _ = q.post(uint8(s.rnd.IntN(0x40)), w)
	}
	if s.rnd.IntN(8) == 0 {
		s.f.Write32(PFHMC_PDINV, s.value())
	}
	q.doorbell()
}

// workQueues writes into the rings, contexts and shadow areas of two queue pairs
// and rings all doorbells that a program or a kernel has.
func (s *storm) workQueues() {
	f := s.f
	doorbells := []uint32{PFPE_WQEALLOC, PFPE_CQARM, PFPE_CQACK, PFPE_AEQALLOC, PFPE_CQPDB, userDBPage, userCQArm}
	defer func() {
		for range 8 {
			v := s.rnd.Uint32N(16)
			if s.rnd.IntN(4) == 0 {
				v = s.value()
			}
			f.Write32(doorbells[s.rnd.IntN(len(doorbells))], v)
		}
	}()
	if s.a == nil {
		return
	}
	var slot [soupSlot]byte
	for range 1 + s.rnd.IntN(16) {
		q := s.a.qp
		if s.rnd.IntN(2) == 0 {
			q = s.b.qp
		}
		s.soup.fill(&slot)
		switch s.rnd.IntN(8) {
		case 0: // the shadow area: the device's own word too
			q.mem.store(q.shadowOff+8*s.rnd.IntN(shadowSize/8), s.soup.word())
		case 1: // the context, for whoever reads it again
			q.ctx.Store64(8*s.rnd.IntN(qpCtxSize/8), s.soup.word())
		case 2:
			s.a.cq.shadow.Store64(8*s.rnd.IntN(shadowSize/8), s.soup.word())
		case 3: // a receive queue's
			at := s.rnd.IntN(q.rq.quanta())
			copy(q.mem.slice(q.rqOff+at*qpQuantum, qpQuantum), slot[:])
		case 4: // proper work
			_ = q.PostSend(s.a.write(1, s.b, 0, s.rnd.IntN(9000)))
			_ = q.PostRecv(RecvWR{SGEs: []SGE{s.b.sge(0, s.rnd.IntN(9000))}})
		default:
			at := s.rnd.IntN(q.sq.size-1) &^ 1
			copy(q.mem.slice(at*qpQuantum, soupSlot), slot[:])
		}
	}
	f.Write32(userDBPage, s.a.qp.ID)
	f.Write32(PFPE_WQEALLOC, s.b.qp.ID)
}

// lanQueues gives receive queues contexts that are anything and rings all of
// them.
func (s *storm) lanQueues() {
	f, q := s.f, s.rnd.IntN(8)
	addr := s.soup.address()
	f.Write32(QRX_CONTEXT(0, q), s.rnd.Uint32N(64))
	f.Write32(QRX_CONTEXT(1, q), uint32(addr>>7))
	f.Write32(QRX_CONTEXT(2, q), uint32(addr>>39)|s.rnd.Uint32()<<25)
	for n := 3; n < 8; n++ {
		f.Write32(QRX_CONTEXT(n, q), s.value())
	}
	f.Write32(QRX_CTRL(q), s.rnd.Uint32N(2))
	f.Write32(QRX_TAIL(q), s.rnd.Uint32N(8192))
	f.Write32(QTX_COMM_DBELL(q), s.rnd.Uint32N(8192))
	if s.m == nil || s.m.i.main == nil || s.m.i.main.lan == nil || s.dead {
		return
	}
	// A transmit queue whose ring is anywhere.
	c := &Command{Op: ice_aqc_opc_add_txqs, RD: true, Buf: make([]byte, 56)}
	c.P[0] = 1
	le.PutUint32(c.Buf, s.m.i.main.lan.teid)
	c.Buf[4] = 1
	le.PutUint16(c.Buf[8:], uint16(2+q))
	copy(c.Buf[16:], s.m.i.txContext(s.m.i.main, &queuePair{id: 2 + q, tx: &Buf{IOVA: addr}}))
	putQueueElem(c.Buf[40:])
	s.command(c)
	for range 4 {
		f.Write32(QTX_COMM_DBELL(2+q), s.rnd.Uint32N(ringLen))
	}
}

// interrupts changes eventfds, masks and causes.
func (s *storm) interrupts() {
	c, n := s.f.Client, s.rnd.IntN(64)
	switch s.rnd.IntN(6) {
	case 0:
		_ = c.MaskIRQ(msixIndex, n, s.rnd.IntN(64))
	case 1:
		_ = c.UnmaskIRQ(msixIndex, n, s.rnd.IntN(64))
	case 2:
		_ = c.TriggerIRQ(msixIndex, n, s.rnd.IntN(64))
	case 3:
		_ = c.SetIRQ(msixIndex, n, []int{-1, -1, -1})
	case 4:
		if len(s.f.vectors) > 0 {
			_ = c.SetIRQ(msixIndex, n, []int{s.f.vectors[s.rnd.IntN(len(s.f.vectors))].fd})
		}
	case 5:
		if s.rnd.IntN(4) == 0 {
			_ = c.DisableIRQs(msixIndex)
		}
	}
	for range 8 {
		s.f.Write32(GLINT_DYN_CTL(s.rnd.IntN(16)), s.value())
		s.f.Write32(PFINT_OICR_ENA, s.value())
	}
}

// maps maps and unmaps at random: pieces of the soup at good and bad addresses,
// with all rights, sizes and offsets, and now and then everything.
func (s *storm) maps() {
	c, rnd := s.f.Client, s.rnd
	for range 8 {
		iova, size := s.soup.address(), (1+rnd.Uint64N(16))*pageSize
		if rnd.IntN(8) > 0 {
			iova &^= pageSize - 1
		}
		switch rnd.IntN(8) {
		case 0:
			_ = c.UnmapDMA(iova, size)
		case 1:
			_ = c.UnmapDMA(soupIOVA, soupPages*pageSize)
		case 2:
			if rnd.IntN(8) == 0 {
				_ = c.UnmapAllDMA()
			}
		case 3:
			r := s.g.Ranges()[rnd.IntN(len(banks))]
			_ = c.UnmapDMA(r.IOVA, r.Size)
			_ = c.MapDMAs([]vfiouser.DMARange{r})
		case 4:
			_ = c.MapDMAs([]vfiouser.DMARange{s.soup.maps()})
		case 5:
			_ = s.g.Map(c)
		default:
			// Never one of the soup's canaries, which lie at its ends.
			first := 1 + rnd.Uint64N(soupPages-16)
			var file *os.File
			if rnd.IntN(4) > 0 {
				file = s.soup.file
			}
			_ = c.MapDMA(iova, size, file, first*pageSize, rnd.Uint32N(4))
		}
	}
}

// truncate cuts the soup's file under the device, and later mends it.
func (s *storm) truncate() {
	_ = s.soup.shrink()
	s.workQueues()
	s.controlQueues()
	s.f.flush()
	_ = s.soup.seal()
	_ = s.soup.stir(1024)
}

// configSpace writes anything to it, and lets the function live afterwards.
func (s *storm) configSpace() {
	for range 8 {
		p := make([]byte, 1+s.rnd.IntN(8))
		for n := range p {
			p[n] = byte(s.rnd.Uint32())
		}
		_ = s.f.Client.WriteRegion(configRegion, s.rnd.Uint64N(pciCfgSpaceExpSize-8), p)
	}
	_ = s.f.master()
}

// resets does one of them.
func (s *storm) resets() {
	f := s.f
	switch s.rnd.IntN(6) {
	case 0:
		f.Write32(PFGEN_CTRL, pfgenCtrlPFSWR)
	case 1:
		f.Write32(GLGEN_RTRIG, 1<<s.rnd.IntN(3))
	case 2:
		f.setConfig16(f.exp+pciExpDevCtl, pciExpDevCtlFLR)
		_ = f.master()
	case 3:
		_ = f.Client.Reset()
		_ = f.master()
	case 4:
		s.reset([]string{"corer", "globr", "empr"}[s.rnd.IntN(3)])
	case 5:
		f.setConfig16(pciCommand, 0)
		s.workQueues()
		f.flush()
		_ = f.master()
	}
}
