// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// What the card is, as its flash and its firmware say: the versions of the NVM
// (map version, EETRACK), of the option ROM, and of the firmware.
const nvmVersion = "4.20 0x80000001 1.0.0"

func (b *ethtoolBench) identity() string {
	release := strings.TrimSpace(b.ok("uname -r"))
	text := b.ok("ethtool -i $NET")
	wantSettings(b.t, text, map[string]string{
		"driver": "ice", "version": regexp.QuoteMeta(release), "firmware-version": regexp.QuoteMeta(nvmVersion),
		"bus-info": strings.TrimSpace(b.ok("echo $DEV")), "supports-statistics": "yes", "supports-test": "yes",
		"supports-eeprom-access": "yes", "supports-register-dump": "yes", "supports-priv-flags": "yes",
	})
	// devlink asks the firmware, too.
	info := b.ok("devlink dev info pci/$DEV")
	for _, line := range []string{"fw.mgmt 7.3.0", "fw.mgmt.api 1.5", "fw.undi 1.0.0", "fw.psid.api 4.20", "fw.bundle_id 0x80000001", "fw.app.name ICE OS Default Package"} {
		if !strings.Contains(info, line) {
			b.t.Errorf("devlink dev info: no %q in %s", line, info)
		}
	}
	if text := b.ok("ethtool -P $NET"); !strings.Contains(text, b.mac.String()) {
		b.t.Errorf("%s, want %v", text, b.mac)
	}
	return nvmVersion
}

// linkSettings is the port with its cable: 100GBASE-CR4 and no other.
func (b *ethtoolBench) linkSettings() string {
	wantSettings(b.t, b.ok("ethtool $NET"), map[string]string{
		"Supported link modes": "100000baseCR4/Full", "Advertised link modes": "100000baseCR4/Full",
		"Supports auto-negotiation": "Yes", "Advertised auto-negotiation": "Yes", "Auto-negotiation": "on",
		"Supported FEC modes": `None\s+RS`, "Speed": "100000Mb/s", "Duplex": "Full", "Port": "Direct Attach Copper",
		"Link detected": "yes",
	})
	b.wantRates("100000")
	return "100000baseCR4/Full"
}

// wantRates asks what else knows the speed.
func (b *ethtoolBench) wantRates(speed string) {
	b.t.Helper()
	if got := strings.TrimSpace(b.ok("cat /sys/class/net/$NET/speed")); got != speed {
		b.t.Errorf("speed in sysfs: %s, want %s", got, speed)
	}
	if got := strings.TrimSpace(b.ok("cat /sys/class/infiniband/*/ports/1/rate")); !strings.HasPrefix(got, "100 Gb/sec") {
		b.t.Errorf("rate of the RDMA port: %s, want 100 Gb/sec", got)
	}
}

func (b *ethtoolBench) features() string {
	wantSettings(b.t, b.ok("ethtool -k $NET"), map[string]string{
		"rx-checksumming": "on", "tx-checksumming": "on", "scatter-gather": "on", "tcp-segmentation-offload": "on",
		"tx-tcp-segmentation": "on", "tx-tcp-ecn-segmentation": "on", "tx-tcp6-segmentation": "on", "tx-udp-segmentation": "on",
		"tx-gre-segmentation": "on", "tx-gre-csum-segmentation": "on", "tx-ipxip4-segmentation": "on", "tx-udp_tnl-segmentation": "on",
		"tx-udp_tnl-csum-segmentation": "on", "tx-checksum-sctp": "on", "rx-vlan-offload": "on", "tx-vlan-offload": "on",
		"rx-vlan-filter": "on", "receive-hashing": "on", "loopback": "off", "rx-fcs": "off",
	})
	toggled := 0
	for _, f := range []string{"rx", "tx", "tso", "rxvlan", "txvlan", "rx-vlan-filter", "rxhash"} {
		b.ok("ethtool -K $NET " + f + " off")
		b.bothWays()
		b.ok("ethtool -K $NET " + f + " on")
		toggled++
	}

	// The FCS becomes a part of frames.
	b.ok("ethtool -K $NET rx-fcs on rxvlan off")
	before := b.counters()
	f := b.datagram(b.mac, stationHost, 100)
	want := counters{}
	b.frame(want, "rx", f, len(f), true)
	want["rx_queue_bytes"] += 4
	want["ip.rx.bytes"] += 4
	b.send(f)
	b.wantCounters(before, want)
	b.ok("ethtool -K $NET rx-fcs off rxvlan on")
	b.bothWays()

	// The MAC returns what it is given: nothing leaves.
	b.ok("ethtool -K $NET loopback on")
	b.station.take()
	before = b.counters()
	b.quiet("peer\n" + ping + "ping -c 5 -s 10 -b 192.168.77.255")
	want = counters{}
	f = append(slices.Clone(everyone), make([]byte, 60-6)...)
	for range 5 {
		b.frame(want, "tx", f, 14+20+8+10, true)
		b.frame(want, "rx", f, 60, true)
	}
	b.wantCounters(before, want)
	if n := len(b.station.take()); n != 0 {
		b.t.Errorf("%d frames have come while the MAC was in loopback", n)
	}
	b.ok("ethtool -K $NET loopback off")
	b.quiet("await 'ibv_devinfo | grep -q PORT_ACTIVE'")
	b.bothWays()
	return fmt.Sprintf("%d toggled, and rx-fcs and loopback", toggled)
}

func (b *ethtoolBench) rings() string {
	wantSettings(b.t, b.ok("ethtool -g $NET"), map[string]string{
		"Pre-set maximums/RX": "8160|8192", "Pre-set maximums/TX": "8160|8192",
		"Current hardware settings/RX": "2048", "Current hardware settings/TX": "256",
	})
	for _, n := range []string{"64", "4096", "512"} {
		b.ok(fmt.Sprintf("ethtool -G $NET rx %s tx %s", n, n))
		wantSettings(b.t, b.ok("ethtool -g $NET"), map[string]string{"Current hardware settings/RX": n, "Current hardware settings/TX": n})
		b.bothWays()
	}
	b.refused("ethtool -G $NET rx 100000", "nvalid argument")
	return "64, 4096, 512"
}

// drops stops the guest's CPUs, so that nobody makes room in the ring, which
// has 512 descriptors.
func (b *ethtoolBench) drops() string {
	const n, ring = 3000, 512
	before := b.counters()
	port := b.register("GLPRT_UPRCL(0)")
	b.monitor("stop")
	f := b.datagram(b.mac, stationHost, 200)
	for range n {
		b.send(f)
	}
	for end := time.Now().Add(30 * time.Second); b.register("GLPRT_UPRCL(0)")-port != n && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
	}
	b.monitor("cont")
	// Received is what the ring had room for. The driver keeps a descriptor
	// free, and gives back eight at a time.
	var received uint64
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		now := b.counters()
		if received = now["rx_queue_packets"] - before["rx_queue_packets"]; received+now["rx_dropped"]-before["rx_dropped"] >= n {
			break
		}
	}
	if received > ring-1 || received < ring-16 {
		b.t.Errorf("%d frames received into a ring of %d", received, ring)
	}
	want := counters{}
	for i := range uint64(n) {
		b.frame(want, "rx", f, len(f), i < received)
	}
	for _, name := range []string{"rx_dropped", "rx_dropped.nic", "ip.rx.dropped"} {
		want[name] = n - received
	}
	b.wantCounters(before, want)
	b.bothWays()
	return fmt.Sprintf("%d frames, %d received, %d dropped and counted", n, received, n-received)
}

func (b *ethtoolBench) coalesce() string {
	wantSettings(b.t, b.ok("ethtool -c $NET"), map[string]string{"Adaptive RX": "on +TX: on", "rx-usecs": "50", "tx-usecs": "50"})
	b.ok("ethtool -C $NET adaptive-rx off adaptive-tx off rx-usecs 100 tx-usecs 60 rx-usecs-high 40")
	wantSettings(b.t, b.ok("ethtool -c $NET"), map[string]string{
		"Adaptive RX": "off +TX: off", "rx-usecs": "100", "tx-usecs": "60", "rx-usecs-high": "40"})
	// Registers count in 2 µs, and the rate of a vector in 4 µs, with a bit that
	// turns it on.
	for q := range 2 {
		v := b.register(fmt.Sprintf("QINT_RQCTL(%d)", q)) & 0x7ff
		for name, want := range map[string]uint32{"GLINT_ITR(0,%d)": 100 / 2, "GLINT_ITR(1,%d)": 60 / 2, "GLINT_RATE(%d)": 40/4 | 1<<6} {
			if name = fmt.Sprintf(name, v); b.register(name) != want {
				b.t.Errorf("%s: %#x, want %#x", name, b.register(name), want)
			}
		}
	}
	b.bothWays()
	b.ok("ethtool -C $NET rx-usecs 0 tx-usecs 0 rx-usecs-high 0")
	b.bothWays()
	b.ok("ethtool -C $NET rx-usecs 50 tx-usecs 50")
	b.ok("ethtool -C $NET adaptive-rx on adaptive-tx on")
	wantSettings(b.t, b.ok("ethtool -c $NET"), map[string]string{"Adaptive RX": "on +TX: on"})
	return "100 µs, 60 µs, at most one in 40 µs"
}

// pause: what is asked for is configured; nobody on the segment negotiates it.
func (b *ethtoolBench) pause() string {
	show := func(rx, tx string) {
		b.t.Helper()
		wantSettings(b.t, b.ok("ethtool -a $NET"), map[string]string{
			"Autonegotiate": "on", "RX": rx, "TX": tx, "RX negotiated": "off", "TX negotiated": "off"})
	}
	for _, c := range [][2]string{{"on", "on"}, {"on", "off"}, {"off", "on"}, {"off", "off"}} {
		b.ok(fmt.Sprintf("ethtool -A $NET rx %s tx %s", c[0], c[1]))
		b.quiet("await 'grep -q 1 /sys/class/net/$NET/carrier'")
		show(c[0], c[1])
	}
	b.refused("ethtool -A $NET autoneg off", "not supported")
	b.bothWays()

	// A pause frame ends in the MAC and is counted there.
	before := b.counters()
	f := append([]byte{0x01, 0x80, 0xc2, 0, 0, 1}, make([]byte, 54)...)
	copy(f[6:], []byte{2, 0, 0, 0, 0x77, 2, 0x88, 0x08, 0, 1, 0, 100})
	want := counters{}
	b.frame(want, "rx", f, len(f), false)
	want["link_xoff_rx.nic"]++
	b.send(f)
	g := slices.Clone(f)
	g[16], g[17] = 0, 0
	b.frame(want, "rx", g, len(g), false)
	want["link_xon_rx.nic"]++
	b.send(g)
	last := b.datagram(b.mac, stationHost, 60)
	b.frame(want, "rx", last, len(last), true)
	b.send(last)
	b.wantCounters(before, want)
	return "configured, negotiated: off"
}

func (b *ethtoolBench) fec() string {
	set := func(encoding, active string) {
		b.t.Helper()
		b.ok("ethtool --set-fec $NET encoding " + encoding)
		b.quiet("await 'grep -q 1 /sys/class/net/$NET/carrier'")
		wantSettings(b.t, b.ok("ethtool --show-fec $NET"), map[string]string{
			"Supported/Configured FEC encodings": "RS", "Active FEC encoding": active})
		b.bothWays()
	}
	set("rs", "RS")
	b.refused("ethtool --set-fec $NET encoding baser", "") // 100GBASE-CR4 has none
	set("off", "Off")
	set("auto", "RS")
	return "RS, off, auto: RS"
}

func (b *ethtoolBench) identify() string {
	b.ok("ethtool -p $NET 1")
	log := b.serveLog()
	blinks, shows := strings.Index(log, "port LED blinks"), strings.Index(log, "port LED shows the link")
	if blinks < 0 || shows < blinks {
		b.t.Errorf("the LED's end: %s", tail(log, 5))
	}
	return "the LED blinks, then shows the link"
}

func (b *ethtoolBench) serveLog() string {
	b.t.Helper()
	log, err := os.ReadFile(filepath.Join(b.e.outDir, "serve.log"))
	if err != nil {
		b.t.Fatal(err)
	}
	return string(log)
}

// registers compares the dump with what the card shows from outside. A kernel's
// dump begins with seven registers that differ by what the driver has set up.
func (b *ethtoolBench) registers() string {
	const file = "/tmp/regs"
	b.ok("ethtool -d $NET raw on > " + file)
	dump := b.file(file)
	names := []string{"PFGEN_STATE", "PRTGEN_STATUS", "QRX_CTRL(0)", "QINT_TQCTL(0)", "QINT_RQCTL(0)", "PFINT_OICR_ENA", "QRX_ITR(0)"}
	if len(dump) < 4*len(names) {
		b.t.Fatalf("a dump of %d bytes", len(dump))
	}
	for i, name := range names {
		got, want := binary.LittleEndian.Uint32(dump[4*i:]), b.register(name)
		if got != want || want == 0 && slices.Contains([]string{"QRX_CTRL(0)", "QINT_TQCTL(0)", "QINT_RQCTL(0)", "PFINT_OICR_ENA"}, name) {
			b.t.Errorf("%s: %#x in the dump, the card has %#x", name, got, want)
		}
	}
	return fmt.Sprintf("%d bytes", len(dump))
}

// file fetches a file of the guest.
func (b *ethtoolBench) file(path string) []byte {
	b.t.Helper()
	var out []byte
	for _, word := range strings.Fields(b.ok("od -An -v -tx1 " + path)) {
		v, err := strconv.ParseUint(word, 16, 8)
		if err != nil {
			b.t.Fatalf("od: %v", err)
		}
		out = append(out, byte(v))
	}
	return out
}

// eeprom reads the shadow RAM, whose words add up to what drivers expect.
func (b *ethtoolBench) eeprom() string {
	const size, correct, version = 64 << 10, 0xBABA, 2 * 0x18
	b.ok("ethtool -e $NET raw on offset 0 length 65536 > /tmp/eeprom")
	data := b.file("/tmp/eeprom")
	if len(data) != size {
		b.t.Fatalf("%d bytes, want %d", len(data), size)
	}
	var sum uint16
	for i := 0; i < size; i += 2 {
		sum += binary.LittleEndian.Uint16(data[i:])
	}
	if sum != correct {
		b.t.Errorf("the words add up to %#x, want %#x", sum, correct)
	}
	if v := binary.LittleEndian.Uint16(data[version:]); fmt.Sprintf("%x.%02x", v>>12, v&0xff) != strings.Fields(nvmVersion)[0] {
		b.t.Errorf("NVM version %#x, want %s", v, nvmVersion)
	}
	return "the checksum of 64 KiB is right"
}

// module is the cable: passive copper with QSFP28 ends.
func (b *ethtoolBench) module() string {
	serial := strings.ToUpper(strings.ReplaceAll(b.mac.String(), ":", ""))
	wantSettings(b.t, b.ok("ethtool -m $NET"), map[string]string{
		"Identifier": `0x11 \(QSFP28\)`, "Connector": `0x23 \(No separable connector\)`,
		"Vendor name": "vrnic", "Vendor PN": "QSFP28-CR4-1M", "Vendor SN": serial,
		"Length (Copper or Active cable)": "1 *m", "Revision Compliance": "SFF-8636 Rev 2.5.*",
	})
	b.ok("ethtool -m $NET raw on > /tmp/module")
	data := b.file("/tmp/module")
	if len(data) < 256 || data[0] != 0x11 || data[128] != 0x11 || !bytes.Contains(data, []byte(serial)) {
		b.t.Errorf("raw: %d bytes, %x", len(data), data)
	}
	for _, r := range [][2]int{{128, 191}, {192, 223}} {
		var sum byte
		for _, v := range data[r[0]:r[1]] {
			sum += v
		}
		if sum != data[r[1]] {
			b.t.Errorf("checksum at %d: %#x, want %#x", r[1], data[r[1]], sum)
		}
	}
	return "QSFP28, passive copper, 1 m"
}

// toeplitz is the hash that receive queues are chosen by, straight from its
// definition.
func toeplitz(key, data []byte) (hash uint32) {
	for i := range 8 * len(data) {
		if data[i/8]>>(7-i%8)&1 == 0 {
			continue
		}
		for k := range 32 { // the 32 bits of the key from bit i on
			at := i + k
			hash ^= uint32(key[at/8]>>(7-at%8)&1) << (31 - k)
		}
	}
	return hash
}

// rssTable is what "ethtool -x" shows. symmetric: source and destination become
// their exclusive or before they are hashed.
func (b *ethtoolBench) rssTable() (table []int, key []byte, symmetric bool) {
	b.t.Helper()
	text := b.ok("ethtool -x $NET")
	for _, m := range regexp.MustCompile(`(?m)^ *\d+: +([\d ]+)$`).FindAllStringSubmatch(text, -1) {
		for _, word := range strings.Fields(m[1]) {
			q, err := strconv.Atoi(word)
			if err != nil {
				b.t.Fatal(err)
			}
			table = append(table, q)
		}
	}
	m := regexp.MustCompile(`([0-9a-f]{2}:){51}[0-9a-f]{2}`).FindString(text)
	for _, word := range strings.Split(m, ":") {
		v, err := strconv.ParseUint(word, 16, 8)
		if err != nil {
			b.t.Fatalf("the key: %v\n%s", err, text)
		}
		key = append(key, byte(v))
	}
	if n := len(table); n == 0 || bits.OnesCount(uint(n)) != 1 {
		b.t.Fatalf("a table of %d entries\n%s", n, text)
	}
	return table, key, strings.Contains(text, "symmetric-xor: on")
}

// spread sends frames of many hosts and asserts the queue that each was
// received in, by what "ethtool -x" shows. It returns how many came to each.
func (b *ethtoolBench) spread() (queues [2]int) {
	b.t.Helper()
	table, key, symmetric := b.rssTable()
	to := netip.MustParseAddr(guestAddress).As4()
	before, want := b.counters(), counters{"rx_queue_0_packets": 0}
	for i := range 60 {
		from := [4]byte{192, 168, 77, byte(10 + 3*i)}
		f := b.datagram(b.mac, netip.AddrFrom4(from), 100+i)
		b.frame(want, "rx", f, len(f), true)
		tuple := append(from[:], to[:]...)
		if symmetric {
			for i := range from {
				tuple[i] ^= to[i]
				tuple[4+i] = tuple[i]
			}
		}
		q := table[int(toeplitz(key, tuple))%len(table)]
		want[fmt.Sprintf("rx_queue_%d_packets", q)]++
		want[fmt.Sprintf("rx_queue_%d_bytes", q)] += uint64(len(f) - b.uncounted())
		if q < len(queues) {
			queues[q]++
		}
		b.send(f)
	}
	b.wantCounters(before, want)
	return queues
}

func (b *ethtoolBench) hash() string {
	set := "ethtool -X $NET "
	if b.kernel == "debian-12" {
		// The ethtool of guests says in a byte whether the hash is to be
		// symmetric, and unless told, that it is to stay as it is. For this
		// kernel the byte is reserved and must be 0
		// (ethtool/ioctl.c:ethtool_set_rxfh).
		set += "xfrm none "
	}
	both := b.spread()
	if both[0] == 0 || both[1] == 0 {
		b.t.Errorf("frames of 60 hosts to queues: %v", both)
	}
	b.ok(set + "equal 1")
	if one := b.spread(); one != [2]int{60, 0} {
		b.t.Errorf("with one queue: %v", one)
	}
	b.ok(set + "weight 1 3")
	weighed := b.spread()
	// Without a period: that of an address would hide both of them where the
	// hash is symmetric.
	var key []string
	for i := range 52 {
		key = append(key, fmt.Sprintf("%02x", byte(i*i*7+37*i+11)))
	}
	b.ok(set + "hkey " + strings.Join(key, ":"))
	other := b.spread()
	if other[0] == 0 || other[1] == 0 {
		b.t.Errorf("frames of 60 hosts to queues, with another key: %v", other)
	}
	if _, got, _ := b.rssTable(); fmt.Sprintf("%x", got) != strings.Join(key, "") {
		b.t.Errorf("the key is %x", got)
	}
	b.ok(set + "default")
	b.spread()
	return fmt.Sprintf("queues of 60 hosts: %v, weighed %v, with another key %v", both, weighed, other)
}

// channels cannot change while an RDMA driver has the card's vectors.
func (b *ethtoolBench) channels() string {
	show := func(n string) {
		b.t.Helper()
		wantSettings(b.t, b.ok("ethtool -l $NET"), map[string]string{
			"Pre-set maximums/Combined": "2", "Pre-set maximums/Other": "1", "Current hardware settings/Combined": n,
			"Current hardware settings/RX": "0|n/a", "Current hardware settings/TX": "0|n/a", "Current hardware settings/Other": "1"})
	}
	show("2")
	b.refused("ethtool -L $NET combined 1", "busy")
	show("2")
	b.ok("rmmod irdma")
	b.ok("ethtool -L $NET combined 1")
	show("1")
	b.bothWays()
	if one := b.spread(); one != [2]int{60, 0} {
		b.t.Errorf("with one queue: %v", one)
	}
	b.refused("ethtool -L $NET combined 3", "")
	b.ok("ethtool -L $NET combined 2")
	show("2")
	both := b.spread()
	if both[0] == 0 || both[1] == 0 {
		b.t.Errorf("frames of 60 hosts to queues: %v", both)
	}
	b.ok("modprobe irdma")
	b.quiet("await 'ibv_devinfo | grep -q PORT_ACTIVE'")
	b.bothWays()
	return fmt.Sprintf("irdma bound: refused; else 1, 2: %v", both)
}

func (b *ethtoolBench) mtu() string {
	if got := settings(strings.ReplaceAll(b.ok("ip -d link show dev $NET"), " maxmtu ", "\nmaxmtu: "))["maxmtu"]; !strings.HasPrefix(got, "9702") {
		b.t.Errorf("maxmtu %q, want 9702", got)
	}
	for _, mtu := range []int{9702, 9000, 68, 1500} {
		b.ok(fmt.Sprintf("ip link set dev $NET mtu %d; peer", mtu))
		size := mtu + 14
		b.station.take()
		before := b.counters()
		b.quiet(fmt.Sprintf("%sping -c 3 -s %d %s", ping, size-42, stationAddress))
		want, frames := b.transmitted(3)
		for _, f := range frames {
			if sent(f) != size {
				b.t.Errorf("MTU %d: a frame of %d bytes, want %d", mtu, sent(f), size)
			}
		}
		received, _ := b.receiveAll(1, max(size, 60))
		for name, v := range received {
			want[name] += v
		}
		b.wantCounters(before, want)
	}
	b.refused("ip link set dev $NET mtu 9703", "mtu greater than device maximum")
	return "68 to 9702"
}

// carrier: the netdev, the RDMA port and the driver follow the medium.
func (b *ethtoolBench) carrier() string {
	var slowest time.Duration
	const rounds = 3
	for range rounds {
		begin := time.Now()
		b.ctl("link", "down")
		b.quiet(`await '[ $(cat /sys/class/net/$NET/operstate) = down ]' && await 'ibv_devinfo | grep -q PORT_DOWN'`)
		slowest = max(slowest, time.Since(begin))
		wantSettings(b.t, b.ok("ethtool $NET"), map[string]string{
			"Speed": "Unknown!", "Duplex": `Unknown! \(255\)`, "Auto-negotiation": "off", "Link detected": "no.*"})
		if text := b.ok("rdma link; ip -br link show dev $NET"); !strings.Contains(text, "state DOWN physical_state DISABLED") || !strings.Contains(text, " DOWN ") {
			b.t.Errorf("without a carrier: %s", text)
		}
		if row := b.testRows("online")["Link test   (on/offline)"]; row != "2" {
			b.t.Errorf("the test of a link that is down says %q, want 2", row)
		}
		// Nothing passes, and nothing of it is counted but by kernels whose
		// queue of a netdev without a carrier counts what it drops, which they
		// do since 6.11 (sch_generic.c:noop_enqueue).
		before, want := b.counters(), counters{}
		if b.kernel != "debian-12" {
			want["ip.tx.dropped"] = 2
		}
		b.station.take()
		b.try("command ping -q -c 2 -W 0.1 -i 0.01 " + stationAddress)
		b.send(b.datagram(b.mac, stationHost, 60))
		b.taken()

		begin = time.Now()
		b.ctl("link", "up")
		b.quiet(`await '[ $(cat /sys/class/net/$NET/operstate) = up ]' && await 'ibv_devinfo | grep -q PORT_ACTIVE'`)
		slowest = max(slowest, time.Since(begin))
		if n := len(b.station.take()); n != 0 {
			b.t.Errorf("%d frames have come over a link that was down", n)
		}
		b.wantCounters(before, want)
		wantSettings(b.t, b.ok("ethtool $NET"), map[string]string{"Speed": "100000Mb/s", "Duplex": "Full", "Auto-negotiation": "on", "Link detected": "yes"})
		if text := b.ok("rdma link; ip -br link show dev $NET"); !strings.Contains(text, "state ACTIVE physical_state LINK_UP") || !strings.Contains(text, " UP ") {
			b.t.Errorf("with a carrier: %s", text)
		}
		b.wantRates("100000")
		b.bothWays()
	}
	return fmt.Sprintf("%d times, followed within %.1f s", rounds, slowest.Seconds())
}

// testRows runs "ethtool -t" and returns what each row says, "0" if it passes.
func (b *ethtoolBench) testRows(kind string) map[string]string {
	b.t.Helper()
	text, status := b.try("ethtool -t $NET " + kind)
	rows, passed := map[string]string{}, true
	for _, m := range regexp.MustCompile(`(?m)^(\w.*line\))\s+(\d+)$`).FindAllStringSubmatch(text, -1) {
		rows[m[1]] = m[2]
		passed = passed && m[2] == "0"
	}
	if len(rows) != 5 || (status == 0) != passed || strings.Contains(text, "result is PASS") != passed {
		b.t.Fatalf("ethtool -t: status %d\n%s", status, text)
	}
	return rows
}

func (b *ethtoolBench) selftest() string {
	for row, result := range b.testRows("online") {
		if result != "0" {
			b.t.Errorf("online: %s: %s", row, result)
		}
	}
	// The driver gives its interrupt 1 ms, in which both of the guest's CPUs
	// must have run, and as long to each of the frames that its MAC is to
	// return (ice_ethtool.c:ice_intr_test, ice_diag_send): on a busy machine
	// not at the first attempt. That few frames have returned is its code 10,
	// none 9. All have left, late or not.
	const frames = 32
	before := b.register("GLPRT_BPTCL(0)")
	var rows map[string]string
	attempts := uint32(0)
	for late := true; late && attempts < 20; attempts++ {
		rows = b.testRows("offline")
		late = rows["Interrupt test (offline)"] != "0" || rows["Loopback test  (offline)"] == "10"
	}
	if n := b.register("GLPRT_BPTCL(0)") - before; n != frames*attempts {
		b.t.Errorf("%d frames of loopback tests in %d attempts, want %d each", n, attempts, frames)
	}
	for row, result := range rows {
		if result != "0" {
			b.t.Errorf("offline: %s: %s, in %d attempts", row, result, attempts)
		}
	}
	b.quiet("await 'ibv_devinfo | grep -q PORT_ACTIVE'")
	b.bothWays()
	return fmt.Sprintf("5 rows pass; the card is in time in attempt %d", attempts)
}

// TestToeplitz: of the vectors that are published with the hash, one without
// ports.
func TestToeplitz(t *testing.T) {
	key := []byte{
		0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
		0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
	}
	if h := toeplitz(key, []byte{66, 9, 149, 187, 161, 142, 100, 80}); h != 0x323e8fc2 {
		t.Errorf("%#x", h)
	}
}

func TestSettings(t *testing.T) {
	wantSettings(t, `Settings for eth0:
	Supported link modes:   100000baseCR4/Full
	                        50000baseCR2/Full
	Speed: 100000Mb/s
expansion-rom-version: 
Pre-set maximums:
RX:			8160
Current hardware settings:
RX:			512
`, map[string]string{"Supported link modes": "100000baseCR4/Full 50000baseCR2/Full", "Speed": "100000Mb/s", "expansion-rom-version": "",
		"Pre-set maximums/RX": "8160", "Current hardware settings/RX": "512"})
}
