// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/vrnic/vrnic/guest/launch"
)

func init() {
	const list = "the programs of 7/tools, both directions"
	for _, k := range worldKernels {
		table = append(table, check{7, "rxe-" + k, false, "vrnic serve --uplink stream, a QEMU guest with virtio-net and rdma_rxe; " + list + ", " + k, rxeOn(k)})
	}
	table = append(table,
		check{7, "rxe-control", false, "two QEMU guests with virtio-net and rdma_rxe, no card; " + list, rxeControl},
		check{7, "rxe-icrc", false, "ibv_rc_pingpong with rxe; of 600 packets every 20th ICRC is made wrong on the way", rxeWrongICRC},
	)
}

// rxeKernel is what rxe is part of, whatever the card's guest has.
const rxeKernel = "debian-13"

// rxeMAC is the address of a guest's virtio-net.
func rxeMAC(n int) string { return fmt.Sprintf("52:54:00:00:07:%02x", n) }

// rxeGuest describes the n-th guest, without a card: it has a QEMU netdev.
func rxeGuest(t *testing.T, e *env, name string, n int, netdev string) launch.Config {
	t.Helper()
	c := smallGuest(t, e, name, rxeKernel, nil)
	c.CPUs = 2 // rxe works beside programs that poll
	c.QEMUArgs = []string{"-netdev", netdev + ",id=net0", "-device", "virtio-net-pci,netdev=net0,romfile=,mac=" + rxeMAC(n)}
	c.Guest.Modules = []string{"virtio_net", "rdma_rxe", "ib_uverbs", "rdma_ucm", "ib_umad"}
	return c
}

// newRxe makes the RDMA device of a guest that has booted.
func newRxe(t *testing.T, e *env, g *launch.Machine, s *server, n, peer int) player {
	t.Helper()
	m := newMachine(t, e, s, g, worldLibrary)
	m.quiet(fmt.Sprintf(`d=$(netdev %s); ip link set $d mtu %d up; carrier $d
		ip addr add 192.168.77.%[3]d/24 dev $d; ip addr add fd77::%[3]x/64 dev $d nodad
		rdma link add rxe0 type rxe netdev $d`, rxeMAC(n), jumbo, n))
	m.do(programLibrary)
	m.names(n, peer)
	return player{m, rxeDevice}
}

// rxePair is a guest with a card and one with rxe, with a capture of what passes.
type rxePair struct {
	t         *testing.T
	e         *env
	server    *server
	capture   *capture
	card, rxe player
}

// newRxePair boots the two. uplink is the card's way to a stream socket, netdev
// QEMU's.
func newRxePair(t *testing.T, e *env, kernel, uplink, netdev string) *rxePair {
	t.Helper()
	path := filepath.Join(e.outDir, "capture.pcapng")
	p := &rxePair{t: t, e: e, capture: newCapture(t, path)}
	p.server = startServer(t, e, 1, "--uplink", uplink, "--pcap", path)
	guests := bootAll(t, []launch.Config{
		numbered(smallGuest(t, e, "card", kernel, p.server.sockets), 1),
		rxeGuest(t, e, "rxe", 2, netdev),
	})
	p.card = player{newMachine(t, e.in(t, "card"), p.server, guests[0], programLibrary), cardDevice}
	p.card.names(1, 2)
	p.rxe = newRxe(t, e.in(t, "rxe"), guests[1], p.server, 2, 1)
	return p
}

// end stops everything and looks at what was said and captured. It returns what
// the two devices have counted in all.
func (p *rxePair) end() (card, rxe tally) {
	p.t.Helper()
	card, rxe = p.card.statistics(), p.rxe.statistics()
	for _, s := range []player{p.card, p.rxe} {
		if err := s.guest.Close(); err != nil {
			p.t.Errorf("power off: %v", err)
		}
	}
	wantCleanLog(p.t, p.card.e.kernelLog())
	if err := p.server.stop(); err != nil {
		p.t.Errorf("vrnic serve: %v", err)
	}
	wantQuietCard(p.t, filepath.Join(p.e.outDir, "serve.log"), "uplink0") // before QEMU is there, and when it has gone
	return card, rxe
}

// rxeOn has rxe and the card talk, each as client and as server.
func rxeOn(kernel string) func(*testing.T, *env) {
	return func(t *testing.T, e *env) {
		socket := filepath.Join(t.TempDir(), "net")
		p := newRxePair(t, e, kernel, "stream:"+socket, streamServer(socket))
		list := tools(rxeMessages)
		playAll(t, e, "card to rxe", list, p.card, p.rxe)
		playAll(t, e, "rxe to card", list, p.rxe, p.card)
		card, rxe := p.end()

		seen := p.capture.roce()
		for _, w := range []struct {
			port, direction, counter string
			counted                  int
		}{
			{"card0", outbound, "the card's " + cardDevice.sent, card[cardDevice.sent]},
			{"card0", inbound, "the card's " + cardDevice.received, card[cardDevice.received]},
			{"uplink0", outbound, "rxe's " + rxeDevice.sent, rxe[rxeDevice.sent]},
			{"uplink0", inbound, "rxe's " + rxeDevice.received, rxe[rxeDevice.received]},
		} {
			if got := seen[side{w.port, w.direction}].frames; got != w.counted || got == 0 {
				t.Errorf("%s, direction %s: %d packets in the capture, %s is %d", w.port, w.direction, got, w.counter, w.counted)
			}
		}
		p.capture.dissected()
		p.capture.done()
	}
}

// rxeMessages is how many messages rxe is given: it is slow in emulation.
const rxeMessages = 100

func streamServer(path string) string { return "stream,server=on,addr.type=unix,addr.path=" + path }

// rxeControl runs the programs between two rxe, so that it is known what the list
// and its judge say of a device that is none of ours.
func rxeControl(t *testing.T, e *env) {
	socket := filepath.Join(t.TempDir(), "net")
	guests := bootAll(t, []launch.Config{
		rxeGuest(t, e, "rxe1", 1, streamServer(socket)),
		rxeGuest(t, e, "rxe2", 2, "stream,server=off,reconnect-ms=100,addr.type=unix,addr.path="+socket),
	})
	var sides [2]player
	for i, g := range guests {
		sides[i] = newRxe(t, e.in(t, fmt.Sprintf("rxe%d", i+1)), g, nil, i+1, 2-i)
	}
	playAll(t, e, "rxe to rxe", tools(rxeMessages), sides[0], sides[1])
	for _, s := range sides {
		if err := s.guest.Close(); err != nil {
			t.Errorf("power off: %v", err)
		}
	}
}

// relay passes frames between two stream sockets of QEMU's kind: each goes after
// its length, 4 bytes in network byte order.
type relay struct {
	t      *testing.T
	mangle func(frame []byte)

	mu     sync.Mutex
	closed bool
	conns  []net.Conn
}

// startRelay returns the path of the socket that leads to the one at path far,
// which has to be there by the time that somebody connects. mangle may change
// what passes, both ways.
func startRelay(t *testing.T, far string, mangle func(frame []byte)) string {
	t.Helper()
	near := filepath.Join(t.TempDir(), "relay")
	l, err := net.Listen("unix", near)
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{t: t, mangle: mangle}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		r.mu.Lock()
		r.closed = true
		for _, c := range r.conns {
			c.Close()
		}
		r.mu.Unlock()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("unix", far)
			if err != nil {
				a.Close() // it comes again
				continue
			}
			if r.keep(a, b) {
				wg.Go(func() { r.pass(a, b) })
				wg.Go(func() { r.pass(b, a) })
			}
		}
	})
	return near
}

// keep remembers connections for the end; false: it has come.
func (r *relay) keep(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		for _, c := range conns {
			c.Close()
		}
		return false
	}
	r.conns = append(r.conns, conns...)
	return true
}

func (r *relay) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	for buf := make([]byte, 64<<10); ; {
		if _, err := io.ReadFull(from, buf[:4]); err != nil {
			return // either end has gone
		}
		n := binary.BigEndian.Uint32(buf)
		if int(n) > len(buf)-4 {
			r.t.Errorf("a frame of %d bytes", n)
			return
		}
		frame := buf[4 : 4+n]
		if _, err := io.ReadFull(from, frame); err != nil {
			if !errors.Is(err, net.ErrClosed) {
				r.t.Logf("the relay ends within a frame: %v", err)
			}
			return
		}
		r.mangle(frame)
		if _, err := to.Write(buf[:4+n]); err != nil {
			return
		}
	}
}

// rxeWrongICRC shows that the checks above see packets whose ICRC is wrong: some
// are made so on the way. The protocol repairs it, so that the program ends well,
// but neither the counters nor a capture of what arrived may look right.
func rxeWrongICRC(t *testing.T, e *env) {
	far := filepath.Join(t.TempDir(), "net")
	var mu sync.Mutex
	seen, wrong := 0, 0
	near := startRelay(t, far, func(f []byte) {
		ip, udp, tail, ok := rocePacket(f)
		if !ok {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if !rightICRC(ip, udp) {
			t.Errorf("a packet with a wrong ICRC: %x", f)
		}
		// Not to the end: who has all that it waits for leaves, and a last
		// acknowledgement that does not come is not repeated.
		if seen++; seen%20 == 0 && seen <= 600 {
			wrong++
			f[tail] ^= 1
			if rightICRC(ip, udp) {
				t.Errorf("another ICRC is right as well: %x", f)
			}
		}
	})
	p := newRxePair(t, e, "debian-backports", "stream:"+near, streamServer(far))
	program := chosen(t, tools(rxeMessages), "rc_pingpong checked")[0]
	o := play(program, p.card, p.rxe)
	bad := program.judge(o, false)
	mu.Lock()
	defer mu.Unlock()
	if wrong < 10 {
		t.Errorf("%d of %d packets made wrong, want more", wrong, seen)
	}
	for i, x := range o {
		if x.status != 0 || x.output == "" {
			t.Errorf("%s %d: status %d: %s", x.device.name, i, x.status, x.output)
		}
	}
	// The card counts a packet as one of UDP before it looks at the ICRC.
	card, rxe := o[0].counted, o[1].counted
	lost := card[cardDevice.sent] - rxe[rxeDevice.received] + rxe[rxeDevice.sent] - card[cardDevice.received] + card["ip4InDiscards"]
	if lost != wrong {
		t.Errorf("%d packets made wrong; sent and not received, or not taken: %d", wrong, lost)
	}
	if len(packets(o)) == 0 || len(card.trouble(cardDevice.errors)) == 0 || len(rxe.trouble(rxeDevice.errors)) == 0 {
		t.Errorf("%d packets had a wrong ICRC, and all that is found wrong is %q", wrong, bad)
	}
	e.part(t, "rxe-icrc", "judged as bad, rightly", fmt.Sprintf("%d of %d packets made wrong: %q", wrong, seen, bad), 0)
	p.end()
	said, err := p.capture.read("-Y", `frame.comment contains "dropped: bad ICRC"`)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(said, "\n"); n != card["ip4InDiscards"] {
		t.Errorf("%d packets are said in the capture to have a bad ICRC, the card discarded %d", n, card["ip4InDiscards"])
	}
	p.capture.done()
}
