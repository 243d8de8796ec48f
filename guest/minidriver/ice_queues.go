// SPDX-License-Identifier: Apache-2.0

package minidriver

import "fmt"

const (
	txDescSize = 16
	rxDescSize = 32
	ringLen    = 256

	rxdidFlexNIC = 2
)

// queuePair is a Tx and an Rx queue that share number and vector.
type queuePair struct {
	id     int
	vector *Vector
	leaf   *schedNode
	tx, rx *Buf
	bufs   *Buf

	geometry         rxGeometry
	txNext           int // free descriptor
	rxNext           int // descriptor that the device fills next
	rxPosted, rxTail int // descriptors with a buffer end there; the device knows so
}

// putBits stores a field of width bits at bit lsb of a little-endian structure.
func putBits(b []byte, lsb, width int, v uint64) {
	for n := range width {
		if v>>n&1 != 0 {
			b[(lsb+n)/8] |= 1 << ((lsb + n) % 8)
		}
	}
}

// txContext is ice_base.c:ice_setup_tx_ctx.
func (i *ICE) txContext(v *VSI, q *queuePair) []byte {
	const baseUnit, typePF = 128, 2
	b := make([]byte, 22)
	putBits(b, 0, 57, q.tx.IOVA/baseUnit)
	putBits(b, 57, 3, uint64(i.lport))
	putBits(b, 65, 3, uint64(i.PF))
	putBits(b, 78, 2, typePF)
	putBits(b, 80, 10, uint64(v.num))
	putBits(b, 135, 13, ringLen)
	putBits(b, 152, 1, 1)
	putBits(b, 153, 11, uint64(q.id))
	putBits(b, 164, 1, 1)
	return b
}

// rxContext is ice_base.c:ice_setup_rx_ctx. The control VSI never receives.
func rxContext(q *queuePair) []byte {
	const baseUnit = 128
	b := make([]byte, 32)
	putBits(b, 32, 57, q.rx.IOVA/baseUnit)
	putBits(b, 89, 13, ringLen)
	putBits(b, 116, 1, 1)
	putBits(b, 117, 1, 1)
	putBits(b, 119, 1, 1)
	if q.bufs != nil {
		putBits(b, 102, 7, uint64(q.geometry.buf/128))
		putBits(b, 174, 14, uint64(q.geometry.max))
	}
	putBits(b, 198, 3, 1)
	putBits(b, 201, 1, 1)
	return b
}

// openQueue sets up one queue pair and enables it; bufs is the number of
// receive buffers (ice_base.c:ice_vsi_cfg_txq, ice_vsi_cfg_rxq).
func (i *ICE) openQueue(v *VSI, id int, vec *Vector, bufs int) (*queuePair, error) {
	f := i.F
	q := &queuePair{id: id, vector: vec, geometry: i.Kernel.rxGeometry(i.opts.MTU)}
	q.tx = i.mem.own(f.alloc(ringLen * txDescSize))
	q.rx = i.mem.own(f.alloc(ringLen * rxDescSize))
	if err := i.addTxQueue(v, q); err != nil {
		return nil, err
	}

	const rxdidPrio, rxdidTS = 3 << 8, 1 << 11
	f.Write32(QRXFLXP_CNTXT(id), f.Read32(QRXFLXP_CNTXT(id))&^uint32(0x73f)|rxdidFlexNIC|rxdidPrio|rxdidTS)
	if bufs > 0 {
		q.bufs = i.mem.own(f.alloc(ringLen * q.geometry.stride))
	}
	ctx := rxContext(q)
	for n := range 8 {
		f.Write32(QRX_CONTEXT(n, id), le.Uint32(ctx[4*n:]))
	}
	f.Write32(QRX_TAIL(id), 0)
	if bufs > 0 {
		i.postRx(q, bufs)
	}

	const rxITR, txITR = 0, 1
	f.Write32(GLINT_ITR(rxITR, vec.Index), 4)
	f.Write32(GLINT_ITR(txITR, vec.Index), 4)
	f.Write32(GLINT_RATE(vec.Index), 1|1<<6)
	f.Write32(QINT_TQCTL(id), causeCtl(vec, txITR))
	f.Write32(QINT_RQCTL(id), causeCtl(vec, rxITR))
	f.flush()
	if err := i.enableRx(id, true); err != nil {
		return nil, err
	}
	i.rearm(vec)
	return q, f.Err()
}

// addTxQueue is ice_common.c:ice_ena_vsi_txq.
func (i *ICE) addTxQueue(v *VSI, q *queuePair) error {
	const header = 8
	c := &Command{Op: ice_aqc_opc_add_txqs, RD: true, Buf: make([]byte, header+48)}
	c.P[0] = 1
	le.PutUint32(c.Buf, v.lan.teid)
	c.Buf[4] = 1
	e := c.Buf[header:]
	le.PutUint16(e, uint16(q.id))
	copy(e[8:], i.txContext(v, q))
	putQueueElem(e[32:])
	if err := i.aq.do(c); err != nil {
		return err
	}
	var err error
	q.leaf, err = i.sched.leaf(v.lan, le.Uint32(e[4:]))
	return err
}

// dropTxQueue is ice_base.c:ice_vsi_stop_tx_ring without its interrupts.
func (i *ICE) dropTxQueue(q *queuePair) error {
	if err := i.disableQueue(q.leaf, uint16(q.id)); err != nil {
		return err
	}
	i.sched.forget(q.leaf)
	return nil
}

// enableRx is ice_base.c:ice_vsi_ctrl_one_rx_ring.
func (i *ICE) enableRx(id int, on bool) error {
	f, reg := i.F, QRX_CTRL(id)
	want := uint32(0)
	ctrl := f.Read32(reg) &^ uint32(qrxCtrlQENAReq)
	if on {
		want, ctrl = qrxCtrlQENAStat, ctrl|qrxCtrlQENAReq
	}
	f.Write32(reg, ctrl)
	return f.poll(fmt.Sprintf("QRX_CTRL(%d).QENA_STAT", id), func() bool {
		return f.Read32(reg)&qrxCtrlQENAStat == want
	})
}

// disableQueue is 0x0C31 for one queue or RDMA queue set.
func (i *ICE) disableQueue(leaf *schedNode, id uint16) error {
	c := &Command{Op: ice_aqc_opc_dis_txqs, RD: true, Buf: make([]byte, 8)}
	const flushPipe, timeout = 1 << 3, 5 << 10
	c.P[0] = flushPipe
	c.P[1] = 1
	c.put16(2, timeout)
	le.PutUint32(c.Buf, leaf.parent.teid)
	c.Buf[4] = 1
	le.PutUint16(c.Buf[6:], id)
	if err := i.aq.do(c); err != nil {
		return err
	}
	if c.u32(4) != 0 {
		return c.wrong("blocked CGDs %#x", c.u32(4))
	}
	return nil
}

// closeQueues is ice_main.c:ice_down for these queues.
func (i *ICE) closeQueues(queues ...*queuePair) error {
	f := i.F
	for _, q := range queues {
		f.Write32(QINT_RQCTL(q.id), f.Read32(QINT_RQCTL(q.id))&^uint32(causeEna))
	}
	for _, q := range queues {
		f.Write32(GLINT_DYN_CTL(q.vector.Index), 0)
	}
	f.flush()
	for _, q := range queues {
		f.Write32(QINT_TQCTL(q.id), f.Read32(QINT_TQCTL(q.id))&^uint32(causeEna))
		f.Write32(GLINT_DYN_CTL(q.vector.Index), dynCtlITRNone|dynCtlSWINTTRIG|dynCtlINTENA)
		if err := i.dropTxQueue(q); err != nil {
			return err
		}
	}
	for _, q := range queues {
		if err := i.enableRx(q.id, false); err != nil {
			return err
		}
	}
	for _, q := range queues {
		v := q.vector.Index
		for _, reg := range []uint32{GLINT_ITR(0, v), GLINT_ITR(1, v), GLINT_RATE(v), QINT_TQCTL(q.id), QINT_RQCTL(q.id)} {
			f.Write32(reg, 0)
		}
		i.mem.free(q.tx, q.rx, q.bufs)
	}
	f.flush()
	return f.Err()
}

// Open is `ip link set up` (ice_main.c:ice_open_internal).
func (i *ICE) Open() error {
	if err := i.updateLink(lseEnable); err != nil {
		return fmt.Errorf("ice: open: %w", err)
	}
	return i.opts.run("ice: open", []step{
		{"PHY", i.configurePHY},
		{"VLANs", i.openVLANs},
		{"queues", i.openQueues},
	})
}

func (i *ICE) openVLANs() error {
	v := i.main
	if err := i.updateVSI(v, propVLAN, func(b []byte) { b[12] = vlanTxAll | vlanStrip }); err != nil {
		return err
	}
	if err := i.updateVSI(v, propSwitch, func(b []byte) {
		b[2] = byte(i.swID)
		b[3] = swFlagSourcePrune | swFlagAllowLoopback
		b[4] = swFlag2LANEnable | swFlag2VLANPrune
	}); err != nil {
		return err
	}
	return i.addVLANZero()
}

func (i *ICE) openQueues() error {
	const granularity = 0x2222 << 16
	if ctl := i.F.Read32(GLINT_CTL); ctl&(0xffff<<16) != granularity {
		i.F.Write32(GLINT_CTL, ctl&0xffff|granularity)
	}
	for n, vec := range i.lanV {
		q, err := i.openQueue(i.main, n, vec, ringLen-8)
		if err != nil {
			return err
		}
		i.queues = append(i.queues, q)
	}
	return nil
}

// Reopen makes one queue pair of the PF VSI anew, as an administrator does who
// takes the interface down and up.
func (i *ICE) Reopen(n int) error {
	old := i.queues[n]
	if err := i.closeQueues(old); err != nil {
		return fmt.Errorf("ice: closing queue %d: %w", old.id, err)
	}
	q, err := i.openQueue(i.main, old.id, old.vector, ringLen-8)
	if err != nil {
		return fmt.Errorf("ice: opening queue %d: %w", old.id, err)
	}
	i.queues[n] = q
	return nil
}

// Close is `ip link set down`.
func (i *ICE) Close() error {
	if err := i.removeVLANs(); err != nil {
		return fmt.Errorf("ice: close: VLANs: %w", err)
	}
	if err := i.closeQueues(i.queues...); err != nil {
		return fmt.Errorf("ice: close: %w", err)
	}
	i.queues = nil
	return nil
}
