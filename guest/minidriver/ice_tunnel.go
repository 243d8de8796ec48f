// SPDX-License-Identifier: Apache-2.0

package minidriver

// Boost TCAM (ice_ddp.h:struct ice_boost_tcam_section).
const (
	ICE_SID_TXPARSER_BOOST_TCAM = 66

	boostEntrySize = 88
	boostKey       = 4
	boostKeyHalf   = 20
	boostDstPort   = 15   // in either half
	boostTunnel    = 0x20 // the first entry that the package keeps for a tunnel
)

// OpenTunnelPort tells the parser that UDP to a port is VXLAN or GENEVE
// (ice_flex_pipe.c:ice_create_tunnel); n is which of the entries for tunnels.
func (i *ICE) OpenTunnelPort(n int, port uint16) error { return i.tunnelPort(n, port, ^port) }

// CloseTunnelPort takes that back: the entry is the package's again, which
// matches nothing (ice_flex_pipe.c:ice_destroy_tunnel).
func (i *ICE) CloseTunnelPort(n int) error { return i.tunnelPort(n, 0, 0) }

func (i *ICE) tunnelPort(n int, key, inverse uint16) error {
	b := make([]byte, 4+boostEntrySize)
	le.PutUint16(b, 1)
	e := b[4:]
	le.PutUint16(e, uint16(boostTunnel+n))
	le.PutUint16(e[boostKey+boostDstPort:], key)
	le.PutUint16(e[boostKey+boostKeyHalf+boostDstPort:], inverse)
	return i.updatePackage(pkgSection{ICE_SID_RXPARSER_BOOST_TCAM, b}, pkgSection{ICE_SID_TXPARSER_BOOST_TCAM, b})
}
