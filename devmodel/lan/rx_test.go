// SPDX-License-Identifier: Apache-2.0

package lan

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/vrnic/vrnic/devmodel/frame"
	"github.com/vrnic/vrnic/devmodel/frame/frametest"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// rxConfig is what a test wants of a receive queue's context.
type rxConfig struct {
	base              uint64
	n, dbuf, hbuf     int
	dtype, split, max int
	keepCRC, tag2     bool
	rxdid             int // 0: 2
}

// pack makes the context as ice_write_rxq_ctx does.
func (c *rxConfig) pack() (b [32]byte) {
	set := func(lsb int, v uint64) {
		for ; v != 0; lsb, v = lsb+1, v>>1 {
			b[lsb/8] |= byte(v&1) << (lsb % 8)
		}
	}
	bit := func(is bool) uint64 {
		if is {
			return 1
		}
		return 0
	}
	set(32, c.base>>7)
	set(89, uint64(c.n))
	set(102, uint64(c.dbuf/128))
	set(109, uint64(c.hbuf/64))
	set(114, uint64(c.dtype))
	set(116, 1)
	set(117, bit(!c.keepCRC))
	set(119, bit(!c.tag2))
	set(120, uint64(c.split))
	set(174, uint64(c.max))
	return b
}

// rxContext writes the context of queue q.
func (f *fixture) rxContext(q int, c rxConfig) {
	b := c.pack()
	for i := range 8 {
		f.Write32(uint32(0x280000+i*0x2000+4*q), binary.LittleEndian.Uint32(b[4*i:]))
	}
	if c.rxdid == 0 {
		c.rxdid = rxdidNIC
	}
	f.Write32(uint32(0x480000+4*q), uint32(c.rxdid))
}

func TestReceive(t *testing.T) {
	tcp := &layers.TCP{SrcPort: 1, DstPort: 2, ACK: true}
	udp := &layers.UDP{SrcPort: 3, DstPort: 4}
	tag := func(next layers.EthernetType) *layers.Dot1Q {
		return &layers.Dot1Q{Priority: 2, VLANIdentifier: 100, Type: next}
	}
	good := frametest.Build(t, ethernet(0x800), ip4(6), tcp, payload(100))
	badSum := bytes.Clone(good)
	badSum[len(badSum)-1]++
	badIP := bytes.Clone(good)
	badIP[22]--
	tagged := frametest.Build(t, ethernet(0x8100), tag(0x800), ip4(17), udp, payload(50))
	untagged := frametest.Build(t, ethernet(0x800), ip4(17), udp, payload(50))
	fcs := frame.FCS(good)
	const ok = statusDD | statusEOF | statusL3L4P
	for _, c := range []struct {
		name   string
		f      []byte
		queue  rxConfig
		strip  Strip
		ptype  uint64
		status uint64
		want   []byte
		tag1   uint64
		tag2   uint64
	}{
		{name: "TCP", f: good, ptype: 26, status: ok, want: good},
		{name: "checksum of TCP", f: badSum, ptype: 26, status: ok | statusL4E, want: badSum},
		{name: "checksum of IP", f: badIP, ptype: 26, status: ok | statusIPE, want: badIP},
		{name: "TCP over IPv6", f: frametest.Build(t, ethernet(0x86dd), ip6(6), tcp), ptype: 92, status: ok},
		{name: "ARP", f: frametest.Build(t, ethernet(0x806), payload(28)), ptype: 11, status: statusDD | statusEOF},
		{name: "with FCS", f: good, queue: rxConfig{keepCRC: true}, ptype: 26, status: ok, want: append(bytes.Clone(good), fcs[:]...)},
		{name: "tag left", f: tagged, ptype: 24, status: ok, want: tagged},
		{name: "tag stripped", f: tagged, strip: StripInner, ptype: 24, status: ok | statusL2TAG1P, want: untagged, tag1: 0x4064},
		{name: "outer tag stripped", f: tagged, strip: StripOuter, queue: rxConfig{tag2: true}, ptype: 24, status: ok, want: untagged, tag2: 0x4064},
		{name: "no tag to strip", f: good, strip: StripInner, ptype: 26, status: ok, want: good},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newCard(t)
			s := testSteering()
			s.VSIs[theVSI].Strip, s.VSIs[theVSI].InsertTPID = c.strip, 0x8100
			r.Steer(s)
			r.receiver(2, 8, c.queue)
			r.Receive(c.f)
			if c.want == nil {
				c.want = c.f
			}
			w0, w2 := r.mem.word(rxWord(2, 0, 0)), r.mem.word(rxWord(2, 0, 2))
			if got := w0 & 0xff; got != rxdidNIC {
				t.Errorf("rxdid %d", got)
			}
			if got := w0 >> 16 & 0x3ff; got != c.ptype {
				t.Errorf("ptype %d, want %d", got, c.ptype)
			}
			if got := int(w0 >> 32 & 0x3fff); got != len(c.want) {
				t.Errorf("pkt_len %d, want %d", got, len(c.want))
			}
			if got := r.status(2, 0); got != c.status {
				t.Errorf("status_error0 %#x, want %#x", got, c.status)
			}
			if got := r.mem.word(rxWord(2, 0, 1)) >> 16 & 0xffff; got != c.tag1 {
				t.Errorf("l2tag1 %#x, want %#x", got, c.tag1)
			}
			if got := w2 >> 48; got != c.tag2 || (w2>>11&1 != 0) != (c.tag2 != 0) {
				t.Errorf("l2tag2_2nd %#x, want %#x; status_error1 %#x", got, c.tag2, w2&0xffff)
			}
			if got := r.bytes(rxPacket(2, 0), len(c.want)); !bytes.Equal(got, c.want) {
				t.Errorf("got  % x\nwant % x", got, c.want)
			}
			if !slices.Equal(r.rxDone, []int{2}) || r.status(2, 1)&statusDD != 0 {
				t.Errorf("causes %v, next descriptor %#x", r.rxDone, r.status(2, 1))
			}
			if got := r.Read32(0x3B2000 + 8*theVSI); got != 1 {
				t.Errorf("GLV_UPRCL = %d", got)
			}
			if got := r.Read32(0x381300); got != 1 {
				t.Errorf("GLPRT_UPRCL = %d", got)
			}
			if got := r.Read32(0x380000); got != uint32(len(c.f)+4) {
				t.Errorf("GLPRT_GORCL = %d", got)
			}
		})
	}
}

// A frame of three buffers, from before the ring's end to behind it.
func TestReceiveChain(t *testing.T) {
	r := newCard(t)
	r.receiver(2, rxRingN-1, rxConfig{})
	small := frametest.Build(t, ethernet(0x800), ip4(17), &layers.UDP{}, payload(20))
	for range rxRingN - 2 {
		r.Receive(small)
	}
	big := frametest.Build(t, ethernet(0x800), ip4(17), &layers.UDP{}, payload(5000))
	r.Receive(big)
	if got := r.Read32(0x294C04 + 4*theVSI); got != 1 || r.status(2, rxRingN-2)&statusDD != 0 {
		t.Fatalf("GLV_RDPC = %d; one descriptor is not enough", got)
	}
	if got := r.Read32(0xAC260); got != 1 {
		t.Errorf("PRTRPB_RDPC = %d", got)
	}
	r.repost(2)
	r.Write32(0x290000+4*2, 8)
	r.Receive(big)
	var got []byte
	for k, i := range []int{rxRingN - 2, rxRingN - 1, 0} {
		got = append(got, r.bytes(rxPacket(2, i), int(r.mem.word(rxWord(2, i, 0))>>32&0x3fff))...)
		if eof := r.status(2, i)&statusEOF != 0; r.status(2, i)&statusDD == 0 || eof != (k == 2) {
			t.Errorf("descriptor %d: status %#x", i, r.status(2, i))
		}
	}
	if !bytes.Equal(got, big) {
		t.Errorf("%d bytes differ from the %d sent", len(got), len(big))
	}
	r.Receive(frametest.Build(t, ethernet(0x800), ip4(17), &layers.UDP{}, payload(9750)))
	if got := r.Read32(0x380240); got != 1 {
		t.Errorf("GLPRT_ROC = %d", got)
	}
}

func TestReceiveRefuses(t *testing.T) {
	f := frametest.Build(t, ethernet(0x800), ip4(17), &layers.UDP{}, payload(1000))
	for _, c := range []struct {
		name  string
		queue rxConfig
		do    func(r *card, s *Steering)
	}{
		{"longer than rxmax", rxConfig{max: 1000}, nil},
		{"link down", rxConfig{}, func(r *card, s *Steering) { s.Link = false }},
		{"no VSI", rxConfig{}, func(r *card, s *Steering) { s.VSIs = nil }},
		{"disabled", rxConfig{}, func(r *card, s *Steering) { r.Write32(0x120000+8, 0) }},
		{"reset", rxConfig{}, func(r *card, s *Steering) { r.LAN.Reset(reg.PFR) }},
		{"another address", rxConfig{}, func(r *card, s *Steering) { delete(s.Addresses, [6]byte(ownMAC)) }},
		{"dropped by type", rxConfig{}, func(r *card, s *Steering) { s.EtherTypes = map[uint16]Forward{0x800: {Drop: true}} }},
		{"untagged, pruned", rxConfig{}, func(r *card, s *Steering) {
			s.VSIs[theVSI].PruneRx, s.VSIs[theVSI].VLANs = true, map[Tag]bool{{0x8100, 100}: true}
		}},
	} {
		r, s := newCard(t), testSteering()
		r.receiver(2, 8, c.queue)
		if c.do != nil {
			c.do(r, s)
		}
		r.Steer(s)
		before := r.mem.b
		r.Receive(f)
		if r.mem.b != before || r.rxDone != nil {
			t.Errorf("%s: the frame was placed", c.name)
		}
	}
	for name, do := range map[string]func(s *Steering){
		"promiscuous": func(s *Steering) { s.Promiscuous[Unicast].VSIs = []uint16{theVSI} },
		"default":     func(s *Steering) { s.Default = []uint16{theVSI} },
		"VLAN zero": func(s *Steering) {
			s.Default, s.VSIs[theVSI].PruneRx, s.VSIs[theVSI].VLANs = []uint16{theVSI}, true, map[Tag]bool{{}: true}
		},
	} {
		r, s := newCard(t), testSteering()
		r.receiver(2, 8, rxConfig{})
		delete(s.Addresses, [6]byte(ownMAC))
		do(s)
		r.Steer(s)
		if r.Receive(f); len(r.rxDone) != 1 {
			t.Errorf("%s: placed %d times", name, len(r.rxDone))
		}
	}
}

func TestHeaderSplit(t *testing.T) {
	for _, c := range []struct {
		name   string
		f      []byte
		header int
	}{
		{"TCP", frametest.Build(t, ethernet(0x800), ip4(6), &layers.TCP{}, payload(700)), 54},
		{"IP", frametest.Build(t, ethernet(0x86dd), ip6(89), payload(700)), 54},
		{"L2", frametest.Build(t, ethernet(0x1234), payload(700)), 14},
	} {
		r := newCard(t)
		r.receiver(2, 8, rxConfig{dtype: dtypeHeaderSplit, hbuf: 256, split: 0xf, dbuf: 512})
		r.Receive(c.f)
		w0 := r.mem.word(rxWord(2, 0, 0))
		if got := w0 >> 48; got != uint64(c.header)|sph {
			t.Errorf("%s: hdr_len %#x", c.name, got)
		}
		got := r.bytes(rxHeaders(2, 0), c.header)
		for i := range 2 {
			got = append(got, r.bytes(rxPacket(2, i), int(r.mem.word(rxWord(2, i, 0))>>32&0x3fff))...)
		}
		if !bytes.Equal(got, c.f) || r.mem.word(rxWord(2, 1, 0))>>48 != 0 {
			t.Errorf("%s: %d bytes differ from the %d sent", c.name, len(got), len(c.f))
		}
	}
}

// The queue follows from the standard's key and a table; the hash is in the
// descriptor.
func TestReceiveSideScaling(t *testing.T) {
	r, s := newCard(t), testSteering()
	key, _ := hex.DecodeString("6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa")
	v := s.VSIs[theVSI]
	copy(v.Key[:], key)
	v.LUT = make([]byte, 2048)
	v.LUT[0x51ccc178%2048] = 3
	r.Steer(s)
	for q := range 4 {
		r.receiver(2+q, 8, rxConfig{})
	}
	ip := ip4(6)
	ip.SrcIP, ip.DstIP = net.IP{66, 9, 149, 187}, net.IP{161, 142, 100, 80}
	f := frametest.Build(t, ethernet(0x800), ip, &layers.TCP{SrcPort: 2794, DstPort: 1766})
	r.Receive(f)
	if !slices.Equal(r.rxDone, []int{5}) {
		t.Fatalf("causes %v", r.rxDone)
	}
	if got := r.mem.word(rxWord(5, 0, 1)); got>>32 != 0x51ccc178 || got&statusRSSValid == 0 {
		t.Errorf("word with the hash %#x", got)
	}
	v.LUT[0x51ccc178%2048] = 0
	v.Queues = v.Queues[:1]
	r.Receive(f)
	if !slices.Equal(r.rxDone, []int{5, 2}) {
		t.Errorf("causes %v", r.rxDone)
	}
}

// Descriptors are read when a frame is placed; a bad one stops the queue and
// is told.
func TestReceiveDescriptors(t *testing.T) {
	r := newCard(t)
	r.receiver(2, 8, rxConfig{})
	_ = r.mem.Store64(rxWord(2, 0, 0), 0x9000)
	f := frametest.Build(t, ethernet(0x800), ip4(17), &layers.UDP{}, payload(100))
	if r.Receive(f); !bytes.Equal(r.bytes(0x9000, len(f)), f) {
		t.Error("the descriptor was read before the frame came")
	}
	_ = r.mem.Store64(rxWord(2, 1, 0), 1<<40)
	r.Receive(f)
	if len(r.events) != 1 || r.mdd != 1 || r.Read32(0x294C00) != 1<<31|1<<26|2 || r.Read32(0x294280) != 1 {
		t.Errorf("events %v, GL_MDET_RX %#x", r.events, r.Read32(0x294C00))
	}
	r.Write32(0x294C00, 0xffffffff)
	r.Write32(0x294280, 0xffff)
	if r.Read32(0x294C00) != 0 || r.Read32(0x294280) != 0 {
		t.Error("GL_MDET_RX is not cleared")
	}
	_ = r.mem.Store64(rxWord(2, 1, 0), 0x9000)
	r.Receive(f)
	if len(r.rxDone) != 1 {
		t.Error("the queue goes on")
	}
	r.Write32(0x120000+8, 0)
	r.receiver(2, 8, rxConfig{})
	if r.Receive(f); len(r.rxDone) != 2 {
		t.Error("the queue does not run after it was enabled again")
	}
}

func TestReceiveDoesNotAllocate(t *testing.T) {
	r := newCard(t)
	r.receiver(2, 8, rxConfig{})
	f := frametest.Build(t, ethernet(0x800), ip4(6), &layers.TCP{}, payload(1400))
	r.LAN.cfg.RxDone = func(int) {}
	tail := uint32(8)
	if n := testing.AllocsPerRun(100, func() {
		r.Receive(f)
		r.repost(2)
		tail = (tail + 1) % rxRingN
		r.Write32(0x290000+4*2, tail)
	}); n != 0 {
		t.Errorf("%v allocations per frame", n)
	}
}

// Once QENA_STAT reads 0 the queue writes nothing, however frames come.
func TestReceiveDisableUnderLoad(t *testing.T) {
	r := newCard(t)
	f := frametest.Build(t, ethernet(0x800), ip4(6), &layers.TCP{}, payload(1400))
	r.LAN.cfg.RxDone = func(int) {}
	stop := make(chan struct{})
	var senders sync.WaitGroup
	for range 2 {
		senders.Add(1)
		go func() {
			defer senders.Done()
			for {
				select {
				case <-stop:
					return
				default:
					r.Receive(f)
				}
			}
		}()
	}
	for range 200 {
		r.receiver(2, rxRingN-1, rxConfig{})
		for r.status(2, 0)&statusDD == 0 {
			runtime.Gosched()
		}
		r.Write32(0x120000+8, 0)
		if r.Read32(0x120000+8) != 0 {
			t.Fatal("QENA_STAT stays")
		}
		r.repost(2)
		poison := r.bytes(rxRing(2), 512)
		runtime.Gosched()
		if !bytes.Equal(poison, r.bytes(rxRing(2), 512)) {
			t.Fatal("a write after the queue was disabled")
		}
	}
	close(stop)
	senders.Wait()
}

func BenchmarkReceive(b *testing.B) {
	r := newCard(b)
	r.receiver(2, 8, rxConfig{})
	f := frametest.Build(b, ethernet(0x800), ip4(6), &layers.TCP{}, payload(1446))
	r.LAN.cfg.RxDone = func(int) {}
	b.SetBytes(int64(len(f)))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		_ = r.mem.Store64(rxWord(2, i%rxRingN, 0), rxPacket(2, 0))
		r.LAN.rxTail.Set(2, uint32(i+2)%rxRingN)
		r.Receive(f)
	}
}

// A frame of flow control ends in the MAC and is counted; in a VLAN it is like
// any other.
func TestFlowControl(t *testing.T) {
	for _, c := range []struct {
		name   string
		header []byte
		off    uint32 // GLPRT_LXOFFRXC
		placed int
	}{
		{"plain", []byte{0x88, 0x08, 0, 1, 0xff, 0xff}, 1, 0},
		{"in VLAN 1", []byte{0x81, 0, 0, 1, 0x88, 0x08, 0, 1, 0xff, 0xff}, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newCard(t)
			r.receiver(2, 8, rxConfig{})
			f := make([]byte, 60)
			copy(f, ownMAC)
			copy(f[12:], c.header)
			r.Receive(f)
			if off := r.Read32(0x3802C0); off != c.off || len(r.rxDone) != c.placed {
				t.Errorf("GLPRT_LXOFFRXC = %d, want %d; %d frames placed, want %d", off, c.off, len(r.rxDone), c.placed)
			}
		})
	}
}
