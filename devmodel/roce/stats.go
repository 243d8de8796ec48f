// SPDX-License-Identifier: Apache-2.0

package roce

// Stats are counters since the Endpoint was made: packets and octets as IP
// counts them, messages once each.
type Stats struct {
	TxPackets, TxOctets uint64
	RxPackets, RxOctets uint64
	Retransmitted       uint64 // packets

	InSends, InWrites, InReads    uint64
	OutSends, OutWrites, OutReads uint64
	Invalidations                 uint64 // at a peer's request, and by Host.Local as that counts them
	Binds                         uint64 // as Host.Local counts them

	ipv6 bool
}

func (s *Stats) sent(r *Run, again uint32) {
	s.TxPackets += uint64(r.N)
	s.TxOctets += r.octets(s.ipv6)
	if r.Op == ReadRequest {
		again = min(again, 1)
	}
	s.Retransmitted += uint64(again)
}

func (s *Stats) received(r *Run) {
	s.RxPackets += uint64(r.N)
	s.RxOctets += r.octets(s.ipv6)
}
