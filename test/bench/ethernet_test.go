// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/vrnic/vrnic/guest/launch"
)

// The bounds of what was promised of Ethernet.
const (
	minOverE1000E = 2.0 // of iperf3's rates
	minOverVirtio = 0.9
	maxPing       = 1.3 // of the median round trips, over e1000e's
)

// TestEthernet lets two guests with a card each talk over the switch between, and
// pairs of guests with QEMU's own cards, in turns. Unlike [TestMeasure] it leaves
// the processes to all CPUs: who waits for whom is part of what a user sees.
func TestEthernet(t *testing.T) {
	if !*measure {
		t.Skip("no -measure given: this boots six guests, and its figures are worth something on a quiet machine only; make bench passes it")
	}
	pairs := bootPairs(t, []string{vrnicPair, e1000ePair, virtioPair}, false, func(pair string, c *launch.Config, cable string, i int) {
		switch pair {
		case vrnicPair:
			c.Guest.Modules = []string{"ice"}
		case e1000ePair:
			c.Guest.Modules = []string{"e1000e"}
			c.QEMUArgs = plainCard("e1000e", cable, i)
		case virtioPair:
			c.Guest.Modules = []string{"virtio_net"}
			c.QEMUArgs = plainCard("virtio-net-pci", cable, i)
		}
	})
	for _, p := range pairs {
		p.begin(t)
	}
	var r report
	r.take(t, func(t *testing.T) []figure { return throughput(t, pairs) })
	r.take(t, func(t *testing.T) []figure { return roundTrips(t, pairs) })
	for _, p := range pairs {
		p.end(t)
	}
	r.close(t)
}

// begin gives the netdevs of plain guests addresses, waits until the guests hear
// each other, and starts iperf3's server in the second.
func (p *pair) begin(t *testing.T) {
	t.Helper()
	for i, m := range p.guests {
		if p.server == nil {
			inGuest(t, m, "sh", "-ec", fmt.Sprintf(`
				for d in /sys/class/net/*; do [ -e $d/device ] && dev=${d##*/}; done
				ip addr add %s dev $dev; ip link set $dev up`, address(i)))
		}
	}
	// A link takes seconds to come up on some cards.
	inGuest(t, p.guests[0], "ping", "-c", "1", "-w", "60", address(1).Addr().String())
	inGuest(t, p.guests[1], "iperf3", "--server", "--daemon")
}

// throughput is what iperf3 brings over by TCP from the first guest to the second,
// once the window is open.
func throughput(t *testing.T, pairs []*pair) []figure {
	const seconds = 5
	s := inTurns(t, pairs, func(t *testing.T, p *pair) float64 {
		text := inGuest(t, p.guests[0], "iperf3", "--client", address(1).Addr().String(), "--omit", "1", "--time", strconv.Itoa(seconds), "--json")
		var r struct {
			End struct {
				Received struct {
					Rate float64 `json:"bits_per_second"`
				} `json:"sum_received"`
			} `json:"end"`
		}
		if err := json.Unmarshal([]byte(text), &r); err != nil || r.End.Received.Rate == 0 {
			t.Fatalf("iperf3 on %s: %v\n%s", p.name, err, text)
		}
		return r.End.Received.Rate / 1e6
	})
	f := perPair("iperf3", "Mbit/s", pairs, s)
	return append(f,
		figure{name: "iperf3, vrnic / e1000e", unit: "ratio", samples: s[vrnicPair].over(s[e1000ePair]), bound: bound{atLeast: minOverE1000E}},
		figure{name: "iperf3, vrnic / virtio-net", unit: "ratio", samples: s[vrnicPair].over(s[virtioPair]), bound: bound{atLeast: minOverVirtio}})
}

var pingTime = regexp.MustCompile(`time=([0-9.]+) ms`)

// roundTrips is the median time of 100 pings.
func roundTrips(t *testing.T, pairs []*pair) []figure {
	const pings = 100
	s := inTurns(t, pairs, func(t *testing.T, p *pair) float64 {
		text := inGuest(t, p.guests[0], "ping", "-n", "-c", strconv.Itoa(pings), "-i", "0.05", address(1).Addr().String())
		var times samples
		for _, m := range pingTime.FindAllStringSubmatch(text, -1) {
			ms, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			times = append(times, ms*float64(time.Millisecond/time.Microsecond))
		}
		if len(times) != pings {
			t.Fatalf("%d of %d pings on %s came back\n%s", len(times), pings, p.name, text)
		}
		return times.median()
	})
	return append(perPair("ping", "µs", pairs, s),
		figure{name: "ping, vrnic / e1000e", unit: "ratio", samples: s[vrnicPair].over(s[e1000ePair]), bound: bound{atMost: maxPing}})
}
