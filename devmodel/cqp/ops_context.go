// SPDX-License-Identifier: Apache-2.0

package cqp

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/qp"
)

// uploadContext writes a QP's context as it is now: what the driver set, with
// the sequence numbers where they have come to. RAWFORMAT asks for the form
// hardware keeps it in, which is not known; here it is the same one. With
// FREEZEQP the QP stands still from then on, until MODIFY_QP or RESUME_QP.
func (c *CQP) uploadContext(w *wqe) (result, error) {
	const freeze = 62
	if !c.qps.Has(w.qpID()) {
		return result{}, c.absent(w, "QP", w.qpID())
	}
	typ, _ := c.qps.TypeOf(w.qpID())
	if t := w.bits(3, 51, 48); t != uint64(typ) {
		return result{}, fmt.Errorf("QP %d is of type %v, not %d: %w", w.qpID(), typ, t, errParameter)
	}
	if err := c.align(w, "QP context", w.q[2], qp.ContextSize); err != nil {
		return result{}, err
	}
	ctx, err := c.qps.Upload(w.qpID(), w.flag(3, freeze))
	if err != nil {
		return result{}, err
	}
	if err := c.write(w, "QP context", w.q[2], ctx[:]); err != nil {
		c.qps.Thaw(w.qpID())
		return result{}, err
	}
	// Frozen, others may still be copying for it.
	return result{grace: w.flag(3, freeze)}, nil
}

// roceV2Port is the UDP port of RoCE version 2.
const roceV2Port = 4791

// checkContext reports fields of a QP context that make no sense in the state
// the QP is to go to.
func (c *CQP) checkContext(w *wqe, ctx *qp.Context) {
	id := w.qpID()
	typ, _ := c.qps.TypeOf(id)
	if to := w.nextState(); to != qp.RTR && to != qp.RTS {
		return
	}
	if mtu := ctx.PathMTU(); !qp.ValidMTU(mtu) {
		c.emit(OddContext{QP: id, Field: "SNDMSS", Value: uint64(mtu), Index: w.index})
	}
	if port := ctx.DestPort(); port != roceV2Port {
		c.emit(OddContext{QP: id, Field: "DESTPORTNUM", Value: uint64(port), Index: w.index})
	}
	c.checkHandle(w, "QP", id, ctx.QSHandle())
	const arpValid = 59
	if _, ok := c.tables.arp[ctx.ARPIndex()]; !ok && typ == qp.RoCERC && w.nextState() == qp.RTR && w.flag(3, arpValid) {
		c.emit(NoARP{Object: "QP", ID: id, ARP: ctx.ARPIndex()})
	}
}
