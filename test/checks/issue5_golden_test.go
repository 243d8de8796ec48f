// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

func init() {
	table = append(table,
		check{5, "golden", false, "go test ./guest/minidriver -run 'TestGolden|TestHostile(Transmit|Receive)'", goldenFrames},
		check{5, "fuzz-descriptors", false, "go test -fuzz, 3 targets, 10 minutes each", fuzzDescriptors},
	)
}

// goldenTests are the mini-driver's, by what was promised.
var goldenTests = []struct{ what, test string }{
	{"checksums over IPv4, IPv6, VLANs and tunnels", "TestGoldenChecksums"},
	{"UDP checksum of 0", "TestGoldenUDPZero"},
	{"VLAN insertion, padding", "TestGoldenVLANs"},
	{"TSO, USO, GRE, UDP tunnels, IP in IP, GSO partial", "TestGoldenSegments"},
	{"segments of MTU 9702", "TestGoldenLongSegments"},
	{"rings of frames in up to 8 buffers", "TestGoldenRing"},
	{"ptype, checksum status, tags, tunnels", "TestGoldenReceive"},
	{"RSS: published vectors, several queues", "TestGoldenRSS"},
	{"multi-buffer, MTU up to 9702", "TestGoldenMultiBuffer"},
	{"drops without descriptors", "TestGoldenNoDescriptors"},
	{"no interrupt is lost", "TestGoldenInterrupts"},
	{"hostile transmit descriptors", "TestHostileTransmit"},
	{"hostile receive queues", "TestHostileReceive"},
}

// goldenFrames runs the mini-driver against golden frames, and with what no
// driver may do: each promise is a test that must have run and passed.
func goldenFrames(t *testing.T, e *env) {
	r := e.exec(t, "", "go", "test", "-count=1", "-v", "-timeout", "15m", "-run", "^(TestGolden.*|TestHostileTransmit|TestHostileReceive)$", "./guest/minidriver")
	if err := os.WriteFile(filepath.Join(e.outDir, "golden.txt"), []byte(r.stdout), 0o644); err != nil {
		t.Error(err)
	}
	r.want(t, 0)
	passed := map[string]time.Duration{}
	for _, m := range regexp.MustCompile(`(?m)^--- PASS: (\w+) \(([\d.]+s)\)`).FindAllStringSubmatch(r.stdout, -1) {
		took, err := time.ParseDuration(m[2])
		if err != nil {
			t.Fatal(err)
		}
		passed[m[1]] = took
	}
	for _, g := range goldenTests {
		took, ok := passed[g.test]
		if !ok {
			t.Errorf("%s: %s did not pass", g.what, g.test)
			continue
		}
		e.part(t, g.what, "go test ./guest/minidriver -run "+g.test, "", took)
	}
}

// fuzzDescriptors runs the targets of both rings, alone and through the whole
// card.
func fuzzDescriptors(t *testing.T, e *env) {
	fuzzOver(t, e, []fuzzTarget{
		{"transmit descriptors", "./devmodel/lan", "FuzzTxQueue"},
		{"receive descriptors", "./devmodel/lan", "FuzzRxQueue"},
		{"LAN rings through the whole card", "./guest/minidriver", "FuzzLAN"},
	})
}
