// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/vrnic/vrnic/devmodel/frame/frametest"
)

// flood is a card that sends a frame again and again, and takes copies of one
// other.
type flood struct {
	i          *ICE
	sent, want []byte
	got        int
}

// run goes on until ctx ends.
func (fl *flood) run(ctx context.Context) error {
	const burst = 32
	for ctx.Err() == nil {
		var list []*sentPacket
		for n := range burst {
			s, err := fl.i.Send(fl.i.queues[0], Packet{Data: fl.sent}, n < burst-1)
			if err != nil {
				return err
			}
			list = append(list, s)
		}
		if err := fl.i.Wait(list...); err != nil {
			return err
		}
		if err := fl.take(); err != nil {
			return err
		}
	}
	return nil
}

// take empties the receive queues.
func (fl *flood) take() error {
	for _, q := range fl.i.queues {
		for {
			f, ok, err := fl.i.Receive(q)
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			if !bytes.Equal(f.Data, fl.want) {
				return fmt.Errorf("a frame that nobody sent: %x", f.Data)
			}
			fl.got++
		}
	}
	return nil
}

// Every reset while another card sends to this one without an end, and this one
// has frames to send: what comes after the reset lies in no memory of before,
// nobody gets anything else than was sent, and after the rebuild both
// directions work. The other card notices nothing.
func TestRebuildUnderFrames(t *testing.T) {
	kernels := Kernels()
	for n, way := range waysToReset() {
		t.Run(way.name, func(t *testing.T) {
			k := kernels[n%len(kernels)]
			ctx, sockets, complaints := cards(t, 2)
			m, err := bringUp(attach(t, ctx, sockets[0], newGuest(t)), k, Options{})
			must(t, err)
			o, err := bringUp(attach(t, ctx, sockets[1], newGuest(t)), k, Options{})
			must(t, err)
			frame := func(from, to *ICE) []byte {
				e := &layers.Ethernet{SrcMAC: from.MAC[:], DstMAC: to.MAC[:], EthernetType: 0x800}
				return frametest.Build(t, e, ipv4Layer(protoUDP), &layers.UDP{SrcPort: 3, DstPort: 4}, pattern(1400))
			}
			to, from := frame(o.i, m.i), frame(m.i, o.i)
			stop, cancel := context.WithCancel(ctx)
			defer cancel()
			fl, ended := &flood{i: o.i, sent: to, want: from}, make(chan error, 1)
			go func() { ended <- fl.run(stop) }()

			times := 1
			if *full {
				times = 20
			}
			for range times {
				own := &flood{i: m.i, sent: from, want: to}
				must(t, m.f.poll("frames of the other card", func() bool {
					must(t, own.take())
					return own.got > 2*ringLen
				}))
				const underWay = ringLen / 2
				for n := range underWay {
					_, err := m.i.Send(m.i.queues[0], Packet{Data: from}, n < underWay-1)
					must(t, err)
				}
				resetUnder(t, ctx, sockets, complaints, m, way)
			}
			own := &flood{i: m.i, sent: from, want: to}
			must(t, m.f.poll("frames of the other card", func() bool {
				must(t, own.take())
				return own.got > 2*ringLen
			}))
			cancel()
			must(t, <-ended)
			before := fl.got
			var list []*sentPacket
			const more = 100
			for n := range more {
				s, err := m.i.Send(m.i.queues[0], Packet{Data: from}, n < more-1)
				must(t, err)
				list = append(list, s)
			}
			must(t, m.i.Wait(list...))
			must(t, o.f.poll("frames of the card that was reset", func() bool {
				must(t, fl.take())
				return fl.got >= before+more
			}))
			must(t, m.takeDown())
			must(t, o.takeDown())
			quiet(t, complaints)
		})
	}
}
