// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vrnic/vrnic/guest/launch"
	"github.com/vrnic/vrnic/guest/minidriver"
	vfiouser "github.com/vrnic/vrnic/vfio-user"
)

var measure = flag.Bool("measure", false, "measure and hold the figures against their bounds")

// The bounds of what was promised.
const (
	maxReadRatio = 1.15
	minDoorbells = 1e6 // per second
)

const (
	rounds = 5
	// gsiQP is the QP that irdma always has: a doorbell for it is welcome.
	gsiQP = 1
)

// TestMeasure measures everything and prints the table. A figure that misses its
// bound is measured again, once.
func TestMeasure(t *testing.T) {
	if !*measure {
		t.Skip("no -measure given: this boots a guest, and its figures are worth something on a quiet machine only; make bench passes it")
	}
	cpu, err := pin()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("everything runs on CPU %d", cpu)
	vrnic := vrnicBinary(t)
	echo, tool := buildTool(t, "echo"), buildTool(t, "mmiobench")
	dir := t.TempDir()
	cards := []string{filepath.Join(dir, "card0"), filepath.Join(dir, "card1")}
	echoSocket := filepath.Join(dir, "echo")
	cardServer := startServer(t, vrnic, "serve", "--socket", cards[0], "--socket", cards[1])
	startServer(t, echo, "-socket", echoSocket)
	m := bootGuest(t, vrnic, []string{cards[0], echoSocket}, tool)

	var figures []figure
	take := func(f func(t *testing.T) []figure) {
		got := f(t)
		for _, g := range got {
			if g.missed() {
				t.Logf("%s: %s, bound %v; measured again", g.name, number(g.samples.median()), g.bound)
				got = f(t)
				break
			}
		}
		figures = append(figures, got...)
	}
	take(func(t *testing.T) []figure { return reads(t, m) })
	inGuest(t, m, "modprobe", "-a", "ice", "irdma")
	take(func(t *testing.T) []figure { return guestDoorbells(t, m) })
	take(clientDoorbells(t, cards[1]))
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if text := cardServer.stop(); strings.Contains(text, "finding") {
		t.Errorf("what was measured broke a rule, so it is not what a driver does:\n%s", text)
	}

	var table bytes.Buffer
	if err := writeTable(&table, figures); err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\n%s\n", &table)
	for _, f := range figures {
		if f.missed() {
			t.Errorf("%s: %s, bound %v", f.name, number(f.samples.median()), f.bound)
		}
	}
}

// mmiobench runs the tool in the guest.
func mmiobench(t *testing.T, m *launch.Machine, args ...string) map[string]*mmio {
	t.Helper()
	out := inGuest(t, m, append([]string{"/root/mmiobench", fmt.Sprintf("-rounds=%d", rounds)}, args...)...)
	found, err := parseMMIO(out)
	if err != nil {
		t.Fatalf("mmiobench: %v\n%s", err, out)
	}
	for _, name := range []string{"card", "echo", "edu"} {
		if d := found[name]; d == nil || len(d.whole) != rounds {
			t.Fatalf("mmiobench did not measure %s\n%s", name, out)
		}
	}
	return found
}

// reads is the round trip of a register read, with no driver bound.
func reads(t *testing.T, m *launch.Machine) []figure {
	d := mmiobench(t, m, "read",
		fmt.Sprintf("card=0x8086:0x1592,%#x,10000", minidriver.GLGEN_STAT),
		"echo=0x1234:0xec40,0,10000",
		"edu=0x1234:0x11e8,0,200000")
	return []figure{
		{name: "register read, vrnic", unit: "ns", samples: d["card"].whole},
		{name: "register read, bare Go echo server", unit: "ns", samples: d["echo"].whole},
		{name: "register read, edu inside QEMU", unit: "ns", samples: d["edu"].whole},
		{name: "register read, vrnic / echo server", unit: "ratio", samples: d["card"].whole.over(d["echo"].whole), bound: bound{atMost: maxReadRatio}},
		{name: "register read, vrnic / edu", unit: "ratio", samples: d["card"].whole.over(d["edu"].whole)},
	}
}

// guestDoorbells is writes of PFPE_WQEALLOC for irdma's own QP by a guest, with
// both drivers bound, until all have been taken.
func guestDoorbells(t *testing.T, m *launch.Machine) []figure {
	d := mmiobench(t, m, "-pieces=2", "write",
		fmt.Sprintf("card=0x8086:0x1592,%#x,200000,%#x,%d", minidriver.GLGEN_STAT, minidriver.PFPE_WQEALLOC, gsiQP),
		"echo=0x1234:0xec40,0,200000,8,1",
		"edu=0x1234:0x11e8,4,200000,4,1")
	return []figure{
		{name: "doorbells of a guest, vrnic", unit: "1/s", samples: d["card"].whole.rates(), bound: bound{atLeast: minDoorbells}},
		{name: "doorbells of a guest, bare Go echo server", unit: "1/s", samples: d["echo"].whole.rates()},
		{name: "doorbells of a guest, edu inside QEMU", unit: "1/s", samples: d["edu"].whole.rates()},
		{name: "doorbells of a guest, given away by it, vrnic", unit: "1/s", samples: d["card"].issue.rates()},
	}
}

// clientDoorbells is doorbells of a connected QP in packets of 200, as QEMU
// sends them under pressure, from a client in this process.
func clientDoorbells(t *testing.T, socket string) func(t *testing.T) []figure {
	const packet, packets = 200, 1000
	g, err := minidriver.NewGuest(64)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	f, err := minidriver.Attach(t.Context(), socket, g)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Detach)
	qp := connectedQP(t, f)
	return func(t *testing.T) []figure {
		ring := binary.LittleEndian.AppendUint32(nil, qp.ID)
		writes := make([]vfiouser.RegionWriteOp, packet)
		for i := range writes {
			writes[i] = vfiouser.RegionWriteOp{Region: vfiouser.RegionBAR0, Offset: minidriver.PFPE_WQEALLOC, Data: ring}
		}
		round := func(packets int) float64 {
			began := time.Now()
			for range packets {
				if err := f.Client.PostRegions(writes); err != nil {
					t.Fatal(err)
				}
			}
			f.Read32(minidriver.GLGEN_STAT)
			if err := f.Err(); err != nil {
				t.Fatal(err)
			}
			return float64(packet*packets) / time.Since(began).Seconds()
		}
		round(packets / 10)
		var s samples
		for range rounds {
			s = append(s, round(packets))
		}
		return []figure{{name: "doorbells by REGION_WRITE_MULTI, vrnic", unit: "1/s", samples: s, bound: bound{atLeast: minDoorbells}}}
	}
}

// connectedQP brings both drivers up and returns one of two QPs that are each
// other's peers.
func connectedQP(t *testing.T, f *minidriver.Function) *minidriver.QP {
	t.Helper()
	fail := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	i, err := minidriver.Probe(f, minidriver.Linux73(), minidriver.Options{})
	fail(err)
	r, err := minidriver.ProbeRDMA(i, minidriver.Options{})
	fail(err)
	fail(i.Open())
	var qps [2]*minidriver.QP
	for k := range qps {
		cq, err := r.CreateCQ(64, 0, false)
		fail(err)
		qps[k], err = r.NewQP(minidriver.QPConfig{Send: cq, Recv: cq, PD: 1, SendWRs: 16, RecvWRs: 16, SendSGEs: 1, RecvSGEs: 1})
		fail(err)
	}
	fail(minidriver.ConnectPair(qps[0], qps[1]))
	return qps[0]
}
