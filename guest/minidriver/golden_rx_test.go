// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/vrnic/vrnic/devmodel/frame/frametest"
)

// microsoftKey is the key of the published vectors of receive side scaling.
const microsoftKey = "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa"

// toeplitz is the hash as its definition has it, bit by bit.
func toeplitz(key, input []byte) (h uint32) {
	for n := range 8 * len(input) {
		if input[n/8]>>(7-n%8)&1 == 0 {
			continue
		}
		for b := range 32 {
			if at := n + b; key[at/8]>>(7-at%8)&1 != 0 {
				h ^= 1 << (31 - b)
			}
		}
	}
	return h
}

// tuple is what is hashed of a frame with its IP header at ip and ports at l4;
// l4 0: none.
func tuple(f []byte, ip, l4 int) []byte {
	addresses := f[ip+12 : ip+20]
	if f[ip]>>4 == 6 {
		addresses = f[ip+8 : ip+40]
	}
	input := append([]byte(nil), addresses...)
	if l4 != 0 {
		input = append(input, f[l4:l4+4]...)
	}
	return input
}

// What a received frame is, in ptype, checksum status and hash, whatever it is.
func TestGoldenReceive(t *testing.T) {
	i, w, complaints := wired(t, Linux73(), Options{})
	key, _ := hex.DecodeString(microsoftKey)
	must(t, i.SetRSSKey(key))
	must(t, i.AddVLAN(100))
	const ownPort = 4790
	must(t, i.OpenTunnelPort(0, ownPort))
	eth := func(t layers.EthernetType) *layers.Ethernet { return etherLayer(i, false, t) }
	tcp, udp, sctp := &layers.TCP{SrcPort: 1, DstPort: 2, ACK: true}, &layers.UDP{SrcPort: 3, DstPort: 4}, &layers.SCTP{SrcPort: 5, DstPort: 6}
	tag := &layers.Dot1Q{Priority: 3, VLANIdentifier: 100, Type: 0x800}
	fragment := ipv4Layer(protoUDP)
	fragment.Flags = layers.IPv4MoreFragments
	vxlan := func(outer layers.EthernetType, ip gopacket.SerializableLayer, port layers.UDPPort) []byte {
		return frametest.Build(t, eth(outer), ip, &layers.UDP{SrcPort: 9, DstPort: port}, &layers.VXLAN{ValidIDFlag: true, VNI: 5}, eth(0x800), ipv4Layer(protoTCP), tcp, pattern(99))
	}
	noSum := vxlan(0x800, ipv4Layer(protoUDP), ownPort)
	clear(noSum[40:42])
	udpNoSum := frametest.Build(t, eth(0x800), ipv4Layer(protoUDP), udp, pattern(30))
	clear(udpNoSum[40:42])
	tagged := frametest.Build(t, eth(0x8100), tag, ipv4Layer(protoTCP), tcp, pattern(80))
	const ok = rxL3L4P
	for _, c := range []struct {
		name    string
		f       []byte
		change  []int // bytes to change
		ptype   uint16
		status0 uint16
		status1 uint16
		ip, l4  int // of the hash; ip 0: none
		strip   bool
	}{
		{name: "ARP", f: frametest.Build(t, eth(0x806), pattern(46)), ptype: 11},
		{name: "LLDP", f: frametest.Build(t, eth(0x9999), pattern(46)), ptype: 1},
		{name: "TCP", f: frametest.Build(t, eth(0x800), ipv4Layer(protoTCP), tcp, pattern(100)), ptype: 26, status0: ok, ip: 14, l4: 34},
		{name: "TCP, IP header wrong", f: frametest.Build(t, eth(0x800), ipv4Layer(protoTCP), tcp, pattern(100)), change: []int{22}, ptype: 26, status0: ok | rxIPE, ip: 14, l4: 34},
		{name: "TCP, checksum wrong", f: frametest.Build(t, eth(0x800), ipv4Layer(protoTCP), tcp, pattern(100)), change: []int{100}, ptype: 26, status0: ok | rxL4E, ip: 14, l4: 34},
		{name: "TCP, both wrong", f: frametest.Build(t, eth(0x800), ipv4Layer(protoTCP), tcp, pattern(100)), change: []int{22, 100}, ptype: 26, status0: ok | rxIPE | rxL4E, ip: 14, l4: 34},
		{name: "TCP, odd length", f: frametest.Build(t, eth(0x800), ipv4Layer(protoTCP), tcp, pattern(101)), ptype: 26, status0: ok, ip: 14, l4: 34},
		{name: "TCP with padding", f: frametest.Build(t, eth(0x800), ipv4Layer(protoTCP), tcp), ptype: 26, status0: ok, ip: 14, l4: 34},
		{name: "UDP", f: frametest.Build(t, eth(0x800), ipv4Layer(protoUDP), udp, pattern(100)), ptype: 24, status0: ok, ip: 14, l4: 34},
		{name: "UDP, checksum wrong", f: frametest.Build(t, eth(0x800), ipv4Layer(protoUDP), udp, pattern(100)), change: []int{60}, ptype: 24, status0: ok | rxL4E, ip: 14, l4: 34},
		{name: "UDP without a checksum", f: udpNoSum, ptype: 24, status0: ok, ip: 14, l4: 34},
		{name: "SCTP", f: frametest.Build(t, eth(0x800), ipv4Layer(protoSCTP), sctp, pattern(100)), ptype: 27, status0: ok, ip: 14, l4: 34},
		{name: "SCTP, checksum wrong", f: frametest.Build(t, eth(0x800), ipv4Layer(protoSCTP), sctp, pattern(100)), change: []int{60}, ptype: 27, status0: ok | rxL4E, ip: 14, l4: 34},
		{name: "ICMP", f: frametest.Build(t, eth(0x800), ipv4Layer(1), &layers.ICMPv4{TypeCode: 0x800}, pattern(56)), ptype: 28, status0: ok, ip: 14},
		{name: "another protocol", f: frametest.Build(t, eth(0x800), ipv4Layer(89), pattern(56)), ptype: 23, status0: ok, ip: 14},
		{name: "fragment", f: frametest.Build(t, eth(0x800), fragment, udp, pattern(56)), ptype: 22, status0: ok, ip: 14},
		{name: "TCP over IPv6", f: frametest.Build(t, eth(0x86dd), ipv6Layer(protoTCP), tcp, pattern(100)), ptype: 92, status0: ok, ip: 14, l4: 54},
		{name: "TCP over IPv6, checksum wrong", f: frametest.Build(t, eth(0x86dd), ipv6Layer(protoTCP), tcp, pattern(100)), change: []int{22}, ptype: 92, status0: ok | rxL4E, ip: 14, l4: 54},
		{name: "UDP over IPv6", f: frametest.Build(t, eth(0x86dd), ipv6Layer(protoUDP), udp, pattern(100)), ptype: 90, status0: ok, ip: 14, l4: 54},
		{name: "SCTP over IPv6", f: frametest.Build(t, eth(0x86dd), ipv6Layer(protoSCTP), sctp, pattern(100)), ptype: 93, status0: ok, ip: 14, l4: 54},
		{name: "ICMPv6", f: frametest.Build(t, eth(0x86dd), ipv6Layer(58), &layers.ICMPv6{TypeCode: 0x8000}, pattern(56)), ptype: 94, status0: ok, ip: 14},
		{name: "IPv6 fragment", f: frametest.Build(t, eth(0x86dd), ipv6Layer(44), gopacket.Payload{17, 0, 0, 1, 0, 0, 0, 9}, pattern(56)), ptype: 88, status0: ok, ip: 14},
		{name: "tag stripped", f: tagged, ptype: 26, status0: ok | rxL2TAG1P, ip: 18, l4: 38, strip: true},
		{name: "GRE", f: frametest.Build(t, eth(0x800), ipv4Layer(protoGRE), &layers.GRE{Protocol: 0x86dd}, ipv6Layer(protoUDP), udp, pattern(99)), ptype: 53, status0: ok, status1: rxNAT, ip: 38, l4: 78},
		{name: "GRE, outer header wrong", f: frametest.Build(t, eth(0x800), ipv4Layer(protoGRE), &layers.GRE{Protocol: 0x86dd}, ipv6Layer(protoUDP), udp, pattern(99)), change: []int{22}, ptype: 53, status0: ok | rxEIPE, status1: rxNAT, ip: 38, l4: 78},
		{name: "NVGRE", f: frametest.Build(t, eth(0x86dd), ipv6Layer(protoGRE), &layers.GRE{Protocol: 0x6558, KeyPresent: true, Key: 0x500}, eth(0x800), ipv4Layer(protoSCTP), sctp, pattern(100)), ptype: 130, status0: ok, status1: rxNAT, ip: 76, l4: 96},
		{name: "IP in IP", f: frametest.Build(t, eth(0x800), ipv4Layer(protoIPIP), ipv4Layer(protoTCP), tcp, pattern(99)), ptype: 33, status0: ok, ip: 34, l4: 54},
		{name: "IP in IP, inner header and TCP wrong", f: frametest.Build(t, eth(0x800), ipv4Layer(protoIPIP), ipv4Layer(protoTCP), tcp, pattern(99)), change: []int{42, 90}, ptype: 33, status0: ok | rxIPE | rxL4E, ip: 34, l4: 54},
		{name: "IPv6 in IPv6", f: frametest.Build(t, eth(0x86dd), ipv6Layer(protoIPv6), ipv6Layer(protoTCP), tcp, pattern(99)), ptype: 106, status0: ok, ip: 54, l4: 94},
		{name: "VXLAN", f: vxlan(0x800, ipv4Layer(protoUDP), ownPort), ptype: 63, status0: ok, status1: rxNAT, ip: 64, l4: 84},
		{name: "VXLAN over IPv6", f: vxlan(0x86dd, ipv6Layer(protoUDP), ownPort), ptype: 129, status0: ok, status1: rxNAT, ip: 84, l4: 104},
		{name: "VXLAN, outer UDP wrong", f: vxlan(0x800, ipv4Layer(protoUDP), ownPort), change: []int{34}, ptype: 63, status0: ok | rxEUDPE, status1: rxNAT, ip: 64, l4: 84},
		{name: "VXLAN without an outer checksum, payload wrong", f: noSum, change: []int{120}, ptype: 63, status0: ok | rxL4E, status1: rxNAT, ip: 64, l4: 84},
		{name: "VXLAN to another port", f: vxlan(0x800, ipv4Layer(protoUDP), ownPort+1), ptype: 24, status0: ok, ip: 14, l4: 34},
	} {
		f := bytes.Clone(c.f)
		for _, at := range c.change {
			f[at] ^= 1
		}
		w.inject(f)
		got := collect(t, i, 1)[0]
		want, status := f, c.status0|rxDD|rxEOF
		if c.strip {
			want = append(bytes.Clone(f[:12]), f[16:]...)
			if got.Tag1 != be.Uint16(f[14:]) {
				t.Errorf("%s: l2tag1 %#x", c.name, got.Tag1)
			}
		}
		hash := uint32(0)
		if c.ip != 0 {
			hash = toeplitz(key, tuple(f, c.ip, c.l4))
			status |= rxRSSValid
		}
		sameFrame(t, c.name, got.Data, want)
		if got.PType != c.ptype || got.Status0 != status || got.Status1 != c.status1 || got.Hash != hash {
			t.Errorf("%s: ptype %d, want %d; status %#x %#x, want %#x %#x; hash %#x, want %#x", c.name, got.PType, c.ptype, got.Status0, got.Status1, status, c.status1, got.Hash, hash)
		}
	}
	// Nobody but the driver says which port is a tunnel's.
	must(t, i.CloseTunnelPort(0))
	w.inject(vxlan(0x800, ipv4Layer(protoUDP), ownPort))
	if got := collect(t, i, 1)[0]; got.PType != 24 {
		t.Errorf("VXLAN to a port that is a tunnel's no more: ptype %d", got.PType)
	}
	must(t, i.Remove())
	quiet(t, complaints)
}

// The published vectors: the hash in the descriptor, and the queue that the table
// names for it.
func TestGoldenRSS(t *testing.T) {
	i, w, complaints := wired(t, Linux61(), Options{CPUs: 4})
	if len(i.queues) != 4 {
		t.Fatalf("%d queues", len(i.queues))
	}
	key, _ := hex.DecodeString(microsoftKey)
	must(t, i.SetRSSKey(key))
	lut := make([]byte, i.Caps.RSSTable)
	for n := range lut {
		lut[n] = byte((n*7 + n/64) % 4)
	}
	must(t, i.SetRSSTable(lut))
	for _, v := range []struct {
		src, dst    string
		sp, dp      layers.TCPPort
		ports, addr uint32
	}{
		{"66.9.149.187", "161.142.100.80", 2794, 1766, 0x51ccc178, 0x323e8fc2},
		{"199.92.111.2", "65.69.140.83", 14230, 4739, 0xc626b0ea, 0xd718262a},
		{"24.19.198.95", "12.22.207.184", 12898, 38024, 0x5c2b394a, 0xd2d0a5de},
		{"38.27.205.30", "209.142.163.6", 48228, 2217, 0xafc7327f, 0x82989176},
		{"153.39.163.191", "202.188.127.2", 44251, 1303, 0x10e828a2, 0x5d1809c5},
		{"3ffe:2501:200:1fff::7", "3ffe:2501:200:3::1", 2794, 1766, 0x40207d3d, 0x2cc18cd5},
		{"3ffe:501:8::260:97ff:fe40:efab", "ff02::1", 14230, 4739, 0xdde51bbf, 0x0f0c461c},
		{"3ffe:1900:4545:3:200:f8ff:fe21:67cf", "fe80::200:f8ff:fe21:67cf", 44251, 38024, 0x02d1feef, 0x4b61e985},
	} {
		make := func(proto layers.IPProtocol, l gopacket.SerializableLayer) []byte {
			src, dst := net.ParseIP(v.src), net.ParseIP(v.dst)
			if src4 := src.To4(); src4 != nil {
				ip := ipv4Layer(proto)
				ip.SrcIP, ip.DstIP = src4, dst.To4()
				return frametest.Build(t, etherLayer(i, false, 0x800), ip, l, pattern(20))
			}
			ip := ipv6Layer(proto)
			ip.SrcIP, ip.DstIP = src, dst
			return frametest.Build(t, etherLayer(i, false, 0x86dd), ip, l, pattern(20))
		}
		for _, x := range []struct {
			f    []byte
			want uint32
		}{
			{make(protoTCP, &layers.TCP{SrcPort: v.sp, DstPort: v.dp}), v.ports},
			{make(protoUDP, &layers.UDP{SrcPort: layers.UDPPort(v.sp), DstPort: layers.UDPPort(v.dp)}), v.ports},
			{make(89, pattern(8)), v.addr},
		} {
			w.inject(x.f)
			got := collect(t, i, 1)[0]
			if queue := int(lut[x.want%uint32(len(lut))]); got.Hash != x.want || got.Status0&rxRSSValid == 0 || got.Queue != queue {
				t.Errorf("%s -> %s: hash %#x to queue %d, want %#x to %d", v.src, v.dst, got.Hash, got.Queue, x.want, queue)
			}
		}
	}
	// Many flows spread as the table says, and stay in order within each.
	const flows, each = 64, 4
	sent := make(map[uint32]int)
	for n := range flows * each {
		f := frametest.Build(t, etherLayer(i, false, 0x800), ipv4Layer(protoUDP), &layers.UDP{SrcPort: layers.UDPPort(1000 + n%flows), DstPort: 9}, pattern(30+n/flows))
		w.inject(f)
		sent[toeplitz(key, tuple(f, 14, 34))]++
	}
	next := make(map[uint32]int)
	used := make(map[int]int)
	for _, f := range collect(t, i, flows*each) {
		if want := int(lut[f.Hash%uint32(len(lut))]); f.Queue != want {
			t.Errorf("hash %#x to queue %d, want %d", f.Hash, f.Queue, want)
		}
		if n := len(f.Data) - 42 - 30; n != next[f.Hash] && len(f.Data) > 60 {
			t.Errorf("flow %#x: frame %d after %d", f.Hash, n, next[f.Hash])
		}
		next[f.Hash]++
		used[f.Queue]++
	}
	for h, n := range sent {
		if next[h] != n {
			t.Errorf("%d frames with hash %#x, want %d", next[h], h, n)
		}
	}
	if len(used) != 4 {
		t.Errorf("queues used: %v", used)
	}
	// RXHASH off is a table of zeros (ice_lib.c:ice_vsi_manage_rss_lut).
	must(t, i.SetRSSTable(make([]byte, len(lut))))
	for n := range 16 {
		w.inject(frametest.Build(t, etherLayer(i, false, 0x800), ipv4Layer(protoUDP), &layers.UDP{SrcPort: layers.UDPPort(n), DstPort: 9}, pattern(30)))
	}
	for _, f := range collect(t, i, 16) {
		if f.Queue != 0 {
			t.Errorf("queue %d with a table of zeros", f.Queue)
		}
	}
	must(t, i.Remove())
	quiet(t, complaints)
}

// Frames of every length around those at which the number of buffers changes, up
// to the largest MTU, with what does not fit the queue dropped as a whole.
func TestGoldenMultiBuffer(t *testing.T) {
	for _, k := range Kernels() {
		for _, mtu := range []int{defaultMTU, 9000, maxMTU} {
			t.Run(fmt.Sprintf("%s MTU %d", k.Name, mtu), func(t *testing.T) {
				i, w, complaints := wired(t, k, Options{MTU: mtu, CPUs: 1})
				g := i.queues[0].geometry
				vsi := i.main.num
				oversize := uint32(0)
				for _, n := range []int{60, 61, g.buf - 1, g.buf, g.buf + 1, 2 * g.buf, 2*g.buf + 1, 3*g.buf - 1, mtu + 14, g.max - 1, g.max, g.max + 1, maxMTU + 14, maxFrame - 4, maxFrame - 3} {
					if n > maxFrame {
						continue
					}
					f := frametest.Build(t, etherLayer(i, false, 0x88b6), pattern(n-14))
					w.inject(f)
					after := frametest.Build(t, etherLayer(i, false, 0x88b6), gopacket.Payload("after it, one that shows that it is over with the other"))
					w.inject(after)
					want := [][]byte{f, after}
					switch {
					case n > maxFrame-4: // the MAC's limit
						oversize++
						want = want[1:]
					case n > g.max:
						want = want[1:]
					}
					for _, got := range collect(t, i, len(want)) {
						sameFrame(t, fmt.Sprintf("%d bytes", n), got.Data, want[0])
						if buffers := (len(want[0]) + g.buf - 1) / g.buf; got.Buffers != buffers {
							t.Errorf("%d bytes in %d buffers, want %d", n, got.Buffers, buffers)
						}
						want = want[1:]
					}
				}
				if got := i.F.Read32(GLPRT_ROC); got != oversize {
					t.Errorf("GLPRT_ROC = %d, want %d", got, oversize)
				}
				if got := i.F.Read32(GLV_RDPC(int(vsi))); got != 0 {
					t.Errorf("GLV_RDPC = %d", got)
				}
				must(t, i.Remove())
				quiet(t, complaints)
			})
		}
	}
}

// Without descriptors frames are dropped and counted, whole ones and such as
// would need more than there are; what comes after buffers were posted passes.
func TestGoldenNoDescriptors(t *testing.T) {
	i, w, complaints := wired(t, Linux73(), Options{CPUs: 1})
	q := i.queues[0]
	f := func(n int) []byte { return frametest.Build(t, etherLayer(i, false, 0x88b6), pattern(n)) }
	const posted, more = ringLen - 8, 10
	for n := range posted - 1 {
		w.inject(f(46 + n%1000))
	}
	counted := func(what string, want uint32) {
		t.Helper()
		must(t, i.F.poll(what, func() bool { return i.F.Read32(PRTRPB_RDPC) >= want }))
		if vsi, port := i.F.Read32(GLV_RDPC(int(i.main.num))), i.F.Read32(PRTRPB_RDPC); vsi != want || port != want {
			t.Errorf("%s: GLV_RDPC = %d, PRTRPB_RDPC = %d, want %d", what, vsi, port, want)
		}
	}
	w.inject(f(q.geometry.buf)) // needs two, one is left
	counted("a frame of two buffers", 1)
	w.inject(f(1000))
	for range more {
		w.inject(f(100))
	}
	counted("frames without a buffer", 1+more)
	if s := q.rx.Load64((posted)*rxDescSize + 8); s&rxDD != 0 {
		t.Errorf("the device used a descriptor at the tail: %#x", s)
	}
	for n, got := range collect(t, i, posted) {
		want := f(46 + n%1000)
		if n == posted-1 {
			want = f(1000)
		}
		sameFrame(t, fmt.Sprintf("frame %d", n), got.Data, want)
	}
	i.F.flush() // the tail, before the frame comes by another way
	w.inject(f(q.geometry.buf))
	sameFrame(t, "afterwards", collect(t, i, 1)[0].Data, f(q.geometry.buf))
	counted("afterwards", 1+more)
	must(t, i.Remove())
	quiet(t, complaints)
}

// A queue that is driven by its interrupt alone, as NAPI does: disabled by the
// message, polled until it is empty, enabled again with CLEARPBA. Frames come
// all the while, and between the last look and the write; none is left lying.
func TestGoldenInterrupts(t *testing.T) {
	i, w, complaints := wired(t, Linux73(), Options{CPUs: 1})
	q, v := i.queues[0], i.queues[0].vector
	const frames, outstanding = 5000, 64
	credit := make(chan struct{}, outstanding)
	for range outstanding {
		credit <- struct{}{}
	}
	f := frametest.Build(t, etherLayer(i, false, 0x88b6), pattern(100))
	go func() {
		for range frames {
			<-credit
			if _, err := w.conn.WriteTo(f, w.to); err != nil {
				return
			}
		}
	}()
	wbOnITR := uint32(dynCtlITRNone | dynCtlINTENAMask | 1<<30)
	got, interrupts := 0, 0
	for got < frames {
		if _, err := i.F.wait(v); err != nil {
			t.Fatalf("%d of %d frames, %d interrupts: %v", got, frames, interrupts, err)
		}
		interrupts++
		// While it polls, the driver has no interrupt (ice_set_wb_on_itr).
		if interrupts%3 == 0 {
			i.F.Write32(GLINT_DYN_CTL(v.Index), wbOnITR)
		}
		for {
			_, ok, err := i.Receive(q)
			must(t, err)
			if !ok {
				break
			}
			got++
			credit <- struct{}{}
		}
		i.rearm(v)
	}
	i.F.flush()
	for v.Take() > 0 { // of frames that were seen before
		i.rearm(v)
		i.F.flush()
	}
	// INTENA_MSK leaves the vector as it is: enabled, now.
	i.F.Write32(GLINT_DYN_CTL(v.Index), wbOnITR)
	w.inject(f)
	if _, err := i.F.wait(v); err != nil {
		t.Fatalf("after INTENA_MSK: %v", err)
	}
	collect(t, i, 1)
	// The next is kept until the vector is enabled, by a software interrupt's
	// write (ice_base.c:ice_trigger_sw_intr), and the cause and the trigger are
	// one message.
	w.inject(f)
	collect(t, i, 1)
	if n := v.Take(); n != 0 {
		t.Errorf("%d messages of a vector that is not enabled", n)
	}
	i.F.Write32(GLINT_DYN_CTL(v.Index), dynCtlITRNone|dynCtlSWINTTRIG|dynCtlINTENA)
	if n, err := i.F.wait(v); err != nil || n != 1 {
		t.Errorf("%d messages, %v", n, err)
	}
	// Enabled once more there is nothing; the software interrupt alone is one.
	i.rearm(v)
	i.F.flush()
	if n := v.Take(); n != 0 {
		t.Errorf("%d messages without a cause", n)
	}
	i.F.Write32(GLINT_DYN_CTL(v.Index), dynCtlITRNone|dynCtlSWINTTRIG|dynCtlINTENA)
	if n, err := i.F.wait(v); err != nil || n != 1 {
		t.Errorf("software interrupt: %d messages, %v", n, err)
	}
	must(t, i.Remove())
	quiet(t, complaints)
}

// Descriptors of frames in several buffers are posted anew: when the ring has come
// round they are not taken for frames that are there.
func TestReceiveRingComesRound(t *testing.T) {
	i, w, complaints := wired(t, Linux73(), Options{MTU: 9000, CPUs: 1})
	f := frametest.Build(t, etherLayer(i, false, 0x88b6), pattern(9000))
	for n := range ringLen {
		w.inject(f)
		got := collect(t, i, 1)[0]
		sameFrame(t, "long", got.Data, f)
		if got.Buffers < 2 {
			t.Fatalf("in %d buffers", got.Buffers)
		}
		if x, ok, err := i.Receive(i.queues[0]); ok || err != nil {
			t.Fatalf("behind frame %d another of %d bytes, %v", n, len(x.Data), err)
		}
	}
	must(t, i.Remove())
	quiet(t, complaints)
}
