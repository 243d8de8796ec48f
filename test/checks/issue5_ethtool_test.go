// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/digitalocean/go-qemu/qmp"
	"golang.org/x/sys/unix"

	"github.com/vrnic/vrnic/guest/launch"
	"github.com/vrnic/vrnic/guest/wire"
)

func init() {
	table = append(table,
		check{5, "ethtool-debian-12", false, "ethtool, ip -s link and ctl link against what the card is and what was sent, debian-12", ethtoolOn("debian-12")},
		check{5, "ethtool-debian-13", false, "ethtool, ip -s link and ctl link against what the card is and what was sent, debian-13", ethtoolOn("debian-13")},
		check{5, "ethtool-debian-backports", false, "ethtool, ip -s link and ctl link against what the card is and what was sent, debian-backports", ethtoolOn("debian-backports")},
	)
}

// ethtoolLibrary is for a guest that sends nothing unless told to.
const ethtoolLibrary = `
DEV=$(basename $(ls -d /sys/bus/pci/drivers/ice/0*)) P=/sys/bus/pci/devices/$DEV NET=$(ls $P/net)
peer() { ip neigh replace ` + stationAddress + ` lladdr ` + stationMAC + ` dev $NET nud permanent; }
# await: until a command succeeds.
await() {
	n=0
	until eval "$1" > /dev/null 2>&1; do
		n=$((n+1)); [ $n -lt 400 ] || { echo "FAILED: not: $1"; return 1; }
		sleep 0.05
	done
}
`

const (
	guestAddress   = "192.168.77.1"
	stationAddress = "192.168.77.2"
	stationMAC     = "02:00:00:00:77:02"
)

// ethtoolBench is a guest with a card whose only peer is the test itself.
type ethtoolBench struct {
	*machine
	kernel  string
	station *station
	mac     net.HardwareAddr
	net     string
	qmp     string // socket of a second monitor
}

// ethtoolCase is one truth that is asked for.
type ethtoolCase struct {
	name, command string
	run           func(b *ethtoolBench) (measured string)
}

var ethtoolCases = []ethtoolCase{
	{"identity", "ethtool -i, -P, devlink dev info", (*ethtoolBench).identity},
	{"link", "ethtool, speed and rate in sysfs", (*ethtoolBench).linkSettings},
	{"receive", "ethtool -S, ip -s link, after frames from the wire", (*ethtoolBench).receives},
	{"transmit", "ethtool -S, ip -s link, after frames to the wire", (*ethtoolBench).transmits},
	{"features", "ethtool -k, -K", (*ethtoolBench).features},
	{"rings", "ethtool -g, -G", (*ethtoolBench).rings},
	{"drops", "frames for a guest that stands still", (*ethtoolBench).drops},
	{"coalesce", "ethtool -c, -C", (*ethtoolBench).coalesce},
	{"pause", "ethtool -a, -A", (*ethtoolBench).pause},
	{"fec", "ethtool --set-fec", (*ethtoolBench).fec},
	{"identify", "ethtool -p", (*ethtoolBench).identify},
	{"registers", "ethtool -d", (*ethtoolBench).registers},
	{"eeprom", "ethtool -e", (*ethtoolBench).eeprom},
	{"module", "ethtool -m", (*ethtoolBench).module},
	{"flows", "ethtool -x, -X", (*ethtoolBench).hash},
	{"channels", "ethtool -l, -L", (*ethtoolBench).channels},
	{"mtu", "ip link set mtu", (*ethtoolBench).mtu},
	{"carrier", "vrnic ctl link down, up", (*ethtoolBench).carrier},
	{"selftest", "ethtool -t", (*ethtoolBench).selftest},
}

// ethtoolOn asks everything of one guest.
func ethtoolOn(kernel string) func(*testing.T, *env) {
	return func(t *testing.T, e *env) {
		b := bootBench(t, e, kernel)
		for _, c := range ethtoolCases {
			t.Run(c.name, func(t *testing.T) {
				b.t = t
				begin := time.Now()
				measured := c.run(b)
				e.part(t, c.name, c.command, measured, time.Since(begin))
			})
		}
		b.t = t
		b.end()
		wantCleanLog(t, e.kernelLog())
		wantQuietCard(t, filepath.Join(e.outDir, "serve.log"))
	}
}

func bootBench(t *testing.T, e *env, kernel string) *ethtoolBench {
	t.Helper()
	b := &ethtoolBench{kernel: kernel, qmp: filepath.Join(t.TempDir(), "qmp")}
	var uplink string
	b.station, uplink = startStation(t)
	server := startServer(t, e, 1, "--uplink", uplink)
	c := guestConfig(t, e, kernel, server.sockets)
	c.BootTimeout = limit
	c.CPUs = 2 // as many queues
	c.Append = "ipv6.disable_ipv6=1"
	c.QEMUArgs = []string{"-qmp", "unix:" + b.qmp + ",server=on,wait=off"}
	c.Guest.Nets = []wire.Net{{Addresses: []netip.Prefix{netip.MustParsePrefix(guestAddress + "/24")}}}
	guest, err := launch.Boot(t.Context(), c)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	b.machine = newMachine(t, e, server, guest, ethtoolLibrary)
	b.quiet("peer; await 'ibv_devinfo | grep -q PORT_ACTIVE'")
	text := strings.Fields(b.do("cat $P/net/*/address; echo $NET"))
	if len(text) != 2 {
		t.Fatalf("address and name: %q", text)
	}
	if b.mac, err = net.ParseMAC(text[0]); err != nil {
		t.Fatal(err)
	}
	b.net = text[1]
	return b
}

// ok runs commands that must not fail and returns what they print.
func (b *ethtoolBench) ok(script string) string {
	b.t.Helper()
	text, status := b.try(script)
	if status != 0 {
		b.t.Fatalf("%s: status %d\n%s", script, status, text)
	}
	return text
}

// try runs commands; the status is the last one's.
func (b *ethtoolBench) try(script string) (text string, status int) {
	b.t.Helper()
	text = b.do(script + "\necho \"\nstatus $?\"")
	at := strings.LastIndex(text, "\nstatus ")
	if at < 0 {
		b.t.Fatalf("%s: %q", script, text)
	}
	status, err := strconv.Atoi(strings.TrimSpace(text[at+len("\nstatus "):]))
	if err != nil {
		b.t.Fatalf("%s: %v", script, err)
	}
	return text[:at], status
}

// refused runs a command that must fail and say so.
func (b *ethtoolBench) refused(script, message string) {
	b.t.Helper()
	text, status := b.try(script)
	if status == 0 || !strings.Contains(text, message) {
		b.t.Errorf("%s: status %d, want a refusal with %q\n%s", script, status, message, text)
	}
}

// settings reads lines "key: value"; below a line of a key alone, a section, keys
// are "section/key". A line without a key goes on with the value before.
func settings(text string) map[string]string {
	out, section, last := map[string]string{}, "", ""
	for line := range strings.Lines(text) {
		key, value, found := strings.Cut(line, ":")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch {
		case key == "":
		case !found && last != "":
			out[last] += " " + strings.TrimSpace(line)
		case strings.HasSuffix(line, ":\n") && line[0] != '\t':
			if section, last = key+"/", ""; strings.Contains(key, " for ") {
				section = "" // what it is all about
			}
		case found:
			last = section + key
			out[last] = value
		}
	}
	return out
}

// wantSettings asserts values, of which each may be a regular expression.
func wantSettings(t *testing.T, text string, want map[string]string) {
	t.Helper()
	got := settings(text)
	for key, value := range want {
		if !regexp.MustCompile("^(?:" + value + ")$").MatchString(got[key]) {
			t.Errorf("%s: %q, want %q\n%s", key, got[key], value, text)
		}
	}
}

// counters are what "ethtool -S" and "ip -s link" count, the latter's behind
// "ip.". Those of queues are there once more as sums: rx_queue_packets.
type counters map[string]uint64

func (b *ethtoolBench) counters() counters {
	b.t.Helper()
	c := counters{}
	text := b.ok("ethtool -S $NET; ip -j -s link show dev $NET")
	queue := regexp.MustCompile(`^([rt]x_queue)_\d+(_packets|_bytes)$`)
	var links []struct {
		Stats map[string]map[string]uint64 `json:"stats64"`
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "[") {
			if err := json.Unmarshal([]byte(line), &links); err != nil || len(links) != 1 {
				b.t.Fatalf("%v: %s", err, line)
			}
			for side, values := range links[0].Stats {
				for name, v := range values {
					c["ip."+side+"."+name] = v
				}
			}
			continue
		}
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		v, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			continue
		}
		c[name] = v
		if m := queue.FindStringSubmatch(name); m != nil {
			c[m[1]+m[2]] += v
		}
	}
	if len(links) != 1 {
		b.t.Fatalf("counters: %s", text)
	}
	return c
}

// frame counts a frame at the port, and at the netdev if that takes or sends it,
// with n bytes; the rest of it is padding. The driver's own counters are the ones
// of queues and of ip: it counts padding when it sends (ice_txrx.c:
// ice_xmit_frame_ring).
func (b *ethtoolBench) frame(c counters, side string, f []byte, n int, netdev bool) {
	const fcs = 4
	class := "unicast"
	switch {
	case slices.Equal(f[:6], []byte{255, 255, 255, 255, 255, 255}):
		class = "broadcast"
	case f[0]&1 != 0:
		class = "multicast"
	}
	size := "big"
	for _, limit := range []int{1522, 1023, 511, 255, 127, 64} {
		if len(f)+fcs <= limit {
			size = strconv.Itoa(limit)
		}
	}
	c[side+"_"+class+".nic"]++
	c[side+"_bytes.nic"] += uint64(len(f) + fcs)
	c[side+"_size_"+size+".nic"]++
	if !netdev {
		return
	}
	c[side+"_"+class]++
	c[side+"_bytes"] += uint64(n)
	if side == "tx" {
		n = max(n, 60)
	} else {
		n -= b.uncounted()
	}
	c[side+"_queue_packets"]++
	c[side+"_queue_bytes"] += uint64(n)
	c["ip."+side+".packets"]++
	c["ip."+side+".bytes"] += uint64(n)
	if side == "rx" && class == "multicast" {
		c["ip.rx.multicast"]++
	}
}

// uncounted is the part of a received frame that the driver leaves out: 7.3 counts
// behind the Ethernet header, which eth_type_trans has taken off in
// xdp_build_skb_from_buff by then (ice_txrx.c:ice_clean_rx_irq).
func (b *ethtoolBench) uncounted() int {
	if b.kernel == "debian-backports" {
		return 14
	}
	return 0
}

// aQueue is a counter of a queue, or one that says how often the driver was in
// a hurry.
var aQueue = regexp.MustCompile(`_queue_\d+_|^tx_(busy|restart)$`)

// wantCounters asserts that what is counted since before is want, and that
// nothing else is counted. Counters of single queues are compared if want has
// one.
func (b *ethtoolBench) wantCounters(before, want counters) {
	b.t.Helper()
	var wrong []string
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); { // frames take their time
		if wrong = difference(before, b.counters(), want); wrong == nil {
			return
		}
	}
	b.t.Errorf("counters:\n%s", strings.Join(wrong, "\n"))
}

func difference(before, after, want counters) (wrong []string) {
	single := false
	for name := range want {
		single = single || strings.Contains(name, "x_queue_0_")
		if _, ok := after[name]; !ok {
			wrong = append(wrong, "there is no "+name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if got := after[name] - before[name]; got != want[name] && (single || !aQueue.MatchString(name)) {
			wrong = append(wrong, fmt.Sprintf("%s: %d more, want %d", name, int64(got), want[name]))
		}
	}
	return wrong
}

// datagram is an IPv4 packet to the guest that nobody answers: an ICMP echo
// reply that nobody waits for. size is the frame's.
func (b *ethtoolBench) datagram(to net.HardwareAddr, from netip.Addr, size int) []byte {
	source, err := net.ParseMAC(stationMAC)
	if err != nil {
		b.t.Fatal(err)
	}
	f := append(slices.Clone(to), source...)
	f = append(f, 0x08, 0x00)
	ip := make([]byte, 20, size)
	ip[0], ip[8], ip[9] = 0x45, 64, 1
	binary.BigEndian.PutUint16(ip[2:], uint16(size-14))
	copy(ip[12:], from.AsSlice())
	copy(ip[16:], netip.MustParseAddr(guestAddress).AsSlice())
	binary.BigEndian.PutUint16(ip[10:], internetSum(ip))
	icmp := make([]byte, size-14-20)
	icmp[4], icmp[5] = 0x77, 0x77
	binary.BigEndian.PutUint16(icmp[2:], internetSum(icmp))
	return append(append(f, ip...), icmp...)
}

// internetSum is the checksum of RFC 1071 of an even number of bytes, or of an
// odd one with a 0 behind.
func internetSum(p []byte) uint16 {
	var sum uint32
	for i, v := range p {
		sum += uint32(v) << (8 * (1 - i&1))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// send waits for room in the card's socket. Go's own waiting is for the room of
// a connected one only.
func (b *ethtoolBench) send(frame []byte) {
	b.t.Helper()
	raw := b.raw()
	to := &unix.SockaddrUnix{Name: b.station.to.Name}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Microsecond) {
		var sendErr error
		if err := raw.Control(func(fd uintptr) { sendErr = unix.Sendto(int(fd), frame, unix.MSG_DONTWAIT, to) }); err != nil {
			b.t.Fatal(err)
		}
		if sendErr == nil {
			return
		}
		if sendErr != unix.EAGAIN || time.Now().After(end) {
			b.t.Fatalf("send: %v", sendErr)
		}
	}
}

// taken waits until the card has read all that was sent.
func (b *ethtoolBench) taken() {
	b.t.Helper()
	raw := b.raw()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		var left int
		var ioctlErr error
		if err := raw.Control(func(fd uintptr) { left, ioctlErr = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); err != nil || ioctlErr != nil {
			b.t.Fatal(err, ioctlErr)
		}
		if left == 0 {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("%d bytes wait in the card's socket", left)
		}
	}
}

func (b *ethtoolBench) raw() syscall.RawConn {
	b.t.Helper()
	raw, err := b.station.conn.SyscallConn()
	if err != nil {
		b.t.Fatal(err)
	}
	return raw
}

var (
	everyone    = net.HardwareAddr{255, 255, 255, 255, 255, 255}
	allSystems  = net.HardwareAddr{0x01, 0, 0x5e, 0, 0, 1}    // which every IPv4 host hears
	otherGroup  = net.HardwareAddr{0x01, 0, 0x5e, 1, 2, 3}    // which the guest does not
	otherHost   = net.HardwareAddr{0x02, 0, 0, 0, 0x77, 0x63} // who is not there
	stationHost = netip.MustParseAddr(stationAddress)
)

// receiveAll sends frames at the limits of every size class, of every kind of
// destination, in some order, and returns what is to be counted.
func (b *ethtoolBench) receiveAll(each int, sizes ...int) (want counters, n int) {
	b.t.Helper()
	want = counters{}
	type kind struct {
		to     net.HardwareAddr
		netdev bool
	}
	var frames []func()
	for _, size := range sizes {
		for _, k := range []kind{{b.mac, true}, {everyone, true}, {allSystems, true}, {otherGroup, false}, {otherHost, false}} {
			for range each {
				frames = append(frames, func() {
					f := b.datagram(k.to, stationHost, size)
					b.frame(want, "rx", f, len(f), k.netdev)
					b.send(f)
				})
			}
		}
	}
	rand.Shuffle(len(frames), func(i, j int) { frames[i], frames[j] = frames[j], frames[i] })
	for _, send := range frames {
		send()
	}
	// One more, as those before it are counted when it is.
	f := b.datagram(b.mac, stationHost, 60)
	b.frame(want, "rx", f, len(f), true)
	b.send(f)
	return want, len(frames) + 1
}

func (b *ethtoolBench) receives() string {
	before := b.counters()
	want, n := b.receiveAll(7, 60, 61, 123, 124, 251, 252, 507, 508, 1019, 1020, 1514)
	b.wantCounters(before, want)
	return fmt.Sprintf("%d frames", n)
}

// sent is how many bytes of a frame the driver sent; the rest is padding.
func sent(f []byte) int {
	switch binary.BigEndian.Uint16(f[12:]) {
	case 0x0800:
		return 14 + int(binary.BigEndian.Uint16(f[16:]))
	case 0x0806:
		return 14 + 28
	}
	return len(f)
}

// transmitted waits for n frames at the station, and counts them.
func (b *ethtoolBench) transmitted(n int) (want counters, frames [][]byte) {
	b.t.Helper()
	for end := time.Now().Add(20 * time.Second); len(frames) < n && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		frames = append(frames, b.station.take()...)
	}
	if len(frames) != n {
		b.t.Errorf("%d frames have come, want %d", len(frames), n)
	}
	want = counters{}
	for _, f := range frames {
		b.frame(want, "tx", f, sent(f), true)
	}
	return want, frames
}

// ping sends echo requests that nobody answers.
const ping = `ping() { command ping -q -W 0.1 -i 0.002 "$@" 2>&1 | grep -q "$2 packets transmitted" || echo "FAILED: ping $*"; }` + "\n"

func (b *ethtoolBench) transmits() string {
	b.station.take()
	before := b.counters()
	// Data sizes at the limits of the size classes; the headers have 42 bytes.
	script, n := ping, 0
	for _, size := range []int{0, 18, 19, 81, 82, 209, 210, 465, 466, 977, 978, 1472} {
		script += fmt.Sprintf("ping -c 5 -s %d %s\n", size, stationAddress)
		n += 5
	}
	script += "ping -c 6 -s 100 -b 192.168.77.255\nping -c 7 -s 200 -I $NET 224.0.0.1\n"
	script += "ping -c 8 -s 4000 " + stationAddress + "\n" // three fragments
	n += 6 + 7 + 8*3
	b.quiet(script)
	want, _ := b.transmitted(n)
	b.wantCounters(before, want)
	if want["tx_broadcast"] != 6 || want["tx_multicast"] != 7 {
		b.t.Errorf("%d broadcasts and %d multicasts have come, want 6 and 7", want["tx_broadcast"], want["tx_multicast"])
	}
	return fmt.Sprintf("%d frames", n)
}

// bothWays exchanges a few frames.
func (b *ethtoolBench) bothWays() {
	b.t.Helper()
	b.station.take()
	before := b.counters()
	b.quiet("peer\n" + ping + "ping -c 10 -s 300 " + stationAddress)
	want, _ := b.transmitted(10)
	received, _ := b.receiveAll(1, 60, 1514)
	maps.Copy(want, received)
	b.wantCounters(before, want)
}

// monitor runs commands of QEMU's monitor.
func (b *ethtoolBench) monitor(commands ...string) {
	b.t.Helper()
	m, err := qmp.NewSocketMonitor("unix", b.qmp, 10*time.Second)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := m.Connect(); err != nil {
		b.t.Fatal(err)
	}
	defer m.Disconnect()
	for _, c := range commands {
		if _, err := m.Run([]byte(`{"execute":"` + c + `"}`)); err != nil {
			b.t.Fatalf("QMP %s: %v", c, err)
		}
	}
}

// register reads one element of a register from outside.
func (b *ethtoolBench) register(name string) uint32 {
	b.t.Helper()
	var values []struct {
		Name  string
		Value uint32
	}
	row, _, _ := strings.Cut(name, "(")
	s := session{t: b.t, e: b.e, control: b.server.control}
	s.explain(&values, "regs", row)
	for _, v := range values {
		if v.Name == name {
			return v.Value
		}
	}
	return 0 // at its reset value
}
