// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"fmt"
	"time"

	"github.com/vrnic/vrnic/devmodel/roce/wire"
)

// notifyEvery is the time between two notifications of one QP, as DCQCN
// suggests.
const notifyEvery = 50 * time.Microsecond

// CongestionControl is the event of a QP that is to slow down when the network is
// congested: it tells its peer of congestion, but does not slow down itself.
type CongestionControl struct{ QP uint32 }

func (e CongestionControl) String() string {
	return fmt.Sprintf("context of QP %d has DCQCNENABLE", e.QP)
}

// marked answers a packet of the peer that the network marked for congestion,
// if the driver wants that (DCQCNENABLE; none does). The caller holds mu.
func (q *QP) marked() {
	now := q.Now()
	if !q.ctx.NotifiesCongestion() || q.notified != 0 && now-q.notified < notifyEvery {
		return
	}
	a := q.address.Load()
	p := wire.Packet{Opcode: wire.CNP, PKey: a.pkey, DestQP: a.peer, BECN: true}
	at := wire.HeaderLen(&a.path, p.Opcode)
	b := q.table.buffers.scratch(at + wire.CNPPayload + wire.Trailer)
	if b == nil {
		return
	}
	defer b.release()
	clear(b.bytes[at : at+wire.CNPPayload])
	f := p.Encode(b.bytes, &a.path, wire.CNPPayload)
	q.notified = max(now, 1)
	q.announce(f, func() string { return fmt.Sprintf("QP %d -> %d: CNP", q.id, a.peer) })
	for c := range q.each {
		c.sent(f, &a.path)
		c.add(cnpSent, 1)
	}
}
