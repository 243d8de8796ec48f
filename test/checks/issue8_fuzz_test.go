// SPDX-License-Identifier: Apache-2.0

package checks

import "testing"

func init() {
	for _, f := range issue8Targets {
		table = append(table, check{8, "fuzz-" + f.what, false, "go test -fuzz " + f.name + " " + f.pkg + ", 10 minutes",
			func(t *testing.T, e *env) { fuzzOver(t, e, []fuzzTarget{f}) }})
	}
}

// issue8Targets are what peers and their packets come to, and what else came with
// the transport. Those of the mini-driver have a card behind a socket, and a
// driver that looks at its state afterwards.
var issue8Targets = []fuzzTarget{
	{"responder", miniDriverPackage, "FuzzResponder"},
	{"requester", miniDriverPackage, "FuzzRequester"},
	{"connection", miniDriverPackage, "FuzzRoCE"},
	{"datagrams", miniDriverPackage, "FuzzDatagramPackets"},
	{"datagram-wqes", miniDriverPackage, "FuzzDatagramWQEs"},
	{"near-wqes", miniDriverPackage, "FuzzWQEsNear"},
	{"receive", "./devmodel/qp", "FuzzReceive"},
	{"packet", "./devmodel/roce/wire", "FuzzParse"},
	{"impair", "./fabric", "FuzzParseImpair"},
	{"explain", miniDriverPackage, "FuzzExplain"},
}
