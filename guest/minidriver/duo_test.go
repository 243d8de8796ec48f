// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/vrnic/vrnic/fabric"
	"github.com/vrnic/vrnic/serve"
)

// way is what lies between two machines.
type way int

const (
	loopback way = iota // nothing: it is the same one twice
	near                // a switch that nobody looks at, in one process
	wired2              // a switch that hands frames to a capture, in one process
	uplink              // two hosts, as in two processes, and a socket
)

func (w way) String() string { return [...]string{"loopback", "near", "wire", "uplink"}[w] }

// ways are all of them: what a program sees must not depend on it.
func ways() []way { return []way{loopback, near, wired2, uplink} }

// duo is two machines that reach each other: with loopback the same one.
type duo struct {
	a, b     *machine
	way      way
	kernel   Kernel
	findings *findings
	control  [2]func(what, arg string) // of the cards' cables and resets
	sockets  [2]string
	ctx      context.Context
}

type duoOptions struct {
	way    way
	kernel Kernel   // the zero value: 7.3
	impair []string // rules as of --impair, for every port
	guest  int      // MiB of each
	raw    string   // spec of one more uplink of the first host
	// capture gets what the wire's capture writes; nil: nobody reads it.
	capture io.Writer
}

// startDuo serves two cards, each with both drivers.
func startDuo(t testing.TB, o duoOptions) *duo {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTime)
	t.Cleanup(cancel)
	if o.kernel.Name == "" {
		o.kernel = Linux73()
	}
	if o.guest == 0 {
		o.guest = 128
	}
	d := &duo{way: o.way, findings: new(findings), ctx: ctx}
	dir := t.TempDir()
	network := func(uplinks ...string) serve.Network {
		var n serve.Network
		for _, spec := range uplinks {
			if spec == "" {
				continue
			}
			u, err := fabric.ParseUplink(spec)
			if err != nil {
				t.Fatal(err)
			}
			n.Uplinks = append(n.Uplinks, u)
		}
		for _, spec := range o.impair {
			i, err := fabric.ParseImpair(spec)
			if err != nil {
				t.Fatal(err)
			}
			n.Impair = append(n.Impair, i)
		}
		if o.way == wired2 {
			n.Capture = func(context.Context) (io.Writer, error) {
				if o.capture != nil {
					return o.capture, nil
				}
				return io.Discard, nil
			}
		}
		return n
	}
	host := func(name string, n serve.Network, sockets ...string) {
		control := filepath.Join(dir, name)
		h, err := serve.Start(ctx, serve.Options{Sockets: sockets, Control: control, Network: n,
			Logger: hclog.New(&hclog.LoggerOptions{Output: d.findings, Level: hclog.Warn, DisableTime: true})})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(h.Close)
		for k := range sockets {
			card := k
			if name == "second" {
				card = 1
			}
			d.control[card] = func(what, arg string) {
				t.Helper()
				if _, err := serve.Ask(ctx, control, serve.Request{Device: k, What: what, Name: arg}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	d.sockets = [2]string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
	switch o.way {
	case loopback:
		host("first", network(o.raw), d.sockets[0])
	case uplink:
		x, y := filepath.Join(dir, "x"), filepath.Join(dir, "y")
		host("first", network("dgram:"+x+","+y, o.raw), d.sockets[0])
		host("second", network("dgram:"+y+","+x), d.sockets[1])
	default:
		host("first", network(o.raw), d.sockets[:]...)
	}
	d.kernel = o.kernel
	boot := func(card int) *machine {
		g, err := NewGuest(o.guest)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := g.Check(); err != nil {
				t.Error(err)
			}
			g.Close()
		})
		return d.boot(t, card, g)
	}
	d.a = boot(0)
	if d.b = d.a; o.way != loopback {
		d.b = boot(1)
	}
	return d
}

// boot attaches a guest to a card and brings it up.
func (d *duo) boot(t testing.TB, card int, g *Guest) *machine {
	t.Helper()
	f, err := Attach(d.ctx, d.sockets[card], g)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Detach)
	m, err := bringUp(f, d.kernel, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// machines are those there are.
func (d *duo) machines() []*machine {
	if d.a == d.b {
		return []*machine{d.a}
	}
	return []*machine{d.a, d.b}
}

// end takes both machines down; the devices must not have complained.
func (d *duo) end(t *testing.T) {
	t.Helper()
	var err error
	for _, m := range d.machines() {
		err = errors.Join(err, m.takeDown())
	}
	must(t, err)
	quiet(t, d.findings)
}

// counters are those of both sides.
func (d *duo) counters(t testing.TB) (a, b Counters) {
	t.Helper()
	var list [2]Counters
	for k, m := range []*machine{d.a, d.b} {
		var err error
		if list[k], err = m.r.ReadCounters(); err != nil {
			t.Fatal(err)
		}
	}
	return list[0], list[1]
}
