// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vrnic/vrnic/guest/launch"
)

func init() {
	table = append(table,
		check{5, "plain", false, "QEMU with virtio-net on -netdev dgram and stream; vrnic serve --uplink dgram, stream, udp, tcp", plainGuest},
		check{5, "vlan", false, "VLAN 100 on two of three guests, one of each kernel", vlans},
		check{5, "promisc-multicast", false, "ip link set promisc|allmulticast, ip maddr; three guests, one of each kernel", promiscuous},
	)
}

// worldLibrary has what shells on a segment need. NET is the card's netdev.
const worldLibrary = `
NET=$(ls /sys/bus/pci/drivers/ice/0*/net 2>/dev/null)
netdev() { for d in /sys/class/net/*; do [ "$(cat $d/address)" != $1 ] || basename $d; done; }
statistics() { cat /sys/class/net/$1/statistics/rx_bytes /sys/class/net/$1/statistics/rx_packets; }
carrier() {
	n=0
	until [ "$(cat /sys/class/net/$1/carrier)" = 1 ]; do
		n=$((n+1)); [ $n -lt 200 ] || { echo "FAILED: no carrier on $1"; return; }
		sleep 0.05
	done
}
# take: a server on port 5001 that stores what it gets. It says nothing and does
# not hang up: nc ends when the other side has nothing to say any more.
[ -p /tmp/silence ] || mkfifo /tmp/silence
exec 9<> /tmp/silence
take() {
	timeout 120 nc -l -p 5001 <&9 > /tmp/got & taker=$!
	n=0
	until cat /proc/net/tcp /proc/net/tcp6 2> /dev/null | grep -q ':1389 [0-9A-F:]* 0A '; do
		n=$((n+1)); [ $n -lt 200 ] || { echo "FAILED: nobody listens"; return; }
		sleep 0.05
	done
}
taken() { wait $taker || echo "FAILED: the server ended with $?"; sha256sum < /tmp/got; }
give() {
	dd if=/dev/urandom of=/tmp/data bs=1M count=16 2> /dev/null
	timeout 120 nc $1 5001 < /tmp/data || echo "FAILED: the client ended with $?"
	sha256sum < /tmp/data
}
`

// station is a peer at the far end of an uplink dgram:, in the test itself.
type station struct {
	conn *net.UnixConn
	to   *net.UnixAddr

	mu     sync.Mutex
	frames [][]byte
}

// startStation returns the uplink that leads to it.
func startStation(t *testing.T) (*station, string) {
	t.Helper()
	dir := t.TempDir()
	ours, theirs := filepath.Join(dir, "station"), filepath.Join(dir, "uplink")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: ours, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s := &station{conn: conn, to: &net.UnixAddr{Name: theirs, Net: "unixgram"}}
	go func() {
		for buf := make([]byte, 64<<10); ; {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			s.mu.Lock()
			s.frames = append(s.frames, slices.Clone(buf[:n]))
			s.mu.Unlock()
		}
	}()
	return s, "dgram:" + theirs + "," + ours
}

// take returns the frames that came since the last call.
func (s *station) take() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.frames
	s.frames = nil
	return f
}

// untagged stands for a frame without a VLAN tag.
const untagged = -1

// crafted is a frame of the station of an experimental Ethernet type, with a tag
// of the VLAN.
func crafted(to string, vlan, size int) []byte {
	dst, err := net.ParseMAC(to)
	if err != nil {
		panic(err)
	}
	f := append(dst, 0x02, 0, 0, 0, 5, 1)
	if vlan != untagged {
		f = append(f, 0x81, 0)
		f = binary.BigEndian.AppendUint16(f, uint16(vlan))
	}
	f = append(f, 0x88, 0xb5)
	return append(f, make([]byte, size-len(f))...)
}

const (
	everybody  = "ff:ff:ff:ff:ff:ff"
	nobody     = "02:00:00:00:05:99" // a station that is not there
	volley     = 16                  // frames of one kind in a row
	smallFrame = 60
	markerSize = 1500 // more than a volley
)

// world is a segment with a guest of each kernel and a station outside.
type world struct {
	t       *testing.T
	server  *server
	station *station
	guests  []*machine
	macs    []string
}

var worldKernels = []string{"debian-12", "debian-13", "debian-backports"}

// bootWorld boots guests that say nothing by themselves.
func bootWorld(t *testing.T, e *env) *world {
	t.Helper()
	w := &world{t: t}
	var uplink string
	w.station, uplink = startStation(t)
	w.server = startServer(t, e, len(worldKernels), "--uplink", uplink)
	var configs []launch.Config
	for i, k := range worldKernels {
		c := smallGuest(t, e, k, k, w.server.sockets[i:i+1])
		c.Guest.Modules = []string{"ice"}
		configs = append(configs, c)
	}
	for _, g := range bootAll(t, configs) {
		m := newMachine(t, e, w.server, g, worldLibrary)
		w.guests = append(w.guests, m)
		m.do(`echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6`)
		w.macs = append(w.macs, strings.TrimSpace(m.do(`cat /sys/class/net/$NET/address`)))
	}
	return w
}

// smallGuest describes one of several guests on a small machine.
func smallGuest(t *testing.T, e *env, name, kernel string, sockets []string) launch.Config {
	t.Helper()
	c := guestConfig(t, e, kernel, sockets)
	c.CPUs, c.MemoryMiB, c.BootTimeout = 1, 512, 5*time.Minute
	c.Artifacts = filepath.Join(e.outDir, name)
	if err := os.MkdirAll(c.Artifacts, 0o755); err != nil {
		t.Fatal(err)
	}
	return c
}

// bootAll boots guests at the same time.
func bootAll(t *testing.T, configs []launch.Config) []*launch.Machine {
	t.Helper()
	guests, errs := make([]*launch.Machine, len(configs)), make([]error, len(configs))
	var wg sync.WaitGroup
	for i, c := range configs {
		wg.Go(func() { guests[i], errs[i] = launch.Boot(t.Context(), c) })
	}
	wg.Wait()
	for _, g := range guests {
		if g != nil {
			t.Cleanup(g.Kill)
		}
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("%+v", err)
	}
	return guests
}

// end stops everything and looks at what was said.
func (w *world) end(e *env) {
	w.t.Helper()
	for i, g := range w.guests {
		if err := g.guest.Close(); err != nil {
			w.t.Errorf("power off: %v", err)
		}
		wantCleanLog(w.t, filepath.Join(e.outDir, worldKernels[i], "kernel.log"))
	}
	if err := w.server.stop(); err != nil {
		w.t.Errorf("vrnic serve: %v", err)
	}
	wantQuietCard(w.t, filepath.Join(e.outDir, "serve.log"))
}

// received is what a netdev has counted.
type received struct{ bytes, packets int }

func (w *world) received(guest int, netdev string) (r received) {
	w.t.Helper()
	text := w.guests[guest].do("statistics " + netdev)
	if _, err := fmt.Sscan(text, &r.bytes, &r.packets); err != nil {
		w.t.Fatalf("statistics of %s: %q", netdev, text)
	}
	return r
}

// during tells how many frames the card of each guest has handed to its driver
// while something went on. A broadcast that every guest gets is the mark of the
// end: frames stay in order.
func (w *world) during(do func()) []int {
	w.t.Helper()
	var before []received
	for i := range w.guests {
		before = append(before, w.received(i, "$NET"))
	}
	do()
	w.send(crafted(everybody, untagged, markerSize))
	seen := make([]int, len(w.guests))
	for i := range w.guests {
		for end := time.Now().Add(30 * time.Second); ; {
			now := w.received(i, "$NET")
			if now.bytes-before[i].bytes >= markerSize-14 { // newer drivers do not count the Ethernet header
				seen[i] = now.packets - before[i].packets - 1
				break
			}
			if time.Now().After(end) {
				w.t.Fatalf("guest %d (%s): the broadcast at the end has not come: %+v before, %+v now", i, worldKernels[i], before[i], now)
			}
		}
	}
	return seen
}

func (w *world) send(frame []byte) {
	w.t.Helper()
	if _, err := w.station.conn.WriteToUnix(frame, w.station.to); err != nil {
		w.t.Fatal(err)
	}
}

// see sends a volley to an address.
func (w *world) see(to string, vlan int) []int {
	w.t.Helper()
	return w.during(func() {
		for range volley {
			w.send(crafted(to, vlan, smallFrame))
		}
	})
}

// is wants that a volley reaches these guests, and no other.
func (w *world) is(what, to string, vlan int, guests ...int) {
	w.t.Helper()
	if got, want := w.see(to, vlan), w.volleys(guests); !slices.Equal(got, want) {
		w.t.Errorf("%s: of %d frames to %s the guests received %v, want %v", what, volley, to, got, want)
	}
}

// becomes is as is, of a change that the driver carries out when it can.
func (w *world) becomes(what, to string, vlan int, guests ...int) {
	w.t.Helper()
	want := w.volleys(guests)
	var got []int
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		if got = w.see(to, vlan); slices.Equal(got, want) {
			return
		}
	}
	w.t.Errorf("%s: of %d frames to %s the guests receive %v, want %v", what, volley, to, got, want)
}

func (w *world) volleys(guests []int) []int {
	seen := make([]int, len(w.guests))
	for _, i := range guests {
		seen[i] = volley
	}
	return seen
}

// do runs commands, which print nothing unless they fail.
func (w *world) do(guest int, script string) {
	w.t.Helper()
	w.guests[guest].quiet(script)
}

func (m *machine) quiet(script string) {
	m.t.Helper()
	if out := m.do(script); out != "" {
		m.t.Errorf("%s: %s", script, out)
	}
}

// wantPing exchanges echoes without a loss.
func (m *machine) wantPing(address string) {
	m.t.Helper()
	const n = 20
	out := m.do(fmt.Sprintf("ping -q -c %d -i 0.05 -W 5 %s", n, address))
	if !regexp.MustCompile(fmt.Sprintf(`%d packets transmitted, %d received, 0%% packet loss`, n, n)).MatchString(out) {
		m.t.Errorf("ping %s: %s", address, out)
	}
}

// plainTransport is one way from an uplink to QEMU.
type plainTransport struct {
	name, uplink, netdev string
}

func plainTransports(t *testing.T) []plainTransport {
	t.Helper()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	udp, peer, tcp := freePort(t, "udp"), freePort(t, "udp"), freePort(t, "tcp")
	return []plainTransport{
		{"dgram", "dgram:" + path("ours") + "," + path("qemu"),
			"dgram,local.type=unix,local.path=" + path("qemu") + ",remote.type=unix,remote.path=" + path("ours")},
		{"stream", "stream:" + path("stream"), // QEMU is the server
			"stream,server=on,addr.type=unix,addr.path=" + path("stream")},
		{"udp", fmt.Sprintf("udp:127.0.0.1:%d,127.0.0.1:%d", udp, peer),
			fmt.Sprintf("dgram,local.type=inet,local.host=127.0.0.1,local.port=%d,remote.type=inet,remote.host=127.0.0.1,remote.port=%d", peer, udp)},
		{"tcp", fmt.Sprintf("tcp:127.0.0.1:%d,server", tcp), // we are the server
			fmt.Sprintf("stream,server=off,addr.type=inet,addr.host=127.0.0.1,addr.port=%d", tcp)},
	}
}

// freePort is a port that nobody has at the moment.
func freePort(t *testing.T, network string) int {
	t.Helper()
	if network == "tcp" {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().(*net.TCPAddr).Port
	}
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).Port
}

// plainGuest has a guest without a card of ours on every kind of uplink: one
// netdev of its own each, one up at a time.
func plainGuest(t *testing.T, e *env) {
	transports := plainTransports(t)
	var uplinks, args []string
	for i, p := range transports {
		uplinks = append(uplinks, "--uplink", p.uplink)
		args = append(args, "-netdev", p.netdev+fmt.Sprintf(",id=net%d", i),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=net%d,mac=%s,romfile=", i, plainMAC(i)))
	}
	s := startServer(t, e, 1, uplinks...)
	card := smallGuest(t, e, "card", "debian-backports", s.sockets)
	plain := smallGuest(t, e, "plain", "debian-backports", nil)
	plain.QEMUArgs, plain.Guest.Modules = args, []string{"virtio_net"}
	guests := bootAll(t, []launch.Config{card, plain})
	a, b := newMachine(t, e, s, guests[0], worldLibrary), newMachine(t, e, s, guests[1], worldLibrary)
	a.quiet("carrier $NET")

	for i, p := range transports {
		begin := time.Now()
		rate := ""
		t.Run("plain-"+p.name, func(t *testing.T) {
			a, b := *a, *b
			a.t, b.t = t, t
			ours, theirs := fmt.Sprintf("192.168.%d.1", 80+i), fmt.Sprintf("192.168.%d.2", 80+i)
			a.quiet(fmt.Sprintf("ip addr add %s/24 dev $NET", ours))
			b.quiet(fmt.Sprintf("d=$(netdev %s); ip addr add %s/24 dev $d; ip link set $d up; carrier $d", plainMAC(i), theirs))
			a.wantPing(theirs)
			b.wantPing(ours)
			there, back := transfer(&a, &b, theirs), transfer(&b, &a, ours)
			rate = fmt.Sprintf("no ping lost; 16 MiB of TCP at %.0f MB/s to the plain guest, %.0f MB/s from it", there, back)
			b.quiet("ip link set $d down; ip addr flush dev $d")
			a.quiet(fmt.Sprintf("ip addr del %s/24 dev $NET", ours))
			e.part(t, "plain-"+p.name, "-netdev "+strings.SplitN(p.netdev, "=", 2)[0]+"… --uplink "+p.name, rate, time.Since(begin))
		})
	}
	if err := b.guest.Close(); err != nil {
		t.Errorf("power off: %v", err)
	}
	a.end()
	wantCleanLog(t, filepath.Join(e.outDir, "card", "kernel.log"))
	// Before QEMU is there, and when it has gone.
	wantQuietCard(t, filepath.Join(e.outDir, "serve.log"), "uplink1", "uplink3")
}

func plainMAC(i int) string { return fmt.Sprintf("52:54:00:00:05:%02x", i) }

// transfer sends random bytes by TCP and compares their sums. It returns a rate
// in MB/s, of little worth.
func transfer(from, to *machine, address string) float64 {
	from.t.Helper()
	to.quiet("take")
	begin := time.Now()
	sent := from.do("give " + address)
	took := time.Since(begin)
	if got := to.do("taken"); got != sent || len(sent) != len("  -\n")+64 {
		from.t.Errorf("sent %q, received %q", sent, got)
	}
	return 16 << 20 / took.Seconds() / 1e6
}

// tagged counts the frames of a VLAN among frames.
func tagged(frames [][]byte, vlan uint16) (n int) {
	for _, f := range frames {
		if len(f) >= 18 && f[12] == 0x81 && f[13] == 0 && binary.BigEndian.Uint16(f[14:])&0xfff == vlan {
			n++
		}
	}
	return n
}

// vlans has two guests in a VLAN, and one outside.
func vlans(t *testing.T, e *env) {
	w := bootWorld(t, e)
	const a, b, c = 0, 1, 2
	join := func(guest, vlan int) {
		w.do(guest, fmt.Sprintf(`ip link add link $NET name v%d type vlan id %d; ip addr add 10.0.%d.%d/24 dev v%d; ip link set v%d up`, vlan, vlan, vlan, guest+1, vlan, vlan))
	}
	for i, g := range w.guests {
		if out := g.do(`ethtool -k $NET | grep rx-vlan-filter`); strings.TrimSpace(out) != "rx-vlan-filter: on" {
			t.Errorf("%s: %s", worldKernels[i], out)
		}
	}
	w.is("nobody is in a VLAN", everybody, 100)
	w.is("frames without a tag", everybody, untagged, a, b, c)
	w.is("frames with a priority alone", everybody, 0, a, b, c)

	join(a, 100)
	join(b, 100)
	w.becomes("two are in the VLAN", everybody, 100, a, b)
	for i, netdev := range []string{a: "v100", b: "v100"} {
		before := w.received(i, netdev)
		w.is("one is meant", w.macs[i], 100, i)
		if n := w.received(i, netdev).packets - before.packets; n != volley {
			t.Errorf("%s of guest %d received %d frames, want %d", netdev, i, n, volley)
		}
	}
	w.is("the one outside is meant", w.macs[c], 100)
	w.is("another VLAN", everybody, 200)
	w.is("without a tag", everybody, untagged, a, b, c)

	w.station.take()
	seen := w.during(func() {
		w.guests[a].wantPing("10.0.100.2")
		w.guests[b].wantPing("10.0.100.1")
		w.guests[a].do("ping -b -q -c 5 -i 0.05 -W 1 10.0.100.255")
	})
	// The first question for the other's address and the pings for all.
	if n := tagged(w.station.take(), 100); n < 6 {
		t.Errorf("%d frames with the tag came to the ports outside, want 6 at least", n)
	}
	if seen[c] != 0 || seen[a] < 40 || seen[b] < 40 {
		t.Errorf("while two of them talked in the VLAN the guests received %v", seen)
	}
	e.part(t, "vlan-filter", "ping in VLAN 100, rx-vlan-filter on", fmt.Sprintf("frames received by the three guests: %v", seen), 0)

	w.do(b, "ethtool -K $NET rxvlan off txvlan off > /dev/null")
	w.guests[a].wantPing("10.0.100.2")
	w.do(b, "ethtool -K $NET rxvlan on txvlan on > /dev/null")
	w.guests[b].wantPing("10.0.100.1")

	join(c, 100)
	w.becomes("all three are in the VLAN", everybody, 100, a, b, c)
	w.guests[c].wantPing("10.0.100.1")
	w.do(c, "ip link del v100")
	w.becomes("the third has left", everybody, 100, a, b)
	w.do(c, "ethtool -K $NET rx-vlan-filter off > /dev/null")
	w.becomes("the third does not filter", everybody, 100, a, b, c)
	w.do(c, "ethtool -K $NET rx-vlan-filter on > /dev/null")
	w.becomes("the third filters again", everybody, 100, a, b)

	w.do(b, "ip link del v100")
	w.becomes("one is left", everybody, 100, a)
	w.is("the one that has left is meant", w.macs[b], 100)
	if out := w.guests[a].do("ping -q -c 3 -i 0.2 -W 1 10.0.100.2"); !strings.Contains(out, "100% packet loss") {
		t.Errorf("after ip link del: %s", out)
	}
	e.part(t, "vlan-del", "ip link del v100", "100% loss", 0)
	w.end(e)
}

// promiscuous changes what one guest of three listens to.
func promiscuous(t *testing.T, e *env) {
	w := bootWorld(t, e)
	const (
		group   = "01:00:5e:01:02:03"
		another = "01:00:5e:01:02:04"
		six     = "33:33:00:00:12:34"
		second  = "02:00:00:00:05:77"
	)
	w.is("broadcast", everybody, untagged, 0, 1, 2)
	w.is("nobody listens to this address", nobody, untagged)
	w.is("nor to this group", group, untagged)
	w.is("nor to this one", six, untagged)
	for i, k := range worldKernels {
		begin := time.Now()
		t.Run(k, func(t *testing.T) {
			w := *w
			w.t = t
			w.is("own address", w.macs[i], untagged, i)

			w.do(i, "ip maddr add "+group+" dev $NET")
			w.becomes("ip maddr add", group, untagged, i)
			w.is("another group", another, untagged)
			w.do(i, "ip maddr del "+group+" dev $NET")
			w.becomes("ip maddr del", group, untagged)

			w.do(i, "ip addr add 239.1.2.3/32 dev $NET autojoin")
			w.becomes("a socket joins the group", group, untagged, i)
			w.is("another group", another, untagged)
			w.do(i, "ip addr del 239.1.2.3/32 dev $NET")
			w.becomes("the socket is closed", group, untagged)

			w.do(i, "ip link set $NET allmulticast on")
			w.becomes("all groups", group, untagged, i)
			w.is("all groups", six, untagged, i)
			w.is("all groups, but no address", nobody, untagged)
			w.do(i, "ip link set $NET allmulticast off")
			w.becomes("no longer all groups", group, untagged)
			w.is("no longer all groups", six, untagged)

			w.do(i, "ip link set $NET promisc on")
			w.becomes("promiscuous", nobody, untagged, i)
			w.is("promiscuous, groups", group, untagged, i)
			w.is("promiscuous, any VLAN", nobody, 300, i)
			w.do(i, "ip link set $NET promisc off")
			w.becomes("not promiscuous", nobody, untagged)
			w.is("not promiscuous, groups", group, untagged)
			w.is("not promiscuous, any VLAN", everybody, 300)
			w.is("own address again", w.macs[i], untagged, i)

			w.do(i, "ip link add link $NET name v100 type vlan id 100; ip link set v100 up; ip link set $NET allmulticast on")
			w.becomes("all groups of a VLAN", group, 100, i)
			w.becomes("all groups without a VLAN", group, untagged, i)
			w.is("groups of another VLAN", group, 200)
			w.is("addresses in the VLAN", nobody, 100)
			w.do(i, "ip link set $NET allmulticast off")
			w.becomes("no longer all groups of the VLAN", group, 100)
			w.is("broadcast in the VLAN", everybody, 100, i)
			w.do(i, "ip link del v100")
			w.becomes("no VLAN", everybody, 100)

			w.do(i, "ip link add link $NET name second address "+second+" type macvlan; ip link set second up")
			w.becomes("a second address", second, untagged, i)
			w.do(i, "ip link del second")
			w.becomes("no second address", second, untagged)

			w.do(i, "ip link set $NET address "+second)
			w.becomes("a new address", second, untagged, i)
			w.is("the old one", w.macs[i], untagged)
			w.do(i, "ip link set $NET address "+w.macs[i])
			w.becomes("the first address", w.macs[i], untagged, i)
			w.is("no longer the other", second, untagged)
			e.part(t, "promisc-multicast-"+k, "volleys of frames from outside", "", time.Since(begin))
		})
	}
	w.end(e)
}
