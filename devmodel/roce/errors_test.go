// SPDX-License-Identifier: Apache-2.0

package roce

import (
	"testing"
	"time"
)

// Errors: what each side reports, what goes over the wire, which completions
// there are before, and when it is over.
func TestErrors(t *testing.T) {
	rnr := func(p *pair) { p.a.post(sendOf(p.a, 5, 0, 10)) }
	deaf := func(p *pair) {
		p.net.drop = func(*node, *Run) bool { return true }
		if p.net.wire != nil {
			p.net.wire.drop = p.net.drop
		}
	}
	// unreadable is work whose payload turns bad in its third packet.
	unreadable := func(n *node, w WQE) WQE {
		w.SGL = n.list([2]uint32{0, 2500})
		w.SGL.Add(66, 2500, w.Len-2500)
		n.stags[66] = 0x0103
		return w
	}
	tests := map[string]struct {
		settings settings
		do       func(p *pair)
		a, b     string // failures
		nak      string // syndrome and PSN of the last from b
		got      []string
		after    time.Duration
	}{
		"retries exhausted": {settings{retries: 3}, func(p *pair) {
			deaf(p)
			p.a.post(writeOf(p.a, 4, 0, 0, 10))
		}, "AE 0x050a source 5 WQE 4", "", "", nil, 4 * timeout},
		"no retries": {settings{}, func(p *pair) {
			deaf(p)
			p.a.post(readOf(p.a, 4, 0, 0, 10))
		}, "AE 0x050a source 5 WQE 4", "", "", nil, timeout},
		"RNR exhausted":  {settings{rnr: 2}, rnr, "AE 0x050f source 5 WQE 5", "", "0x2c 0", nil, 2 * 640 * time.Microsecond},
		"no RNR retries": {settings{rnr: 0}, rnr, "AE 0x050f source 5 WQE 5", "", "0x2c 0", nil, 0},
		"remote access, write": {settings{}, func(p *pair) {
			p.b.refuse[7] = true
			p.a.post(writeOf(p.a, 1, 0, 0, 0)) // nothing to check
			p.a.post(writeOf(p.a, 2, 0, 0, 5000))
		}, "AE 0x020d source 5 WQE 2", "AE 0x0109 source 9 WQE 0", "0x62 1", []string{"sq 1 op 0"}, 0},
		"remote access, read": {settings{}, func(p *pair) {
			p.b.refuse[7] = true
			p.a.post(readOf(p.a, 2, 0, 0, 5000))
		}, "AE 0x020d source 5 WQE 2", "AE 0x0109 source 9 WQE 0", "0x62 0", nil, 0},
		"remote access, in the middle of a write": {settings{}, func(p *pair) {
			p.b.limit = 2500
			p.a.post(writeOf(p.a, 2, 0, 0, 5000))
		}, "AE 0x020d source 5 WQE 2", "AE 0x0108 source 9 WQE 0", "0x62 2", nil, 0},
		"send too long": {settings{}, func(p *pair) {
			p.b.receive(8, 0, 2000)
			p.a.fill(0, 5000, 1)
			p.a.post(sendOf(p.a, 2, 0, 5000))
		}, "AE 0x0208 source 5 WQE 2", "AE 0x0303 source 1 WQE 8", "0x61 1", nil, 0},
		"receive buffer's STag": {settings{}, func(p *pair) {
			p.b.receive(8, 0, 2000)
			p.b.stags[1] = 0x0102
			p.a.post(sendOf(p.a, 2, 0, 10))
		}, "AE 0x020e source 5 WQE 2", "AE 0x0102 source 1 WQE 8", "0x63 0", nil, 0},
		"bad receive WQE": {settings{}, func(p *pair) {
			p.b.badRQ = InvalidFragment
			p.a.post(sendOf(p.a, 2, 0, 10))
		}, "AE 0x020e source 5 WQE 2", "AE 0x020c source 1 WQE 0", "0x63 0", nil, 0},
		"bad receive WQE, write with immediate": {settings{}, func(p *pair) {
			p.b.badRQ = InvalidFragment
			w := writeOf(p.a, 2, 0, 0, 3000)
			w.HasImm = true
			p.a.post(w)
		}, "AE 0x020e source 5 WQE 2", "AE 0x020c source 1 WQE 0", "0x63 2", nil, 0},
		"source gone while sending": {settings{}, func(p *pair) {
			p.a.post(writeOf(p.a, 1, 0, 0, 10))
			p.a.post(readOf(p.a, 2, 0, 0, 5000))
			p.a.post(unreadable(p.a, writeOf(p.a, 3, 0, 0, 5000)))
			p.a.post(writeOf(p.a, 4, 0, 0, 10))
		}, "AE 0x0103 source 5 WQE 3", "", "", []string{"sq 1 op 0", "sq 2 op 1"}, 0},
		"source gone, of a send": {settings{}, func(p *pair) {
			p.b.receive(8, 0, 5000)
			p.a.post(unreadable(p.a, sendOf(p.a, 3, 0, 5000)))
		}, "AE 0x0103 source 5 WQE 3", "", "", nil, 0},
		"source of a response gone": {settings{}, func(p *pair) {
			p.b.stags[7] = 0x0102
			p.a.post(writeOf(p.a, 1, 0, 0, 0))
			p.a.post(readOf(p.a, 2, 0, 0, 5000))
		}, "AE 0x020d source 5 WQE 2", "AE 0x0102 source 9 WQE 0", "0x62 1", []string{"sq 1 op 0"}, 0},
		"read sink": {settings{}, func(p *pair) {
			p.a.stags[1] = 0x0109
			p.a.post(readOf(p.a, 2, 0, 0, 5000))
		}, "AE 0x0109 source 5 WQE 2", "", "", nil, 0},
		"fault of a WQE waits for those before": {settings{}, func(p *pair) {
			p.a.post(readOf(p.a, 2, 0, 0, 5000))
			w := sendOf(p.a, 7, 0, 1)
			w.Fault = UnexpectedOpcode
			p.a.post(w)
			p.a.post(writeOf(p.a, 8, 0, 0, 10))
		}, "AE 0x020a source 5 WQE 7", "", "", []string{"sq 2 op 1"}, 0},
		"invalidate": {settings{}, func(p *pair) {
			p.b.stags[3] = 0x0112
			p.b.receive(8, 0, 2000)
			w := sendOf(p.a, 2, 0, 2000)
			w.HasInv, w.Inv = true, 3
			p.a.post(w)
		}, "AE 0x020d source 5 WQE 2", "AE 0x0112 source 9 WQE 0", "0x62 1", nil, 0},
		"MTUs differ": {settings{mtu: 1024, mtuB: 512}, func(p *pair) {
			p.a.post(writeOf(p.a, 2, 0, 0, 5000))
		}, "AE 0x0208 source 5 WQE 2", "AE 0x0208 source 9 WQE 0", "0x61 0", nil, 0},
		"MTUs differ, read": {settings{mtu: 1024, mtuB: 512}, func(p *pair) {
			p.a.post(readOf(p.a, 2, 0, 0, 5000))
		}, "AE 0x0316 source 5 WQE 2", "", "", nil, 0},
		"too many reads": {settings{reads: 2, ord: 8}, func(p *pair) {
			for i := range uint32(5) {
				p.a.post(readOf(p.a, i, 0, 0, 10))
			}
			p.b.late = true
		}, "AE 0x0208 source 5 WQE 2", "AE 0x0207 source 9 WQE 0", "0x61 2", []string{"sq 0 op 1", "sq 1 op 1"}, 0},
		"no room for the completion of a receive": {settings{}, func(p *pair) {
			p.b.receive(8, 0, 2000)
			p.b.full = true
			p.a.post(sendOf(p.a, 2, 0, 2000))
		}, "AE 0x020e source 5 WQE 2", "AE 0x0700 source 1 WQE 8", "0x63 1", nil, 0},
		"no room for the completion of a send": {settings{}, func(p *pair) {
			p.a.full = true
			p.a.post(writeOf(p.a, 2, 0, 0, 2000))
		}, "AE 0x0700 source 5 WQE 2", "", "", nil, 0},
	}
	for name, tt := range tests {
		for _, mode := range []string{"runs", "packets", "frames"} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				p := newPair(t, tt.settings)
				p.net.single = mode == "packets"
				if mode == "frames" {
					p.net.wire = newWire(1, fate{})
					tt.do(p)
					got := answers(p.a)
					p.drive(time.Minute)
					if n := len(*got); tt.nak != "" && (n == 0 || (*got)[n-1] != tt.nak) {
						t.Errorf("answers %q, want %q at last", *got, tt.nak)
					}
				} else {
					tt.do(p)
					p.run()
				}
				for n, want := range map[*node]string{p.a: tt.a, p.b: tt.b} {
					fails := []string{want}
					if want == "" {
						fails = nil
					}
					p.wantFails(n, fails...)
				}
				p.want(p.a, tt.got...)
				if p.net.now != tt.after {
					t.Errorf("took %v, want %v", p.net.now, tt.after)
				}
			})
		}
	}
}

// The news that a response cannot be read waits for room on the link.
func TestNewsWaits(t *testing.T) {
	p := newPair(t, settings{})
	p.b.stags[7] = 0x0102
	p.a.post(readOf(p.a, 2, 0, 0, 5000))
	for _, n := range []*node{p.a, p.b} {
		n.progress()
		if n == p.a {
			p.net.deliver()
		}
	}
	p.net.put(p.b, Run{Op: Acknowledge, PSN: 99}) // takes the link
	p.net.bound = 1
	p.net.flights[0], p.net.flights[1] = p.net.flights[1], p.net.flights[0]
	p.a.ep.Handle(&p.net.flights[1].run)
	p.net.flights = p.net.flights[:1]
	p.run()
	p.wantFails(p.a, "AE 0x020d source 5 WQE 2")
	p.wantFails(p.b, "AE 0x0102 source 9 WQE 0")
	if p.net.now != 0 {
		t.Errorf("took %v", p.net.now)
	}
}

// A peer that ends takes along the responses that nobody has copied yet. Its
// last word, a NAK for a later request, still ends the read, and at once.
func TestResponsesGoneWithThePeer(t *testing.T) {
	p := newPair(t, settings{retries: 7})
	p.b.refuse[8] = true
	w := writeOf(p.a, 3, 0, 0, 10)
	w.Key = 8
	p.a.post(readOf(p.a, 2, 0, 0, 5000))
	p.a.post(w)
	p.a.progress()
	for _, f := range p.net.flights {
		p.b.ep.Handle(&f.run)
	}
	p.net.flights = nil
	p.b.progress()
	p.wantFails(p.b, "AE 0x0109 source 9 WQE 0")
	p.b.gen++
	p.run()
	p.wantFails(p.a, "AE 0x020d source 5 WQE 2")
	if p.net.now != 0 {
		t.Errorf("took %v", p.net.now)
	}
}
