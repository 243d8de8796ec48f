// SPDX-License-Identifier: Apache-2.0

package wire

import "fmt"

// Verdict is what became of a received packet at its admission.
type Verdict uint8

// Verdicts. Parse gives those up to UnknownOpcode; the others are for who asks
// for more than the packet itself tells.
const (
	OK            Verdict = iota
	NotRoCE               // no UDP to port 4791, or in more than one VLAN tag
	Fragment              // of an IP packet
	Options               // of IPv4, or extension headers of IPv6
	BadLength             // a length does not fit the packet
	BadChecksum           // of the IPv4 header, or of UDP
	BadVersion            // of the transport
	UnknownOpcode         //
	NoGID                 // the destination address is none of the port's
	BadVLAN               // not the one of the QP
	NoQP                  // no QP of this number
	WrongService          // the opcode is of another kind than the QP
	WrongState            // the QP does not take such packets now
	WrongAddress          // not those of the connection
	BadPKey               //
	BadQKey               //
	BadICRC               //
	NoGroup               // no QP is attached to the multicast group
	NoBuffer              // too much waits already
	NoReceive             // UD: no receive WQE, or one too short
	verdicts
)

var verdictNames = [verdicts]string{
	OK: "accepted", NotRoCE: "not RoCE", Fragment: "IP fragment", Options: "IP options", BadLength: "bad length",
	BadChecksum: "bad checksum", BadVersion: "bad transport version", UnknownOpcode: "unknown opcode",
	NoGID: "not our address", BadVLAN: "wrong VLAN", NoQP: "no such QP", WrongService: "opcode not of the QP's kind",
	WrongState: "QP not ready", WrongAddress: "not the connection's address", BadPKey: "wrong P_Key", BadQKey: "wrong Q_Key",
	BadICRC: "bad ICRC", NoGroup: "no QP in the multicast group", NoBuffer: "no buffer", NoReceive: "no receive buffer",
}

func (v Verdict) String() string {
	if v < verdicts {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict %d", uint8(v))
}
