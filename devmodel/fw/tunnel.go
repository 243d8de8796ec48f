// SPDX-License-Identifier: Apache-2.0

package fw

import (
	"fmt"
	"maps"
	"slices"
)

// Boost TCAM entries of the parser (ice_ddp.h:struct ice_boost_tcam_section,
// struct ice_boost_tcam_entry): what a driver changes to tell the parser the
// destination port of a tunnel (ice_flex_pipe.c:ice_create_tunnel).
const (
	sectionRxBoost = 56 // ICE_SID_RXPARSER_BOOST_TCAM
	boostHeader    = 4
	boostEntry     = 88
	boostEntries   = 256    // ice_parser.h:ICE_BST_TCAM_TABLE_SIZE
	boostPort      = 4 + 15 // hv_dst_port_key in the key
	boostInverse   = 20     // from the key to key2
)

// updateBoost takes a section of boost entries. One whose key names a port
// exactly is that of a tunnel; what else is in the key is the package's own
// business.
func (d *ddpState) updateBoost(b []byte) (changed bool, err error) {
	if len(b) < boostHeader {
		return false, fmt.Errorf("boost TCAM section of %d bytes", len(b))
	}
	n := int(le.Uint16(b))
	if len(b) < boostHeader+n*boostEntry {
		return false, fmt.Errorf("boost TCAM section of %d bytes with %d entries", len(b), n)
	}
	for i := range n {
		e := b[boostHeader+i*boostEntry:]
		at := le.Uint16(e)
		if at >= boostEntries {
			return changed, fmt.Errorf("boost TCAM entry %d of %d", at, boostEntries)
		}
		key, inverse := le.Uint16(e[boostPort:]), le.Uint16(e[boostPort+boostInverse:])
		if was, had := d.tunnels[at]; key^inverse == 0xffff {
			if d.tunnels == nil {
				d.tunnels = make(map[uint16]uint16)
			}
			changed = changed || !had || was != key
			d.tunnels[at] = key
		} else if had {
			delete(d.tunnels, at)
			changed = true
		}
	}
	return changed, nil
}

// udpTunnels are the ports of tunnels, in order.
func (d *ddpState) udpTunnels() []uint16 {
	return slices.Compact(slices.Sorted(maps.Values(d.tunnels)))
}
