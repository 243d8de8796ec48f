// SPDX-License-Identifier: Apache-2.0

package minidriver

// Address is the port's, unlike that of every other port whose MAC address begins
// as this one's: what DHCP might have given, or the link-local one of IPv6.
func (r *IRDMA) Address(ipv6 bool) [4]uint32 {
	const net10 = 10 << 24
	mac := r.ICE.MAC
	if !ipv6 {
		return [4]uint32{3: net10 | uint32(mac[3])<<16 | uint32(mac[4])<<8 | uint32(mac[5])}
	}
	// RFC 4291, appendix A: EUI-64, as the default GID has it.
	return [4]uint32{0xfe80_0000, 0, uint32(mac[0]^2)<<24 | uint32(mac[1])<<16 | uint32(mac[2])<<8 | 0xff,
		0xfe00_0000 | uint32(mac[3])<<16 | uint32(mac[4])<<8 | uint32(mac[5])}
}

// Neighbour is the index of the table entry for another port. It is made when
// first asked for (utils.c:irdma_add_arp).
func (r *IRDMA) Neighbour(mac [6]byte) (uint16, error) {
	if mac == r.ICE.MAC {
		return LocalARP, nil
	}
	if index, ok := r.neighbours[mac]; ok {
		return index, nil
	}
	index := LocalARP + 1 + uint16(len(r.neighbours))
	if err := r.SetARP(index, mac); err != nil {
		return 0, err
	}
	r.neighbours[mac] = index
	return index, nil
}

// sourcePort is what makes the flows of QPs differ (include/rdma/ib_verbs.h:
// rdma_calc_flow_label, rdma_flow_label_to_udp_sport).
func (q *QP) sourcePort() uint16 {
	const base, low = 0xc000, 0x3fff
	if q.kind != qpTypeRC || q.Attr.DestQP == 0 {
		return base
	}
	v := uint64(q.ID) * uint64(q.Attr.DestQP)
	v ^= v >> 20
	v ^= v >> 40
	label := uint32(v) & 0xfffff
	return base | uint16(label&low^label>>14)
}

// reach names the QP's peer.
func (q *QP) reach(p *QP) (err error) {
	q.Attr.DestQP, q.Attr.RecvPSN = p.ID, p.Attr.SendPSN
	if q.r != p.r {
		q.Attr.DestIP = p.Attr.LocalIP
	}
	q.Attr.ARP, err = q.r.Neighbour(p.r.ICE.MAC)
	return err
}

// Connect takes a new QP to RTS with a QP of the port itself as its peer.
func (q *QP) Connect(dest uint32) error {
	q.Attr.DestQP, q.Attr.ARP = dest, LocalARP
	return q.ToRTS()
}

// ConnectPair takes two new QPs to RTS as each other's peers, on one port or on
// two. Their attributes but for the peer stay as they are.
func ConnectPair(a, b *QP) error {
	if err := a.reach(b); err != nil {
		return err
	}
	if err := b.reach(a); err != nil {
		return err
	}
	if err := a.ToRTS(); err != nil {
		return err
	}
	return b.ToRTS()
}
