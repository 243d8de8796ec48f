// SPDX-License-Identifier: Apache-2.0

package roce

import "testing"

// costless is a node whose copies cost nothing.
type costless struct{ *node }

func (costless) Copy(*SGL, uint32, *SGL, uint32, uint32) Fault { return Fault{} }
func (costless) Remote(uint32, uint64, uint32, bool) Fault     { return Fault{} }

// A message of half of all PSNs has short ones around it, and the peer
// acknowledges what has come together: PSNs are then further apart than a
// signed difference can say. The windows end at different places in it.
func TestLongestWriteAndMore(t *testing.T) {
	for _, window := range []uint32{128, 137, 144, 149, 1024} {
		p := newPair(t, settings{mtu: 256, retries: 7, rnr: 7})
		for _, n := range []*node{p.a, p.b} {
			n.ep = New(costless{n}, new(Store))
			n.ep.Lend(new(Scratch))
			n.ep.StartResponder(ResponderConfig{MTU: 256, Reads: 32}, false)
			n.ep.StartRequester(RequesterConfig{MTU: 256, Retries: 7, RNRRetries: 7, ORD: 16, Window: window, Timeout: timeout})
		}
		const posted = 40
		for i := range uint32(posted) {
			w := WQE{Kind: KindWrite, Index: i, Signaled: true, Len: 4, Key: 7}
			if i == 1 {
				w.Len = 1<<31 - 1
			}
			p.a.post(w)
		}
		deliver := func(to *node) (moved bool) {
			for len(p.net.flights) > 0 && p.net.flights[0].to == to {
				p.net.deliver()
				moved = true
			}
			return moved
		}
		for len(p.a.fails) == 0 && len(p.a.got) < posted {
			p.a.progress()
			moved := deliver(p.b)
			p.b.progress()
			if moved = deliver(p.a) || moved; !moved {
				d := p.a.ep.Deadline()
				if d == 0 {
					break
				}
				p.net.now = max(p.net.now, d)
			}
		}
		if len(p.a.got) != posted || len(p.a.fails) != 0 {
			t.Errorf("window %d: %d of %d completions, fails %v", window, len(p.a.got), posted, p.a.fails)
		}
	}
}

// One call of Progress is bounded, whatever is posted.
func TestProgressIsBounded(t *testing.T) {
	p := newPair(t, settings{mtu: 256})
	for i := range uint32(3 * progressLimit) {
		p.a.post(WQE{Kind: KindLocal, Index: i})
	}
	calls := 1
	for p.a.ep.Progress() {
		if n := len(p.a.local); n > calls*progressLimit {
			t.Fatalf("%d WQEs after %d calls", n, calls)
		}
		calls++
	}
	if len(p.a.local) != 3*progressLimit || calls < 3 {
		t.Errorf("%d WQEs done in %d calls", len(p.a.local), calls)
	}
}
