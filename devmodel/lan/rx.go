// SPDX-License-Identifier: Apache-2.0

package lan

import (
	"math/bits"
	"slices"

	"github.com/vrnic/vrnic/devmodel/frame"
)

// Receive takes a frame from the wire, on any goroutine, with no lock of the
// card held. The frame is valid during the call. What finds no descriptors is
// dropped and counted; nothing waits but for the copy of another frame into the
// same queue.
func (l *LAN) Receive(f []byte) {
	if s := l.steering.Load(); s != nil && s.Link && !s.Loopback {
		l.fromWire(s, f)
	}
}

// fromWire is the port's receive side. It returns how many VSIs the frame is for.
func (l *LAN) fromWire(s *steering, f []byte) (copies int) {
	switch {
	case len(f) < minFrame:
		l.stats.rxUndersize.Add(1)
		return 0
	case len(f) > s.maxFrame():
		l.stats.rxOversize.Add(1)
		return 0
	}
	l.stats.port.rx.count(f, len(f)+fcsLen)
	i := frame.Parse(f, s.UDPTunnels...)
	if i.Type == frame.TypeFlowControl && i.Tags == 0 { // ends in the MAC
		l.stats.pause(f)
		return 0
	}
	if s.engine && frame.Class(f) == Multicast && l.forEngine(f, &i) && l.cfg.Group([6]byte(f)) {
		l.cfg.RDMA(f, i)
	}
	to := s.fromWire(f, &i)
	to.each(func(n uint16) {
		if v := s.VSIs[n]; v != nil && v.member(&i) {
			l.deliver(s, v, f, &i, 0)
			copies++
		}
	})
	return copies
}

// set is a set of VSI numbers.
type set [vsis / 64]uint64

func (x *set) add(list []uint16) {
	for _, n := range list {
		if n < vsis {
			x[n/64] |= 1 << (n % 64)
		}
	}
}

func (x *set) remove(n uint16) {
	if n < vsis {
		x[n/64] &^= 1 << (n % 64)
	}
}

func (x *set) each(do func(n uint16)) {
	for w, b := range x {
		for ; b != 0; b &= b - 1 {
			do(uint16(w*64 + bits.TrailingZeros64(b)))
		}
	}
}

// steering is a Steering with what is computed from it once.
type steering struct {
	*Steering
	hash   map[uint16]*frame.Toeplitz // by VSI
	engine bool                       // a VSI has the protocol engine's filter on
}

// Steer makes s what decides on frames; nil: as before the first. It does not
// wait. One goroutine at a time may call it.
func (l *LAN) Steer(s *Steering) {
	if s == nil {
		l.steering.Store(nil)
		return
	}
	old := l.steering.Load()
	c := &steering{Steering: s, hash: map[uint16]*frame.Toeplitz{}}
	for n, v := range s.VSIs {
		c.engine = c.engine || v.PE
		if len(v.LUT) == 0 {
			continue
		}
		if old != nil && old.hash[n] != nil && old.VSIs[n].Key == v.Key {
			c.hash[n] = old.hash[n]
			continue
		}
		c.hash[n] = frame.NewToeplitz(v.Key[:])
	}
	l.steering.Store(c)
}

func (s *steering) maxFrame() int {
	if s.MaxFrame > 0 {
		return s.MaxFrame
	}
	return maxFrame - fcsLen
}

// fromWire finds the VSIs that rules name for a frame from the wire.
func (s *steering) fromWire(f []byte, i *frame.Info) (to set) {
	if r, ok := s.EtherTypes[i.Type]; ok {
		if !r.Drop {
			to.add(r.VSIs)
		}
		return to
	}
	drop := s.address(&to, f, i, func(r Forward) bool { return true })
	class := frame.Class(f)
	for _, r := range [...]Forward{s.Promiscuous[class], s.PromiscuousVLANs[ClassVLAN{class, i.VID()}]} {
		to.add(r.VSIs)
		drop = drop || r.Drop
	}
	to.add(s.Default)
	if drop {
		return set{}
	}
	return to
}

// address adds what the rules about the destination address name, of those that
// apply. It tells whether one says to drop the frame.
func (s *steering) address(to *set, f []byte, i *frame.Info, apply func(Forward) bool) (drop bool) {
	if r, ok := s.Addresses[[6]byte(f)]; ok && apply(r) {
		to.add(r.VSIs)
		drop = r.Drop
	}
	if len(s.AddressVLANs) != 0 {
		if r, ok := s.AddressVLANs[AddressVLAN{[6]byte(f), i.VID()}]; ok && apply(r) {
			to.add(r.VSIs)
			drop = drop || r.Drop
		}
	}
	return drop
}

// member tells whether the VSI is to see a frame of that VLAN.
func (v *VSI) member(i *frame.Info) bool { return !v.PruneRx || v.has(i) }

// has tells whether a frame is in one of the VSI's VLANs.
func (v *VSI) has(i *frame.Info) bool {
	vid := i.VID()
	return vid == 0 && v.VLANs[Tag{}] || i.TPID != 0 && v.VLANs[Tag{i.TPID, vid}]
}

// deliver brings a frame to a VSI: to the protocol engine or to the queue that
// the hash chooses. status is what status_error0 has besides.
func (l *LAN) deliver(s *steering, v *VSI, f []byte, i *frame.Info, status uint16) {
	if v.PE && frame.Class(f) == Unicast && l.forEngine(f, i) {
		l.cfg.RDMA(f, *i)
		return
	}
	if len(v.Queues) == 0 {
		return
	}
	d := delivery{f: f, i: *i, vsi: v, status: status}
	tc := v.TCs[s.PriorityTC[i.TCI>>13]&7]
	at := 0
	if h := s.hash[v.Number]; h != nil {
		var tuple [36]byte
		if n := i.Tuple(f, &tuple); n != 0 && v.HashScheme < 2 {
			if v.HashScheme == 1 {
				frame.Symmetric(tuple[:n])
			}
			d.hash = h.Hash(tuple[:n])
			d.status |= statusRSSValid
			at = int(v.LUT[d.hash%uint32(len(v.LUT))]) & (1<<tc.Log2 - 1)
		}
	}
	// The number of queues is rounded up to the power of two that masks.
	at += int(tc.Offset)
	if at >= len(v.Queues) {
		at = min(int(tc.Offset), len(v.Queues)-1)
	}
	q := int(v.Queues[at])
	if q >= Queues {
		return
	}
	d.strip()
	switch l.rx[q].place(&d) {
	case placed:
		l.stats.vsiRx(v.Number, f)
		l.cfg.RxDone(q)
	case noDescriptors:
		l.stats.noDescriptors(v.Number)
	}
}

// forEngine tells whether a frame is one of those that the protocol engine takes.
func (l *LAN) forEngine(f []byte, i *frame.Info) bool { return l.cfg.RDMA != nil && i.RoCE(f) }

// delivery is a frame on its way into a queue.
type delivery struct {
	f      []byte
	i      frame.Info
	vsi    *VSI
	status uint16
	hash   uint32

	tag      uint16
	stripped bool
}

// strip takes the tag from the frame that the VSI wants in the descriptor.
func (d *delivery) strip() {
	v, tpid := d.vsi, d.i.TPID
	switch v.Strip {
	case StripInner:
		d.stripped = tpid == frame.TypeVLAN
	case StripOuter:
		d.stripped = tpid != 0 && (tpid == v.InsertTPID || v.InsertTPID == 0)
	}
	if d.stripped {
		d.tag = d.i.TCI
	}
}

// pieces are the parts of the frame as they go to memory, fcs behind it.
func (d *delivery) pieces(fcs []byte) pieces {
	if d.stripped {
		return pieces{d.f[:frame.AddressesLen], d.f[frame.AddressesLen+frame.TagLen:], fcs}
	}
	return pieces{d.f, nil, fcs}
}

// checked are the status bits of the checksums (ice_lan_tx_rx.h:
// ICE_RX_FLEX_DESC_STATUS0_*): only of what was computed.
func (d *delivery) checked() (status uint16) {
	if d.i.AddressChanged {
		status |= statusIPv6ExtAdd
	}
	v := d.i.Verify(d.f)
	if v&frame.Verified == 0 {
		return status
	}
	status |= statusL3L4P
	if v&frame.BadIP != 0 {
		status |= statusIPE
	}
	if v&frame.BadL4 != 0 {
		status |= statusL4E
	}
	if v&frame.BadOuterIP != 0 {
		status |= statusEIPE
	}
	if v&frame.BadOuterUDP != 0 {
		status |= statusEUDPE
	}
	return status
}

// pieces are consecutive bytes in up to three places.
type pieces [3][]byte

func (p *pieces) len() int { return len(p[0]) + len(p[1]) + len(p[2]) }

// write moves the first n bytes of p to iova.
func (p *pieces) write(mem Memory, iova uint64, n int) error {
	for i := range p {
		k := min(n, len(p[i]))
		if k == 0 {
			continue
		}
		if err := mem.Write(iova, p[i][:k]); err != nil {
			return err
		}
		p[i], iova, n = p[i][k:], iova+uint64(k), n-k
	}
	return nil
}

// own tells whether a VSI may send from an address.
func (v *VSI) own(a [6]byte) bool { return !v.AntiSpoof || v.Own[a] }

// mustDrop tells whether a rule forbids the VSI to send frames of a type.
func (v *VSI) mustDrop(t uint16) bool { return slices.Contains(v.DropTx, t) }
