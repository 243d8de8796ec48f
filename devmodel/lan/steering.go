// SPDX-License-Identifier: Apache-2.0

package lan

// Steering is all that decides where frames go: what the firmware's objects
// (VSIs, switch rules, lists, RSS tables, port state) come to. It is immutable:
// firmware compiles a new one after every change and hands it over with
// LAN.Steer. Frames under way finish by the old one; they are over after grace.
//
// Without one (nil) the card knows no VSI: frames go to the wire, none is
// received.
type Steering struct {
	// Link: the port has carrier. Without, nothing is sent (GLPRT_TDOLD
	// counts) and nothing is received.
	Link bool
	// Loopback: the MAC returns what is sent as if it came from the wire
	// (ice_aqc_opc_set_mac_lb). No link is needed, and the wire sees nothing.
	Loopback bool
	// MaxFrame is the longest frame without FCS that the port accepts
	// (ice_aqc_opc_set_mac_cfg counts the FCS); 0: 9728 - 4.
	MaxFrame int

	// VSIs that live, by number. A VSI named elsewhere but absent here matches
	// nothing.
	VSIs map[uint16]*VSI

	// Addresses are the rules of recipe MAC (ICE_SW_LKUP_MAC). Those of type
	// lookup Tx, too, hold for frames from the wire.
	Addresses map[[6]byte]Forward
	// AddressVLANs are those of MAC_VLAN.
	AddressVLANs map[AddressVLAN]Forward
	// Promiscuous are the rules of PROMISC that concern frames from the wire,
	// by class of destination address: unicast, multicast, broadcast.
	Promiscuous [3]Forward
	// PromiscuousVLANs are those of PROMISC_VLAN, by class and VLAN id.
	PromiscuousVLANs map[ClassVLAN]Forward
	// PromiscuousTx are the rules of PROMISC and of type lookup Tx: what local
	// VSIs see of frames that local VSIs send.
	PromiscuousTx [3]Forward
	// Default are the VSIs of DFLT rules: they get what comes from the wire,
	// whatever its address. DefaultTx are those of type lookup Tx.
	Default, DefaultTx []uint16
	// EtherTypes are the rules of ETHERTYPE for frames from the wire: they
	// decide alone.
	EtherTypes map[uint16]Forward

	// UDPTunnels are the destination ports of VXLAN and GENEVE that the driver
	// has told the parser (ice_flex_pipe.c:ice_create_tunnel).
	UDPTunnels []uint16

	// PriorityTC gives the traffic class of each VLAN priority.
	PriorityTC [8]uint8
}

// Forward is what a rule does with a frame that it matches.
type Forward struct {
	Drop bool
	VSIs []uint16
	// For frames of local VSIs: LB: the VSIs get it (ICE_SINGLE_ACT_LB_ENABLE);
	// LAN: the wire gets it, too (ICE_SINGLE_ACT_LAN_ENABLE).
	LB, LAN bool
}

// Tag is a VLAN; of its TCI only the id. TPID 0 with id 0 means untagged and
// priority-tagged frames.
type Tag struct{ TPID, VID uint16 }

// AddressVLAN is a destination address in a VLAN.
type AddressVLAN struct {
	Address [6]byte
	VID     uint16
}

// ClassVLAN is a class of destination addresses in a VLAN.
type ClassVLAN struct {
	Class int // Unicast, Multicast, Broadcast
	VID   uint16
}

// Classes of a destination address.
const (
	Unicast = iota
	Multicast
	Broadcast
)

// VSI is one VSI of a Steering.
type VSI struct {
	Number uint16

	// Queues are the receive queues of the function that belong to the VSI, in
	// its own order (q_mapping). Empty: it receives nothing.
	Queues []uint16
	// TCs are the traffic classes: each has 1<<Log2 queues from Offset on in
	// Queues, but no more than there are (tc_mapping).
	TCs [8]TC

	AllowLB  bool // ICE_AQ_VSI_SW_FLAG_ALLOW_LB: may send to local VSIs
	LocalLB  bool // ICE_AQ_VSI_SW_FLAG_LOCAL_LB: all it sends stays local
	SrcPrune bool // ICE_AQ_VSI_SW_FLAG_SRC_PRUNE: does not see what it sent
	LAN      bool // ICE_AQ_VSI_SW_FLAG_LAN_ENA: may send to the wire

	// DestOverride: a context descriptor may say where the frame goes
	// (ICE_AQ_VSI_SEC_FLAG_ALLOW_DEST_OVRD).
	DestOverride bool
	AntiSpoof    bool // ICE_AQ_VSI_SEC_FLAG_ENA_MAC_ANTI_SPOOF: with Own
	// Own is whether an address is one the VSI may send from.
	Own map[[6]byte]bool

	// PruneRx, PruneTx: frames of other VLANs than VLANs are dropped.
	PruneRx, PruneTx bool
	VLANs            map[Tag]bool
	// DropTx are the Ethernet types that it must not send (rules of ETHERTYPE
	// and of type lookup Tx).
	DropTx []uint16

	// Strip: what becomes of the tag of a received frame. InsertTPID is the
	// type of the tag that L2TAG2 of a context descriptor inserts; 0: none may
	// be. L2TAG1 always inserts 0x8100.
	Strip      Strip
	InsertTPID uint16

	// RSS. HashScheme: 0 Toeplitz, 1 symmetric Toeplitz, 2 XOR, 3 Jenkins
	// (q_opt_rss). LUT, of 64 to 2048 entries, names queues of the traffic
	// class; empty: no RSS.
	HashScheme uint8
	Key        [52]byte
	LUT        []byte

	// PE: RoCEv2 frames go to the protocol engine (ICE_AQ_VSI_Q_OPT_PE_FLTR_EN).
	PE bool
}

// TC is a traffic class of a VSI.
type TC struct {
	Offset uint16
	Log2   uint8
}

// Strip says which tag of a received frame moves to the descriptor.
type Strip uint8

// What is stripped: nothing; the tag of type 0x8100 (inner_vlan_flags, single
// VLAN mode); the outer tag, of type InsertTPID (outer_vlan_flags, double VLAN
// mode).
const (
	StripNone Strip = iota
	StripInner
	StripOuter
)
