// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/hashicorp/go-hclog"

	"github.com/vrnic/vrnic/fabric"
	"github.com/vrnic/vrnic/serve"
)

// wire is the other end of the card's Ethernet: a socket of an uplink, on which
// each datagram is a frame.
type wire struct {
	t      testing.TB
	conn   *net.UnixConn
	to     *net.UnixAddr
	frames chan []byte // that the card sent
}

// wired serves a card with an uplink and brings ice up on it. irdma is not
// bound.
func wired(t testing.TB, k Kernel, o Options) (*ICE, *wire, *findings) {
	t.Helper()
	i, w, complaints := wiredIn(t, t.Context(), k, o)
	t.Cleanup(func() {
		if err := i.F.Guest.Check(); err != nil {
			t.Error(err)
		}
	})
	return i, w, complaints
}

func wiredIn(t testing.TB, parent context.Context, k Kernel, o Options) (*ICE, *wire, *findings) {
	t.Helper()
	ctx, cancel := context.WithCancel(parent)
	t.Cleanup(cancel)
	dir := t.TempDir()
	local, remote := filepath.Join(dir, "l"), filepath.Join(dir, "r")
	uplink, err := fabric.ParseUplink("dgram:" + local + "," + remote)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: remote, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	complaints := new(findings)
	socket := filepath.Join(dir, "s")
	host, err := serve.Start(ctx, serve.Options{Sockets: []string{socket}, Network: serve.Network{Uplinks: []fabric.UplinkSpec{uplink}},
		Logger: hclog.New(&hclog.LoggerOptions{Output: complaints, Level: hclog.Warn, DisableTime: true})})
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{t: t, conn: conn, to: &net.UnixAddr{Name: local, Net: "unixgram"}, frames: make(chan []byte, 1<<16)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for {
			b := make([]byte, 10<<10)
			n, err := conn.Read(b)
			if err != nil {
				return
			}
			w.frames <- b[:n:n]
		}
	}()
	t.Cleanup(func() {
		host.Close()
		conn.Close()
		<-read
	})
	g, err := NewGuest(guestMiB)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	f, err := Attach(ctx, socket, g)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Detach)
	i, err := Probe(f, k, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Open(); err != nil {
		t.Fatal(err)
	}
	return i, w, complaints
}

// next is the next frame that the card sends.
func (w *wire) next() []byte {
	w.t.Helper()
	select {
	case f := <-w.frames:
		return f
	case <-time.After(Patience):
		w.t.Fatal("no frame on the wire")
		return nil
	}
}

// inject sends frames to the card.
func (w *wire) inject(frames ...[]byte) {
	w.t.Helper()
	for _, f := range frames {
		if _, err := w.conn.WriteTo(f, w.to); err != nil {
			w.t.Fatal(err)
		}
	}
}

// collect takes n frames from the queues, in the order of the queues.
func collect(t testing.TB, i *ICE, n int) (list []RxFrame) {
	t.Helper()
	err := i.F.poll("received frames", func() bool {
		for _, q := range i.queues {
			for {
				f, ok, err := i.Receive(q)
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				list = append(list, f)
			}
		}
		return len(list) >= n
	})
	if err != nil {
		t.Fatalf("%d of %d frames: %v", len(list), n, err)
	}
	if len(list) > n {
		t.Fatalf("%d frames, want %d", len(list), n)
	}
	return list
}

var worldMAC = net.HardwareAddr{2, 0, 0, 0, 0, 9}

// mark is a frame that tells that all before it have passed.
func mark(dst, src net.HardwareAddr) []byte {
	return append(append(append([]byte{}, dst...), src...), 0x88, 0xb5, 'm', 'a', 'r', 'k')
}

// onWire returns what was sent before now: that it is all shows by a last frame.
func onWire(t testing.TB, i *ICE, w *wire, q *queuePair) (list [][]byte) {
	t.Helper()
	last := mark(worldMAC, i.MAC[:])
	s, err := i.Send(q, Packet{Data: last}, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Wait(s); err != nil {
		t.Fatal(err)
	}
	for {
		f := w.next()
		if bytes.HasPrefix(f, last) {
			return list
		}
		list = append(list, f)
	}
}

// Layers of the tests' frames; from the guest to the world if out.
func etherLayer(i *ICE, out bool, t layers.EthernetType) *layers.Ethernet {
	src, dst := worldMAC, net.HardwareAddr(i.MAC[:])
	if out {
		src, dst = dst, src
	}
	return &layers.Ethernet{SrcMAC: src, DstMAC: dst, EthernetType: t}
}

func ipv4Layer(p layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 64, Id: 0xfffe, Protocol: p, SrcIP: net.IP{10, 0, 0, 1}, DstIP: net.IP{10, 0, 0, 2}}
}

func ipv6Layer(p layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: p, SrcIP: net.ParseIP("fd00::1"), DstIP: net.ParseIP("fd00::2")}
}

func pattern(n int) gopacket.Payload {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i*7 + i>>8)
	}
	return p
}

// pseudoSum is what the stack leaves in a checksum that the card is to finish:
// the sum of the pseudo header, folded, not complemented.
func pseudoSum(f []byte, ip int, proto uint8, length int) uint16 {
	var sum uint32
	add := func(b []byte) {
		for k := 0; k < len(b); k += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[k:]))
		}
	}
	if f[ip]>>4 == 4 {
		add(f[ip+12 : ip+20])
	} else {
		add(f[ip+8 : ip+40])
	}
	sum += uint32(proto) + uint32(length>>16) + uint32(length&0xffff)
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

// sameFrame fails the test if two frames differ, and says where.
func sameFrame(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	t.Errorf("%s: %d bytes, want %d; they differ from byte %d on\n got % x\nwant % x", what, len(got), len(want), at, got[:min(len(got), 150)], want[:min(len(want), 150)])
}
