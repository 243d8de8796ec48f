// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/vrnic/vrnic/devmodel/engine"
)

func TestParseUplink(t *testing.T) {
	for text, want := range map[string]UplinkSpec{
		"dgram:/tmp/a,/tmp/b":             {Kind: KindDgram, Local: "/tmp/a", Remote: "/tmp/b"},
		"stream:rel/a:b":                  {Kind: KindStream, Local: "rel/a:b"},
		"stream:/tmp/a,server":            {Kind: KindStream, Local: "/tmp/a", Server: true},
		"udp:127.0.0.1:1,host:65535":      {Kind: KindUDP, Local: "127.0.0.1:1", Remote: "host:65535"},
		"udp:[::1]:5000,[fe80::1%lo]:500": {Kind: KindUDP, Local: "[::1]:5000", Remote: "[fe80::1%lo]:500"},
		"udp::5000,a:5000":                {Kind: KindUDP, Local: ":5000", Remote: "a:5000"},
		"tcp:h:80":                        {Kind: KindTCP, Local: "h:80"},
		"tcp::80,server":                  {Kind: KindTCP, Local: ":80", Server: true},
		"tap:tap0":                        {Kind: KindTAP, Local: "tap0"},
	} {
		got, err := ParseUplink(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		check(t, "text", got.String(), text)
	}
	long := "/" + strings.Repeat("x", 107)
	for text, why := range map[string]string{
		"":                      "none of dgram, stream, udp, tcp, tap",
		"dgram":                 "needs a local and a remote address",
		"vde:/x":                `"vde" is none of`,
		"dgram:/a":              "needs a local and a remote address",
		"dgram:/a,/b,/c":        "needs a local and a remote address",
		"dgram:/a,":             "a path is empty",
		"dgram:/a,/a":           "the same",
		"dgram:@a,/b":           "abstract",
		"stream:":               "a path is empty",
		"stream:/a,client":      `"client" is not the word server`,
		"stream:" + long:        "longer than 107 bytes",
		"udp:1,2":               "not HOST:PORT",
		"udp:a:1":               "needs a local and a remote address",
		"udp:a:0,b:1":           `port "0" is not from 1 to 65535`,
		"udp:a:1,:2":            "has no host",
		"udp:a:1,230.0.0.1:2":   "multicast",
		"tcp:h:65536":           `port "65536"`,
		"tcp:h:http":            `port "http"`,
		"tcp::80":               "has no host",
		"tap:":                  "not the name of an interface",
		"tap:a/b":               "not the name of an interface",
		"tap:tap%d":             "not the name of an interface",
		"tap:sixteencharacter":  "not the name of an interface",
		"tap:tap0,script=no":    "nothing after the name",
		"stream:/a,server,more": "not the word server",
	} {
		if _, err := ParseUplink(text); err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "uplink") {
			t.Errorf("%q: %v, want %q", text, err, why)
		}
	}
}

// node is a switch with a station and an uplink.
type node struct {
	*Switch
	*events
	station *sink
	port    *Port
	uplink  *Uplink
}

func open(t *testing.T, spec UplinkSpec) *node {
	t.Helper()
	e := newEvents()
	n := &node{events: e, Switch: NewSwitch(Options{Emit: e.emit}), station: newSink()}
	t.Cleanup(n.Switch.Close)
	n.port = n.Attach("nic0", n.station)
	u, err := n.OpenUplink("uplink0", spec)
	if err != nil {
		t.Fatal(err)
	}
	n.uplink = u
	return n
}

// loopback asks the kernel for free ports of udp and tcp.
func loopback(t *testing.T, n int) (addrs []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}

// pairs are the specifications of two uplinks that meet.
func pairs(t *testing.T) map[string][2]UplinkSpec {
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	ports := loopback(t, 3)
	parse := func(s string) UplinkSpec {
		u, err := ParseUplink(s)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	return map[string][2]UplinkSpec{
		"dgram":  {parse("dgram:" + a + "," + b), parse("dgram:" + b + "," + a)},
		"stream": {parse("stream:" + a + ".s,server"), parse("stream:" + a + ".s")},
		"udp":    {parse("udp:" + ports[0] + "," + ports[1]), parse("udp:" + ports[1] + "," + ports[0])},
		"tcp":    {parse("tcp:" + ports[2] + ",server"), parse("tcp:" + ports[2])},
	}
}

// TestPairs: two switches over each kind of uplink.
func TestPairs(t *testing.T) {
	for kind, specs := range pairs(t) {
		t.Run(kind, func(t *testing.T) {
			// The client first: it has to try again.
			b := open(t, specs[1])
			if !specs[0].Server {
				want[UplinkUp](t, b.events)
			} else {
				want[UplinkDown](t, b.events)
				check(t, "link without peer", b.uplink.Port().Link(), false)
			}
			a := open(t, specs[0])
			want[UplinkUp](t, a.events)
			if specs[0].Server {
				want[UplinkUp](t, b.events)
			}
			nodes := [2]*node{a, b}
			const most = 65507 // of UDP
			for round, size := range []int{60, 61, 1514, 9018, most} {
				for i, n := range nodes {
					const batch = 8
					var sent [][]byte
					for j := range batch {
						f := frame(mac(1-i), mac(i), size, uint32(round*100+j))
						sent = append(sent, f)
						n.port.Send(f)
					}
					got := nodes[1-i].station.wait(t, batch)
					for j := range got {
						same(t, "frame", got[j], sent[j])
					}
				}
			}
			for _, n := range nodes {
				check(t, "frames to the world", n.uplink.Port().Stats().RxFrames, 40)
				check(t, "frames from the world", n.uplink.Port().Stats().TxFrames, 40)
				s := n.uplink.Stats()
				s.Connects = 0
				check(t, "stats", s, UplinkStats{})
			}
			for _, n := range nodes {
				if err := n.uplink.Close(); err != nil {
					t.Error(err)
				}
				if err := n.uplink.Close(); err != nil {
					t.Error(err)
				}
				n.port.Send(frame(broadcast, mac(9), 60, 0))
				if _, err := os.Lstat(n.uplink.spec.Local); err == nil {
					t.Errorf("%s is left behind", n.uplink.spec.Local)
				}
				if _, err := os.Lstat(n.uplink.spec.Local + ".lock"); err == nil {
					t.Errorf("the lock of %s is left behind", n.uplink.spec.Local)
				}
			}
		})
	}
}

// TestStreamFormat: the bytes on a stream are those of QEMU's -netdev stream,
// however they are cut up.
func TestStreamFormat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	n := open(t, UplinkSpec{Kind: KindStream, Local: path, Server: true})
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	check(t, "mode", info.Mode().Perm(), 0o600)
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	want[UplinkUp](t, n.events)

	out := frame(mac(1), mac(0), 1514, 5)
	n.port.Send(out)
	got := make([]byte, 4+1514)
	if _, err := io.ReadFull(c, got); err != nil {
		t.Fatal(err)
	}
	same(t, "bytes of a frame", got, append([]byte{0, 0, 0x05, 0xea}, out...))

	in := frame(mac(0), mac(1), 300, 6)
	bytes := slices.Concat([]byte{0, 0, 1, 44}, in)
	for i := range bytes {
		if _, err := c.Write(bytes[i : i+1]); err != nil {
			t.Fatal(err)
		}
	}
	same(t, "frame byte by byte", n.station.wait(t, 1)[0], in)

	// An empty frame, one without header, an ARP request as virtio-net sends
	// it, and another frame, in one go.
	arp := frame(broadcast, mac(1), 42, 7)
	c.Write(slices.Concat([]byte{0, 0, 0, 0}, []byte{0, 0, 0, 3, 1, 2, 3}, []byte{0, 0, 0, 42}, arp[:42], bytes))
	frames := n.station.wait(t, 2)
	same(t, "short frame", frames[0], append(arp[:42:42], make([]byte, 18)...))
	same(t, "frame after it", frames[1], in)
	check(t, "frames without header", n.uplink.Port().Stats().Short, 2)
}

// TestDgramFormat: a datagram is a frame, as with QEMU's -netdev dgram.
func TestDgramFormat(t *testing.T) {
	dir := t.TempDir()
	local, remote := filepath.Join(dir, "l"), filepath.Join(dir, "r")
	n := open(t, UplinkSpec{Kind: KindDgram, Local: local, Remote: remote})
	out := frame(mac(1), mac(0), 1514, 5)
	for range 2 { // nobody there yet
		n.port.Send(out)
	}
	check(t, "stats", n.uplink.Stats(), UplinkStats{Failed: 2})
	for refusals := 0; refusals == 0 || len(n.c) > 0; {
		if e, ok := n.next(t).(UplinkRefused); ok {
			refusals++
			check(t, "event", e, UplinkRefused{"uplink0", unix.ENOENT})
			check(t, "events", refusals, 1)
		}
	}
	for range 2 { // a peer that comes back
		c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: remote, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		n.port.Send(out)
		got := make([]byte, 2000)
		size, from, err := c.ReadFrom(got)
		if err != nil {
			t.Fatal(err)
		}
		check(t, "sender", from.String(), local)
		same(t, "datagram", got[:size], out)
		in := frame(mac(0), mac(1), 300, 6)
		if _, err := c.WriteTo(in, from); err != nil {
			t.Fatal(err)
		}
		same(t, "frame", n.station.wait(t, 1)[0], in)
		c.Close()
		os.Remove(remote)
	}
}

func TestUDPFormat(t *testing.T) {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	n := open(t, UplinkSpec{Kind: KindUDP, Local: "127.0.0.1:0", Remote: c.LocalAddr().String()})
	out := frame(mac(1), mac(0), 1514, 5)
	n.port.Send(out)
	got := make([]byte, 2000)
	size, from, err := c.ReadFrom(got)
	if err != nil {
		t.Fatal(err)
	}
	check(t, "sender", from.String(), n.uplink.Addr().String())
	same(t, "datagram", got[:size], out)
	in := frame(mac(0), mac(1), 300, 6)
	c.WriteTo(nil, from)
	c.WriteTo(in[:13], from)
	c.WriteTo(in, from)
	same(t, "frame", n.station.wait(t, 1)[0], in)
	check(t, "frames without header", n.uplink.Port().Stats().Short, 2)
	n.port.Send(frame(mac(1), mac(0), MaxFrame, 5))
	check(t, "frames too long for UDP", n.uplink.Stats().Failed, 1)
}

// TestHostileStream: a peer that announces too much, or leaves within a frame,
// is put out and told of; the next one is served.
func TestHostileStream(t *testing.T) {
	n := open(t, UplinkSpec{Kind: KindTCP, Local: "127.0.0.1:0", Server: true})
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", n.uplink.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		want[UplinkUp](t, n.events)
		return c
	}
	for _, length := range []uint32{MaxFrame + 1, 1 << 31, 1<<32 - 1} {
		c := dial()
		c.Write(binary.BigEndian.AppendUint32(nil, length))
		if down := want[UplinkDown](t, n.events); !errors.Is(down.Err, ErrFrameTooLong) {
			t.Errorf("length %#x: %v", length, down)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("the connection is alive")
		}
	}
	c := dial()
	c.Write([]byte{0, 0, 0, 60, 1, 2})
	c.Close()
	if down := want[UplinkDown](t, n.events); !errors.Is(down.Err, io.ErrUnexpectedEOF) {
		t.Errorf("cut off: %v", down)
	}
	c = dial()
	c.Close()
	if down := want[UplinkDown](t, n.events); down.Err != nil {
		t.Errorf("regular end: %v", down)
	}

	// One client at a time; the next waits for its turn.
	first := dial()
	second, err := net.Dial("tcp", n.uplink.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	second.Write(appendRecord(nil, frame(mac(0), mac(2), 60, 2)))
	first.Write(appendRecord(nil, frame(mac(0), mac(1), 60, 1)))
	check(t, "frame of the first client", number(n.station.wait(t, 1)[0]), 1)
	check(t, "connections", n.uplink.Stats().Connects, 6)
	first.Close()
	check(t, "frame of the second client", number(n.station.wait(t, 1)[0]), 2)
	check(t, "connections", n.uplink.Stats().Connects, 7)
}

// TestStalledPeer: a peer that takes nothing costs one queue, and nobody
// waits for it. When it reads at last the stream is whole.
func TestStalledPeer(t *testing.T) {
	for _, kind := range []string{"stream", "dgram"} {
		t.Run(kind, func(t *testing.T) {
			const sent = 2000
			dir := t.TempDir()
			local, remote := filepath.Join(dir, "l"), filepath.Join(dir, "r")
			got := 0
			last := int64(-1)
			see := func(f []byte) {
				if m := int64(number(f)); m <= last || len(f) != 1514 {
					t.Fatalf("frame %d of %d bytes after %d", m, len(f), last)
				} else {
					last = m
				}
				got++
			}
			var n *node
			var c net.Conn
			if kind == "stream" {
				n = open(t, UplinkSpec{Kind: KindStream, Local: local, Server: true})
				var err error
				if c, err = net.Dial("unix", local); err != nil {
					t.Fatal(err)
				}
			} else {
				var err error
				if c, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: remote, Net: "unixgram"}); err != nil {
					t.Fatal(err)
				}
				n = open(t, UplinkSpec{Kind: KindDgram, Local: local, Remote: remote})
			}
			defer c.Close()
			want[UplinkUp](t, n.events)
			const limit = 1 << 20
			n.uplink.out.mu.Lock()
			n.uplink.out.limit = limit
			n.uplink.out.mu.Unlock()
			for i := range sent {
				n.port.Send(frame(mac(1), mac(0), 1514, uint32(i)))
			}
			n.uplink.out.mu.Lock()
			held := len(n.uplink.out.pending)
			n.uplink.out.mu.Unlock()
			if held > limit {
				t.Errorf("%d bytes are held", held)
			}
			stats := n.uplink.Stats()
			if stats.Dropped == 0 {
				t.Error("nothing was dropped")
			}
			if kind == "stream" {
				r := io.LimitReader(c, int64(sent-stats.Dropped)*(lengthLen+1514))
				if err := decodeStream(r, see); err != nil {
					t.Error(err)
				}
			} else {
				b := make([]byte, 2000)
				for range sent - stats.Dropped {
					size, err := c.Read(b)
					if err != nil {
						t.Fatal(err)
					}
					see(b[:size])
				}
			}
			check(t, "frames received or dropped", got+int(stats.Dropped), sent)
		})
	}
}

// TestReconnect: a client finds its server again.
func TestReconnect(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n := open(t, UplinkSpec{Kind: KindTCP, Local: l.Addr().String()})
	for i := range uint32(3) {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		want[UplinkUp](t, n.events)
		// Half a frame of the connection before must not come first.
		n.port.Send(frame(mac(1), mac(0), 60, i))
		got := make([]byte, lengthLen+60)
		if _, err := io.ReadFull(c, got); err != nil {
			t.Fatal(err)
		}
		check(t, "frame", number(got[lengthLen:]), i)
		c.Write(appendRecord(nil, frame(mac(0), mac(1), 60, i))[:10])
		c.Close()
		want[UplinkDown](t, n.events)
		check(t, "link", n.uplink.Port().Link(), false)
		n.port.Send(frame(mac(1), mac(0), 60, 99))
	}
}

// TestRedialPauses: a server that hangs up at once is asked less and less
// often; one that sent a frame, or stayed for a while, soon again.
func TestRedialPauses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	clock := &engine.ManualClock{}
	s := NewSwitch(Options{Clock: clock})
	defer s.Close()
	pauses := make(chan time.Duration)
	u := &Uplink{spec: UplinkSpec{Kind: KindTCP, Local: l.Addr().String()}, emit: func(any) {}, clock: clock,
		port: s.attach("uplink0", newSink(), false),
		pause: func(ctx context.Context, d time.Duration) {
			select {
			case pauses <- d:
			case <-ctx.Done():
			}
		}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { u.dial(ctx) })
	accepted := uint64(0)
	next := func(meanwhile func(net.Conn)) time.Duration {
		t.Helper()
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		accepted++
		meanwhile(c)
		c.Close()
		select {
		case d := <-pauses:
			return d / time.Millisecond
		case <-time.After(20 * time.Second):
			t.Fatal("the uplink does not notice the end")
			return 0
		}
	}
	nothing := func(net.Conn) {}
	for _, ms := range []time.Duration{50, 100, 200, 400, 800, 1000, 1000} {
		check(t, "pause in ms", next(nothing), ms)
	}
	check(t, "pause in ms after a frame", next(func(c net.Conn) {
		c.Write(appendRecord(nil, frame(mac(0), mac(1), 60, 1)))
	}), 50)
	check(t, "pause in ms", next(nothing), 100)
	check(t, "pause in ms after a while", next(func(net.Conn) {
		for u.connects.Load() < accepted { // it has noted the time when it began
			runtime.Gosched()
		}
		clock.Advance(redialMost + 1)
	}), 50)
	check(t, "pause in ms", next(nothing), 100)
}

// TestSocketFiles: what a dead process left is replaced; what lives, or is no
// socket, is not.
func TestSocketFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	s := NewSwitch(Options{})
	defer s.Close()
	server := UplinkSpec{Kind: KindStream, Local: path, Server: true}
	u, err := s.OpenUplink("", server)
	if err != nil {
		t.Fatal(err)
	}
	check(t, "name", u.Port().Name(), server.String())
	for _, spec := range []UplinkSpec{server, {Kind: KindDgram, Local: path, Remote: "x"}} {
		if _, err := s.OpenUplink("", spec); !errors.Is(err, ErrInUse) {
			t.Errorf("%s: %v", spec, err)
		}
	}
	check(t, "ports after a failure", len(s.Ports()), 1)
	u.Close()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.OpenUplink("", server); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("over a file: %v", err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
	if _, err := s.OpenUplink("", UplinkSpec{Kind: "vde"}); err == nil {
		t.Error("an unknown kind was opened")
	}
}

// TestNoAllocationUplink: frames to a socket cost none either.
func TestNoAllocationUplink(t *testing.T) {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	n := open(t, UplinkSpec{Kind: KindUDP, Local: "127.0.0.1:0", Remote: c.LocalAddr().String()})
	want[UplinkUp](t, n.events)
	f := frame(mac(1), mac(0), 1514, 0)
	check(t, "allocations per frame", testing.AllocsPerRun(100, func() { n.port.Send(f) }), 0)
}

func TestTAP(t *testing.T) {
	name := fmt.Sprint("vrt", os.Getpid()%1e6)
	s := NewSwitch(Options{})
	defer s.Close()
	u, err := s.OpenUplink("", UplinkSpec{Kind: KindTAP, Local: name})
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		t.Skip("this process may not make TAP interfaces: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
	k := newSink()
	p := s.Attach("nic0", k)
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	check(t, "interface up", ifi.Flags&net.FlagUp, net.FlagUp)
	const etherType = 0xb588 // of frame, in network order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, etherType)
	if err != nil {
		t.Skip("this process may not open packet sockets: ", err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: etherType, Ifindex: ifi.Index}); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20}); err != nil {
		t.Fatal(err)
	}
	out := frame(broadcast, mac(0), 1514, 1)
	p.Send(out)
	got := make([]byte, 2000)
	n, _, err := unix.Recvfrom(fd, got, 0)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "frame to the host", got[:n], out)
	in := frame(broadcast, mac(1), 1400, 2)
	if err := unix.Sendto(fd, in, 0, &unix.SockaddrLinklayer{Protocol: etherType, Ifindex: ifi.Index}); err != nil {
		t.Fatal(err)
	}
	// The host's own chatter (IPv6) comes too.
	deadline := time.Now().Add(20 * time.Second)
	for {
		f := k.wait(t, 1)[0]
		if f[12] == 0x88 && f[13] == 0xb5 {
			if d := cmp.Diff(in, f); d != "" {
				t.Error(d)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the host's frame has not come")
		}
	}
	check(t, "stats", u.Stats(), UplinkStats{})
	if err := u.Close(); err != nil {
		t.Error(err)
	}
	if _, err := net.InterfaceByName(name); err == nil {
		t.Error("the interface is left behind")
	}
}

func BenchmarkUplink(b *testing.B) {
	dir := b.TempDir()
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "r"), Net: "unixgram"})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	s := NewSwitch(Options{})
	defer s.Close()
	p := s.Attach("nic0", &discard{})
	if _, err := s.OpenUplink("", UplinkSpec{Kind: KindDgram, Local: filepath.Join(dir, "l"), Remote: filepath.Join(dir, "r")}); err != nil {
		b.Fatal(err)
	}
	f, buf := frame(mac(1), mac(0), 1514, 0), make([]byte, 2000)
	b.ReportAllocs()
	for b.Loop() {
		p.Send(f)
		if _, err := l.Read(buf); err != nil {
			b.Fatal(err)
		}
	}
}
