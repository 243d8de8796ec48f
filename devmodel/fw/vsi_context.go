// SPDX-License-Identifier: Apache-2.0

package fw

// VSIContext is the 128 bytes of properties of a VSI as the driver writes them
// (ice_adminq_cmd.h:ice_aqc_vsi_props), little endian. It is a copy; accessors
// name what a data path needs of it.
type VSIContext [128]byte

// VSI context sections, the bits of valid_sections
// (ice_adminq_cmd.h:ICE_AQ_VSI_PROP_*_VALID), and the bytes they cover.
var vsiSections = []struct {
	bit      uint
	name     string
	from, to int
}{
	{0, "SW", 2, 6},
	{1, "SECURITY", 6, 8},
	{2, "VLAN", 8, 16},
	{3, "OUTER_TAG", 24, 28},
	{4, "INGRESS_UP", 16, 20},
	{5, "EGRESS_UP", 20, 24},
	{6, "RXQ_MAP", 28, 78},
	{7, "Q_OPT", 78, 84},
	{8, "OUTER_UP", 84, 88},
	{11, "FLOW_DIR", 90, 100},
	{12, "PASID", 100, 104},
}

// apply overwrites the sections that u flags as valid.
func (c *VSIContext) apply(u *VSIContext) {
	valid := le.Uint16(u[:])
	for _, s := range vsiSections {
		if valid&(1<<s.bit) != 0 {
			copy(c[s.from:s.to], u[s.from:s.to])
		}
	}
	le.PutUint16(c[:], le.Uint16(c[:])|valid)
}

func (c *VSIContext) bit(at int, n uint) bool { return c[at]&(1<<n) != 0 }

// SwitchID is sw_id, the switch the VSI is a port of.
func (c *VSIContext) SwitchID() uint8 { return c[2] }

// AllowLoopback is sw_flags ALLOW_LB: frames to a sibling VSI stay inside.
func (c *VSIContext) AllowLoopback() bool { return c.bit(3, 5) }

// LocalLoopback is sw_flags LOCAL_LB.
func (c *VSIContext) LocalLoopback() bool { return c.bit(3, 6) }

// SourcePrune is sw_flags SRC_PRUNE: looped frames do not return to their sender.
func (c *VSIContext) SourcePrune() bool { return c.bit(3, 7) }

// RxVLANPrune is sw_flags2 RX_VLAN_PRUNE_ENA: only VLANs of a prune list the
// VSI is in are received.
func (c *VSIContext) RxVLANPrune() bool { return c.bit(4, 0) }

// LANEnable is sw_flags2 LAN_ENA: the VSI may send to the wire.
func (c *VSIContext) LANEnable() bool { return c.bit(4, 4) }

// AllowDestOverride is sec_flags ALLOW_DEST_OVRD: a descriptor may choose the
// destination.
func (c *VSIContext) AllowDestOverride() bool { return c.bit(6, 0) }

// MACAntiSpoof is sec_flags ENA_MAC_ANTI_SPOOF.
func (c *VSIContext) MACAntiSpoof() bool { return c.bit(6, 2) }

// TxVLANPrune is sec_flags TX_VLAN_PRUNE_ENA.
func (c *VSIContext) TxVLANPrune() bool { return c.bit(6, 4) }

// PortVLAN is port_based_inner_vlan.
func (c *VSIContext) PortVLAN() uint16 { return le.Uint16(c[8:]) }

// InnerVLANTxMode is inner_vlan_flags TX_MODE: 1 untagged, 2 tagged, 3 all.
func (c *VSIContext) InnerVLANTxMode() uint8 { return c[12] & 3 }

// InnerVLANInsertPVID is inner_vlan_flags INSERT_PVID.
func (c *VSIContext) InnerVLANInsertPVID() bool { return c.bit(12, 2) }

// InnerVLANStripMode is inner_vlan_flags EMODE: 0 strip and show the tag,
// 1 strip and show its priority, 2 strip, 3 leave it in the packet.
func (c *VSIContext) InnerVLANStripMode() uint8 { return c[12] >> 3 & 3 }

// vlanLeave is EMODE NOTHING.
const vlanLeave = 3

// OuterVLANFlags is outer_vlan_flags, raw.
func (c *VSIContext) OuterVLANFlags() uint8 { return c[26] }

// QueuesScattered is mapping_flags NONCONTIG: RxQueue(i) names each queue.
// Otherwise RxQueue(0) is the first one and RxQueue(1) their number.
func (c *VSIContext) QueuesScattered() bool { return c.bit(28, 0) }

// queues are the receive queues of the VSI that the function has, up to the
// first that it does not have. Scattered ones are all 16: which of them count
// is a matter of the traffic classes.
func (c *VSIContext) queues() []uint16 {
	first, n := int(c.RxQueue(0)), int(c.RxQueue(1))
	if c.QueuesScattered() {
		n = 16
	}
	var all []uint16
	for i := range min(n, NumQueues) {
		q := first + i
		if c.QueuesScattered() {
			q = int(c.RxQueue(i))
		}
		if q >= NumQueues {
			break
		}
		all = append(all, uint16(q))
	}
	return all
}

// RxQueue is q_mapping[i], i below 16.
func (c *VSIContext) RxQueue(i int) uint16 { return le.Uint16(c[30+2*i:]) & 0x7FF }

// TCQueues is tc_mapping[tc], tc below 8: the offset of the class's queues and
// the logarithm of their number.
func (c *VSIContext) TCQueues(tc int) (offset uint16, log2 uint8) {
	v := le.Uint16(c[62+2*tc:])
	return v & 0x7FF, uint8(v >> 11 & 0xF)
}

// RSSTable is q_opt_rss LUT: 0 the VSI's, 2 the function's, 3 a global one.
func (c *VSIContext) RSSTable() uint8 { return c[78] & 3 }

// Values of q_opt_rss LUT (ICE_AQ_VSI_Q_OPT_RSS_LUT_*).
const (
	rssTableVSI = 0
	rssTablePF  = 2
)

// RSSHash is q_opt_rss HASH: 0 Toeplitz, 1 symmetric, 2 XOR, 3 Jenkins.
func (c *VSIContext) RSSHash() uint8 { return c[78] >> 6 }

// RDMAFilter is q_opt_flags PE_FLTR_EN: RoCE frames go to the protocol engine.
func (c *VSIContext) RDMAFilter() bool { return c.bit(80, 0) }

// FlowFilters are max_fd_fltr_dedicated and max_fd_fltr_shared.
func (c *VSIContext) FlowFilters() (dedicated, shared uint16) {
	return le.Uint16(c[92:]), le.Uint16(c[94:])
}

// FlowDirector is fd_options ENABLE.
func (c *VSIContext) FlowDirector() bool { return c.bit(90, 0) }
