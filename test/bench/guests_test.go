// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"flag"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/vrnic/vrnic/guest/launch"
)

var (
	inside  = flag.Bool("inside", false, "serve the cards of TestGuests in the test's own process, so that -cpuprofile sees them")
	choice  = flag.String("programs", "", "measure those programs of TestGuests alone whose names match")
	sides   = flag.String("pairs", vrnicPair+","+rxePair, "pairs of guests in TestGuests")
	netMTUs = flag.String("mtu", "1500,9000", "MTUs of the netdevs in TestGuests")
)

// The bounds of what was promised of RDMA between guests, over what rxe does on
// virtio-net between two others.
const (
	minTiny  = 3  // of bandwidth: at 64 bytes,
	minPage  = 10 // at 4 KiB,
	minLarge = 20 // and above
	maxWait  = 0.25
	maxRping = 0.5
	minAlone = 5 // of bandwidth in one guest that talks to itself
)

// TestGuests lets programs of rdma-core and perftest talk between two guests with a
// card each, and between two guests with rxe on QEMU's virtio-net, in turns. All
// have one CPU.
func TestGuests(t *testing.T) {
	if !*measure {
		t.Skip("no -measure given: this boots four guests, and its figures are worth something on a quiet machine only; make bench passes it")
	}
	wanted := regexp.MustCompile(*choice)
	pairs := bootPairs(t, strings.Split(*sides, ","), *inside, func(pair string, c *launch.Config, cable string, i int) {
		c.Guest.Modules = nil // irdma and all it needs
		if pair == rxePair {
			c.Guest.Modules = []string{"virtio_net", "rdma_rxe", "ib_uverbs", "rdma_ucm", "ib_umad"}
			c.QEMUArgs = plainCard("virtio-net-pci", cable, i)
		}
	})
	var r report
	if wanted.MatchString("CPU, idle") && !*inside {
		r.take(t, pairs[0].idle)
	}
	for _, mtu := range strings.Split(*netMTUs, ",") {
		for _, p := range pairs {
			p.setMTU(t, mtu)
		}
		for _, p := range programs() {
			if wanted.MatchString(p.name) {
				r.take(t, func(t *testing.T) []figure { return p.compare(t, pairs, mtu) })
			}
		}
	}
	if wanted.MatchString("CPU of traffic") && !*inside {
		r.take(t, pairs[0].costs)
	}
	for _, p := range pairs {
		p.end(t)
	}
	r.close(t)
}

// setMTU also gives plain guests addresses and RDMA devices, the first time.
func (p *pair) setMTU(t *testing.T, mtu string) {
	t.Helper()
	for i, m := range p.guests {
		script := "for d in /sys/class/net/*; do [ -e $d/device ] && dev=${d##*/}; done\nip link set $dev mtu " + mtu + " up\n"
		if p.name == rxePair {
			script += fmt.Sprintf("ip addr replace %s dev $dev; [ -e /sys/class/infiniband/rxe0 ] || rdma link add rxe0 type rxe netdev $dev", address(i))
		}
		inGuest(t, m, "sh", "-ec", script)
	}
	inGuest(t, p.guests[0], "ping", "-c", "1", "-w", "60", address(1).Addr().String())
}
