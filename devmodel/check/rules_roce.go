// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/devmodel/roce/wire"
)

// roceRules are about RoCE packets and what connected QPs send them by. Packets
// that are dropped are notes: no driver can keep the network from losing,
// doubling and delaying, nor peers from sending what they like.
var roceRules = []Rule{
	{ID: "roce-damaged", Grade: Note, Meaning: "a packet came that is damaged, or has a form that RoCE does not have",
		Device: "dropped and counted it", Hardware: "drops and counts it",
		Driver: "-",
		match:  dropped(wire.NotRoCE, wire.Fragment, wire.Options, wire.BadLength, wire.BadChecksum, wire.BadVersion, wire.BadICRC)},
	{ID: "roce-early", Grade: Note, Meaning: "a packet came for a QP that does not take it yet, or any more, as happens while connections come and go",
		Device: "dropped and counted it; the peer sends it again", Hardware: "drops and counts it",
		Driver: "-",
		match:  dropped(wire.WrongState)},
	{ID: "roce-crowded", Grade: Note, Meaning: "a packet came for which there was no room: no receive WQE for a datagram, or one too short, or too much waits already",
		Device: "dropped and counted it", Hardware: "drops and counts it",
		Driver: "-",
		match:  dropped(wire.NoBuffer, wire.NoReceive)},
	{ID: "roce-stray", Grade: Note, Meaning: "a packet came that is for nobody: its QP, connection, VLAN, keys, kind or multicast group do not fit",
		Device: "dropped and counted it", Hardware: "drops and counts it",
		Driver: "-",
		match: dropped(wire.UnknownOpcode, wire.NoGID, wire.BadVLAN, wire.NoQP, wire.WrongService, wire.WrongAddress, wire.BadPKey,
			wire.BadQKey, wire.NoGroup)},
	{ID: "roce-mac", Grade: Error, Meaning: "a connected QP is to send from a MAC address that is a group's, or none",
		Device: "sent from it", Hardware: "sends from it (inferred)",
		Driver: "verbs.c:irdma_roce_fill_and_set_qpctx_info",
		match:  on(func(e qp.BadSource) string { return fmt.Sprintf("QP %d", e.QP) })},
	{ID: "roce-dcqcn", Grade: Note, Gap: true, Meaning: "a QP is to control its rate by the congestion of the network, which the model does not",
		Device: "told the peer of congestion, but sends as fast as it can", Hardware: "sends more slowly after a congestion notification",
		Driver: "-",
		match:  on(func(e qp.CongestionControl) string { return fmt.Sprintf("QP %d", e.QP) })},
}

// dropped matches packets dropped for one of some reasons. QP numbers that do not
// exist are anybody's, so they are no objects.
func dropped(reasons ...wire.Verdict) func(any) (string, bool) {
	return func(event any) (string, bool) {
		e, ok := event.(qp.PacketDropped)
		if !ok {
			return "", false
		}
		for _, v := range reasons {
			if e.Verdict != v {
				continue
			}
			if v >= wire.WrongService && v != wire.BadICRC && v != wire.NoGroup {
				return fmt.Sprintf("QP %d: %v", e.QP, v), true
			}
			return v.String(), true
		}
		return "", false
	}
}
