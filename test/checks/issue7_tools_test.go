// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/vrnic/vrnic/guest/launch"
	"github.com/vrnic/vrnic/guest/wire"
)

func init() {
	const list = "ibv_rc_pingpong, ibv_ud_pingpong, rping, ucmatose, udaddy, perftest; --mtu 9000"
	for _, k := range worldKernels {
		table = append(table,
			check{7, "tools-one-" + k, false, list + "; one guest, " + k, toolsOne(k)},
			check{7, "tools-two-" + k, false, list + "; two guests, " + k, toolsTwo(k, false)},
			check{7, "tools-captured-" + k, false, list + "; two guests, --pcap, tshark, " + k, toolsTwo(k, true)},
		)
	}
	table = append(table, check{7, "tools-ci", true, "6 programs, two guests, --pcap, tshark", toolsSample})
}

// jumbo is the MTU of netdevs whose packets of RoCE have up to 4096 bytes.
const jumbo = 9000

// numbered describes the n-th guest: 192.168.77.n and fd77::n on its card.
func numbered(c launch.Config, n int) launch.Config {
	c.Guest.Nets = []wire.Net{{MTU: jumbo, Addresses: []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, 77, byte(n)}), 24),
		netip.MustParsePrefix(fmt.Sprintf("fd77::%x/64", n)),
	}}}
	return c
}

// toolsOne has a guest talk to itself.
func toolsOne(kernel string) func(*testing.T, *env) {
	return func(t *testing.T, e *env) {
		s := startServer(t, e, 1)
		c := numbered(guestConfig(t, e, kernel, s.sockets), 1)
		guest, err := launch.Boot(t.Context(), c)
		if err != nil {
			t.Fatalf("%+v", err)
		}
		client, server := newMachine(t, e, s, guest, programLibrary), newMachine(t, e, s, guest, programLibrary)
		client.names(1, 1)
		server.names(1, 1)
		playAll(t, e, "alone", tools(1000), player{client, cardDevice}, player{server, cardDevice})
		client.end()
		wantCleanLog(t, e.kernelLog())
		wantQuietCard(t, filepath.Join(e.outDir, "serve.log"))
	}
}

// toolsTwo has two guests talk. Without a capture what they say passes between
// their cards in whichever way is the shortest; with one in frames.
func toolsTwo(kernel string, captured bool) func(*testing.T, *env) {
	return func(t *testing.T, e *env) {
		n := 1000
		if captured {
			n = 200
		}
		twoGuests(t, e, kernel, captured, tools(n))
	}
}

// toolsSample is what every change has to pass.
func toolsSample(t *testing.T, e *env) {
	twoGuests(t, e, "debian-backports", true, chosen(t, tools(100),
		"rc_pingpong checked", "rc_pingpong MTU 4096 IPv6", "ud_pingpong", "rping", "write_bw -q 8", "read_bw"))
}

func twoGuests(t *testing.T, e *env, kernel string, captured bool, list []tool) {
	t.Helper()
	var args []string
	path := filepath.Join(e.outDir, "capture.pcapng")
	if captured {
		args = []string{"--pcap", path}
	}
	s := startServer(t, e, 2, args...)
	var configs []launch.Config
	for i := range 2 {
		configs = append(configs, numbered(smallGuest(t, e, fmt.Sprintf("guest%d", i), kernel, s.sockets[i:i+1]), i+1))
	}
	var sides [2]player
	for i, g := range bootAll(t, configs) {
		sides[i] = player{newMachine(t, e.in(t, fmt.Sprintf("guest%d", i)), s, g, programLibrary), cardDevice}
		sides[i].names(i+1, 2-i)
	}
	playAll(t, e, "to peer", list, sides[0], sides[1])
	var counted [2]tally
	for i, p := range sides {
		counted[i] = p.statistics() // since the card was plugged in
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
	seen := c.roce()
	for i := range sides {
		for direction, name := range map[string]string{outbound: cardDevice.sent, inbound: cardDevice.received} {
			if got, want := seen[side{fmt.Sprintf("card%d", i), direction}].frames, counted[i][name]; got != want {
				t.Errorf("card%d: %d packets in the capture, %s counted %d", i, got, name, want)
			}
		}
	}
	c.dissected()
	c.done()
}
