// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vrnic/vrnic/guest/launch"
	"github.com/vrnic/vrnic/images"
)

func init() {
	const list = "two guests: VLAN with priorities, IPv6, multicast, addresses that go, link down and up mid-transfer, "
	for _, k := range worldKernels {
		table = append(table, check{7, "network-" + k, false, list + "--pcap, tshark, " + k, network(k, true)})
	}
	table = append(table, check{7, "network-near", false, list + "without frames", network("debian-backports", false)})
}

// withPrograms gives a guest python and our programs for it.
func withPrograms(t *testing.T, c launch.Config) launch.Config {
	t.Helper()
	dir, err := images.DefaultDir()
	if err != nil {
		t.Fatal(err)
	}
	cache, err := images.Open(images.Options{Dir: dir, Logger: hclog.NewNullLogger()})
	if err != nil {
		t.Fatal(err)
	}
	extra, err := cache.Extra(t.Context(), "pyverbs")
	if err != nil {
		t.Fatal(err)
	}
	c.Initrd = append(c.Initrd, extra)
	c.Copies = append(c.Copies, launch.Copy{Host: "guest", Guest: "/root/"})
	c.MemoryMiB = max(c.MemoryMiB, 1024)
	return c
}

// networkLibrary has what shells need on a network that changes.
const networkLibrary = worldLibrary + programLibrary + `
cd /root/guest
rounds() { cat /tmp/rounds 2> /dev/null || echo 0; }
# goes: traffic has gone on for as many rounds more
goes() {
	n=0; want=$(($(rounds) + $1))
	until [ $(rounds) -ge $want ]; do
		n=$((n+1)); [ $n -lt 600 ] && kill -0 $traffic 2> /dev/null || { echo "FAILED: $(rounds) rounds, want $want"; cat /tmp/traffic; return; }
		sleep 0.1
	done
}
# begin: traffic, by this side's address, to find the other by another of its
begin() {
	rm -f /tmp/stop /tmp/rounds
	python3 traffic.py "$@" > /tmp/traffic 2>&1 & traffic=$!
}
awaits() {
	begin "$@"
	n=0
	until cat /proc/net/tcp6 | grep -q ':4854 [0-9A-F:]* 0A '; do
		n=$((n+1)); [ $n -lt 600 ] && kill -0 $traffic 2> /dev/null || { echo "FAILED: nobody waits"; cat /tmp/traffic; return; }
		sleep 0.1
	done
}
ended() { wait $traffic; cat /tmp/traffic; }
`

// trafficEnd is what traffic.py says at its end.
type trafficEnd struct {
	Rounds               int
	Status, State, Event string
}

// ended waits for a side's traffic to end.
func (m *machine) ended() (end trafficEnd) {
	m.t.Helper()
	text := m.do("ended")
	if err := json.Unmarshal([]byte(text), &end); err != nil {
		m.t.Fatalf("traffic.py: %v\n%s", err, text)
	}
	return end
}

// pairOnNetwork is two guests that talk.
type pairOnNetwork struct {
	t      *testing.T
	e      *env
	kernel string
	a, b   player
}

func network(kernel string, captured bool) func(*testing.T, *env) {
	return func(t *testing.T, e *env) {
		var args []string
		path := filepath.Join(e.outDir, "capture.pcapng")
		if captured {
			args = []string{"--pcap", path}
		}
		s := startServer(t, e, 2, args...)
		var configs []launch.Config
		for i := range 2 {
			c := numbered(smallGuest(t, e, fmt.Sprintf("guest%d", i), kernel, s.sockets[i:i+1]), i+1)
			configs = append(configs, withPrograms(t, c))
		}
		var sides [2]player
		for i, g := range bootAll(t, configs) {
			sides[i] = player{newMachine(t, e.in(t, fmt.Sprintf("guest%d", i)), s, g, networkLibrary), cardDevice}
			sides[i].names(i+1, 2-i)
		}
		n := pairOnNetwork{t, e, kernel, sides[0], sides[1]}
		before := n.left()
		for _, part := range []struct {
			name string
			run  func(pairOnNetwork)
		}{
			{"vlan", pairOnNetwork.vlan},
			{"ipv6", pairOnNetwork.ipv6},
			{"multicast", pairOnNetwork.multicast},
			{"addresses", pairOnNetwork.addresses},
			{"link-short", pairOnNetwork.linkShort},
			{"link-long", pairOnNetwork.linkLong},
		} {
			begin := time.Now()
			t.Run(part.name, func(t *testing.T) {
				a, b := *n.a.machine, *n.b.machine
				a.t, b.t = t, t
				n := pairOnNetwork{t, e, kernel, player{&a, cardDevice}, player{&b, cardDevice}}
				part.run(n)
				if after := n.left(); after != before {
					t.Errorf("left behind: %q, before %q", after, before)
				}
				e.part(t, part.name, "two guests, "+kernel, "", time.Since(begin))
			})
		}
		for _, p := range sides {
			if err := p.guest.Close(); err != nil {
				t.Errorf("power off: %v", err)
			}
			wantCleanLog(t, p.e.kernelLog())
		}
		if err := s.stop(); err != nil {
			t.Errorf("vrnic serve: %v", err)
		}
		wantQuietCard(t, filepath.Join(e.outDir, "serve.log"))
		if !captured {
			return
		}
		c := newCapture(t, path)
		wantPriorities(t, path, kernel)
		c.dissected()
		c.done()
	}
}

// left is what kernels hold, and the first card.
func (n pairOnNetwork) left() string {
	n.t.Helper()
	var all []string
	for _, p := range []player{n.a, n.b} {
		all = append(all, strings.TrimSpace(p.do("rdma resource show $IB")))
	}
	return strings.Join(append(all, n.a.objects().String()), "; ")
}

// both runs commands on both sides, which print nothing. %[1]d is the number of a side.
func (n pairOnNetwork) both(script string) {
	n.t.Helper()
	for i, p := range []player{n.a, n.b} {
		p.quiet(strings.ReplaceAll(script, "NUMBER", fmt.Sprint(i+1)))
	}
}

// priorities are those in tags by type of service (in packets), for a VLAN's
// netdev with the map that vlan sets.
func priorities(kernel string) map[byte]byte {
	if kernel == "debian-12" {
		// verbs.c:irdma_modify_qp_roce, irdma_setup_ah: rt_tos2priority alone.
		return map[byte]byte{0: 0, 0x10: 6}
	}
	// verbs.c:irdma_roce_get_vlan_prio looks it up.
	return map[byte]byte{0: 5, 0x10: 3}
}

// vlan has all kinds of QPs talk in a VLAN.
func (n pairOnNetwork) vlan() {
	n.both(`ip link add link $NET name v100 type vlan id 100 egress-qos-map 0:5 6:3
		ip addr add 10.0.100.NUMBER/24 dev v100; ip link set v100 up; carrier v100
		export gid4=$(gid 0000:0000:0000:0000:0000:ffff:0a00:640NUMBER) self=10.0.100.NUMBER peer=10.0.100.$((3 - NUMBER))`)
	const few = 50
	list := chosen(n.t, tools(few), "rc_pingpong checked", "ud_pingpong", "rping", "write_bw", "read_bw", "send_bw -c UD -s 1024")
	ten := messages{sends: 10}
	list = append(list, tool{
		name: "ucmatose -t 16", cm: true, server: "ucmatose -t 16", client: "ucmatose -t 16 -s $peer", wants: `return status 0`, there: ten, back: ten,
	})
	playAll(n.t, n.e, "vlan", list, n.a, n.b)
	n.both(`ip link del v100`)
	for i, p := range []player{n.a, n.b} {
		p.names(i+1, 2-i)
	}
}

// wantPriorities wants that a capture has packets of the VLAN with all priorities
// that there should be, and no other, and none of its addresses without a tag.
func wantPriorities(t *testing.T, path, kernel string) {
	t.Helper()
	const (
		roce = 4791
		ip   = 14
	)
	type kind struct{ tos, priority byte }
	seen, bare := map[kind]int{}, 0
	err := captureFrames(path, func(_ side, f []byte) {
		if len(f) < 60 {
			return
		}
		at, tci := ip, 0
		if binary.BigEndian.Uint16(f[12:]) == 0x8100 {
			at, tci = ip+4, int(binary.BigEndian.Uint16(f[14:]))
		}
		h := f[at:]
		if binary.BigEndian.Uint16(f[at-2:]) != 0x0800 || h[9] != 17 || binary.BigEndian.Uint16(h[22:]) != roce || h[12] != 10 {
			return
		}
		if tci&0xfff != 100 {
			bare++
			return
		}
		seen[kind{h[1], byte(tci >> 13)}]++
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[kind]bool{}
	for tos, priority := range priorities(kernel) {
		k := kind{tos, priority}
		want[k] = true
		if seen[k] == 0 {
			t.Errorf("no packet in the VLAN has type of service %#x and priority %d", tos, priority)
		}
	}
	for k := range maps.Keys(seen) {
		if !want[k] {
			t.Errorf("%d packets in the VLAN have type of service %#x and priority %d", seen[k], k.tos, k.priority)
		}
	}
	if bare > 0 {
		t.Errorf("%d packets with addresses of the VLAN are not in it", bare)
	}
}

// ipv6 is what programs do by GIDs of IPv6.
func (n pairOnNetwork) ipv6() {
	n.both(`export gid4=$gid6`)
	list := chosen(n.t, tools(50), "rc_pingpong IPv6", "ud_pingpong IPv6", "rping 6", "write_bw", "read_bw", "send_bw", "send_bw -c UD -s 1024")
	playAll(n.t, n.e, "ipv6", list, n.a, n.b)
	for i, p := range []player{n.a, n.b} {
		p.names(i+1, 2-i)
	}
}

// multicast has a member of a group in each guest, and a sender beside one. The
// connection manager knows no groups of IPv6 (cma.c:cma_iboe_join_multicast answers
// -ENOTSUPP with RoCEv2).
//
// The member beside the sender outlives it: irdma does not keep commands for a
// group in order when two of its members come and go at once (allowed-findings.json).
func (n pairOnNetwork) multicast() {
	const group = "239.77.1.2"
	before := [2]tally{n.a.statistics(), n.b.statistics()}
	n.a.quiet(`mckey -m ` + group + ` -C 1000 -b $self > /tmp/member 2>&1 & member=$!`)
	n.b.quiet(`timeout 150 mckey -m ` + group + ` -b $self > /tmp/member 2>&1 & member=$!`)
	// A member listens some time after it was started.
	for i := 0; i < 40 && n.b.do(`grep -q 'State:.[^Z]' /proc/$member/status 2> /dev/null && echo yes`) != ""; i++ {
		n.a.quiet(`timeout 60 mckey -m ` + group + ` -s -b $self > /tmp/sender 2>&1 || { echo "FAILED: $?"; cat /tmp/sender; }`)
	}
	n.b.quiet(`wait $member || { echo "FAILED: $?"; cat /tmp/member; }; grep -q 'return status 0' /tmp/member || cat /tmp/member`)
	n.a.quiet(`{ kill $member; wait $member; ended=$?; } 2> /dev/null; [ $ended = 143 ] || { echo "FAILED: the member beside the sender"; cat /tmp/member; }`)
	for i, p := range []player{n.a, n.b} {
		moved := p.statistics().minus(before[i])
		want := []string{"ip4InMcastPkts", "InRdmaSends"}
		if i == 0 {
			want = []string{"ip4OutMcastPkts", "OutRdmaSends", "InRdmaSends"}
		}
		for _, c := range want {
			if moved[c] < 10 {
				n.t.Errorf("%s of guest %d moved by %d, want 10 at least", c, i, moved[c])
			}
		}
	}
}

// start begins traffic by IPv4 GIDs, whose ends find each other by IPv6.
func (n pairOnNetwork) start() {
	n.t.Helper()
	n.b.quiet("awaits $self")
	n.a.quiet("begin $self $peer6 && goes 20")
}

// stop ends traffic, and wants that nothing has gone wrong.
func (n pairOnNetwork) stop() {
	n.t.Helper()
	n.a.quiet("touch /tmp/stop")
	for _, p := range []player{n.a, n.b} {
		if end := p.ended(); end.Status != "SUCCESS" || end.State != "RTS" || end.Event != "" {
			n.t.Errorf("the traffic ends with %+v", end)
		}
	}
}

// addresses takes the addresses away by which queue pairs are connected.
func (n pairOnNetwork) addresses() {
	n.start()
	n.both(`ip addr del 192.168.77.NUMBER/24 dev $NET; ip neigh flush dev $NET nud all > /dev/null 2>&1`)
	n.a.quiet("goes 40")
	n.both(`ip addr add 192.168.77.NUMBER/24 dev $NET`)
	n.a.quiet("goes 20")
	n.stop()
	for i, p := range []player{n.a, n.b} {
		p.names(i+1, 2-i)
	}
}

// link sets the first card's.
func (n pairOnNetwork) link(state string) {
	n.t.Helper()
	n.a.ctl("link", state)
}

// linkShort takes the link away for less than retries take.
func (n pairOnNetwork) linkShort() {
	before := n.a.statistics()
	n.start()
	lost := 0
	for i := 0; i < 10 && lost == 0; i++ {
		n.link("down")
		n.link("up")
		n.a.quiet("carrier $NET; goes 20")
		lost = n.a.statistics().minus(before)["RetransSegs"]
	}
	if lost == 0 {
		n.t.Error("nothing was sent again")
	}
	n.stop()
}

// linkLong takes the link away for good, as the queue pairs see it, and wants that
// after that others work.
func (n pairOnNetwork) linkLong() {
	n.start()
	n.link("down")
	if end := n.a.ended(); end.Status != "RETRY_EXC_ERR" || end.State != "ERR" || end.Event != "QP_FATAL" || end.Rounds == 0 {
		n.t.Errorf("the traffic ends with %+v", end)
	}
	n.link("up")
	n.a.quiet("carrier $NET")
	if end := n.b.ended(); end.Status != "SUCCESS" || end.State != "RTS" || end.Event != "" {
		n.t.Errorf("the passive side ends with %+v", end)
	}
	n.start()
	n.stop()
}
