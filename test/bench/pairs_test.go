// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/vrnic/vrnic/guest/launch"
	"github.com/vrnic/vrnic/guest/wire"
	"github.com/vrnic/vrnic/serve"
)

// The pairs of guests. The plain ones are joined by QEMU's own stream netdevs, the
// faster of those that need neither root nor a third process.
const (
	vrnicPair  = "vrnic"
	e1000ePair = "e1000e"
	virtioPair = "virtio-net"
	rxePair    = "rxe"
)

// pair is two guests on one wire.
type pair struct {
	name   string
	guests [2]*launch.Machine
	server *server // nil: none between them
}

// address of the guests of every pair: no pair sees another.
func address(guest int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, 77, byte(guest + 1)}), 24)
}

// bootPairs boots the guests of all pairs at once; they are left when the test ends.
// Those of vrnic's pair have a card each, served by a process of its own or, inside,
// by the test's. What else is different about a pair's guests is for set to say: a
// cable is the socket that plainCard wants.
func bootPairs(t *testing.T, names []string, inside bool, set func(pair string, c *launch.Config, cable string, i int)) (pairs []*pair) {
	t.Helper()
	vrnic, dir := vrnicBinary(t), t.TempDir()
	cards := []string{filepath.Join(dir, "card0"), filepath.Join(dir, "card1")}
	base := guestConfig(t, vrnic)
	var wg sync.WaitGroup
	for _, name := range names {
		p := &pair{name: name}
		pairs = append(pairs, p)
		switch {
		case name != vrnicPair:
		case inside:
			h, err := serve.Start(t.Context(), serve.Options{Sockets: cards})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(h.Close)
		default:
			p.server = startServer(t, vrnic, "serve", "--socket", cards[0], "--socket", cards[1])
		}
		for i := range p.guests {
			c := base
			if name == vrnicPair {
				c.Sockets = cards[i : i+1]
				c.Guest.Nets = []wire.Net{{Addresses: []netip.Prefix{address(i)}}}
			}
			set(name, &c, filepath.Join(dir, name), i)
			wg.Go(func() {
				m, err := launch.Boot(t.Context(), c)
				if err != nil {
					t.Errorf("guest %d of %s: %+v", i, name, err)
					return
				}
				t.Cleanup(m.Kill)
				p.guests[i] = m
			})
		}
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return pairs
}

// plainCard is guest i's end of a cable, with a card of QEMU's.
func plainCard(model, socket string, i int) []string {
	netdev := "stream,id=wire,addr.type=unix,addr.path=" + socket
	if i == 0 {
		netdev += ",server=on"
	} else {
		netdev += ",server=off,reconnect-ms=500"
	}
	return []string{"-netdev", netdev, "-device", fmt.Sprintf("%s,netdev=wire,mac=02:00:00:00:00:%02x", model, i+1)}
}

// end powers the guests off.
func (p *pair) end(t *testing.T) {
	for i, m := range p.guests {
		if err := m.Close(); err != nil {
			t.Errorf("guest %d of %s: %v", i, p.name, err)
		}
	}
	if p.server != nil {
		if text := p.server.stop(); strings.Contains(text, "finding") {
			t.Errorf("what was measured broke a rule:\n%s", text)
		}
	}
}

// inTurns measures every pair once per round.
func inTurns(t *testing.T, pairs []*pair, one func(t *testing.T, p *pair) float64) map[string]samples {
	t.Helper()
	out := map[string]samples{}
	for range rounds {
		for _, p := range pairs {
			out[p.name] = append(out[p.name], one(t, p))
		}
	}
	return out
}

func perPair(what, unit string, pairs []*pair, s map[string]samples) (out []figure) {
	for _, p := range pairs {
		out = append(out, figure{name: what + ", " + p.name, unit: unit, samples: s[p.name]})
	}
	return out
}
