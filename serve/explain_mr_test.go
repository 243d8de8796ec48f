// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/vrnic/vrnic/devmodel"
)

// driver is the least of a driver that can register memory.
type driver struct {
	t    *testing.T
	d    *devmodel.Device
	mem  []byte // guest memory from address 0 on
	head uint32
}

// Guest addresses of what the driver owns.
const (
	ringAt    = 0x1000
	contextAt = 0x10000
	bufferAt  = 0x11000
	segmentAt = 0x20_0000
	dataAt    = 0x42_0000
	pagesAt   = 0x40_0000 // of page descriptors
	shadowAt  = 0x41_0000
)

func newDriver(t *testing.T, d *devmodel.Device) *driver {
	t.Helper()
	return newDriverOn(t, d, func(g *driver) { g.command([8]uint64{0: 0x80008000, 1: segmentAt | 0x803, 3: 0x8000001F00000000}) })
}

// newDriverOn is newDriver with a segment 0 that back programs.
func newDriverOn(t *testing.T, d *devmodel.Device, back func(*driver)) *driver {
	t.Helper()
	const size = 8 << 20
	fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "guest")
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	if err := d.MapDMA(0, size, f, 0, true, true); err != nil {
		t.Fatal(err)
	}
	g := &driver{t: t, d: d, mem: mem}
	if err := d.WriteRegion(7, 4, []byte{6, 0}); err != nil { // COMMAND: memory, bus master
		t.Fatal(err)
	}
	g.store(contextAt, 10<<8|2<<3, ringAt, 1, 0, 1<<16)
	g.write(0x50A100, 0) // PFPE_CCQPHIGH
	g.write(0x50A080, contextAt)
	g.store(bufferAt+8, 4)     // CQs
	g.store(bufferAt+48, 64)   // MRs
	g.store(bufferAt+112, 512) // PBLEs
	g.command([8]uint64{3: 0x8000002100000000 | 208, 4: bufferAt})
	back(g)
	g.command([8]uint64{3: 0x8000002B00000000})
	return g
}

func (g *driver) write(offset uint64, v uint32) {
	g.t.Helper()
	if err := g.d.WriteRegion(0, offset, binary.LittleEndian.AppendUint32(nil, v)); err != nil {
		g.t.Fatal(err)
	}
}

func (g *driver) store(at uint64, words ...uint64) {
	for i, w := range words {
		binary.LittleEndian.PutUint64(g.mem[at+8*uint64(i):], w)
	}
}

// pble is the guest address of PBLE i.
func (g *driver) pble(i uint64) uint64 {
	return segmentAt + binary.LittleEndian.Uint64(g.mem[bufferAt+112:])>>32*512 + 8*i
}

// command runs one CQP command that has to succeed.
func (g *driver) command(q [8]uint64) {
	g.t.Helper()
	g.store(ringAt+64*uint64(g.head), q[:]...)
	g.head++
	g.write(0x500800, g.head) // PFPE_CQPDB
	var b [4]byte
	if err := g.d.ReadRegion(0, 0x500880, b[:]); err != nil {
		g.t.Fatal(err)
	}
	if tail := binary.LittleEndian.Uint32(b[:]); tail != g.head {
		g.t.Fatalf("PFPE_CQPTAIL = %#x after command %d, header %#x", tail, g.head, q[3])
	}
}

// From the STag an application has to the bytes it wrote.
func TestExplainMR(t *testing.T) {
	h, o := start(t, 1)
	g := newDriver(t, h.cards[0].dev)
	const (
		va   = 0x7F12_3456_7F00
		stag = 0x15400000 | 9<<8 | 0x33
	)
	g.store(g.pble(16), dataAt, dataAt+0x5000)
	g.command([8]uint64{0: va, 1: 12<<46 | 0x300, 2: stag, 3: 0x882F180A00000000, 6: 16})
	copy(g.mem[dataAt+0xF00:], "the last bytes of a page ")
	text := strings.Repeat("0123456789abcdef", 17)
	copy(g.mem[dataAt+0xFF8:dataAt+0x1000], text)
	copy(g.mem[dataAt+0x5000:], text[8:])

	ask := func(r Request) Response {
		t.Helper()
		r.What = "mr"
		resp, err := Ask(t.Context(), o.Control, r)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	name := fmt.Sprintf("%#x", stag)
	for _, r := range []Request{{}, {Name: name}} {
		resp := ask(r)
		var regions []MR
		if err := json.Unmarshal(resp.Data, &regions); err != nil || len(regions) != 1 {
			t.Fatalf("%s: %v", resp.Data, err)
		}
		want := MR{STag: stag, Index: 9, Kind: "MR", State: "VALID", By: "REG_MR, CQP WQE 3", PD: 12, Start: va, Length: 0x300, VABased: true,
			Level: "flat", PageSize: 4096, Pages: 2, First: 16, PBLEs: 2, Rights: "LOCAL_READ|LOCAL_WRITE|REMOTE_READ|REMOTE_WRITE", Remote: true, Limit: 0x300}
		if r.Name != "" { // of one all is told
			want.Memory = []Piece{{dataAt + 0xF00, 0x100}, {dataAt + 0x5000, 0x200}}
		}
		if diff := cmp.Diff(want, regions[0]); diff != "" || !strings.Contains(resp.Text, "0x15400933") {
			t.Errorf("regions: %s\n%s", diff, resp.Text)
		}
	}
	resp := ask(Request{Name: name, Address: fmt.Sprint(va + 0xF8), Length: "0x10", Bytes: 16})
	var w Walk
	if err := json.Unmarshal(resp.Data, &w); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%x", text[:16]); w.Bytes != want {
		t.Errorf("bytes %s, want %s", w.Bytes, want)
	}
	if len(w.Pieces) != 2 || w.Pieces[0] != (Piece{dataAt + 0xFF8, 8}) || w.Pieces[1] != (Piece{dataAt + 0x5000, 8}) {
		t.Errorf("pieces %+v", w.Pieces)
	}
	if len(w.PBLEs) != 2 || w.PBLEs[1].At != g.pble(17) || w.PBLEs[1].Value != dataAt+0x5000 || w.PBLEs[1].Paged {
		t.Errorf("PBLEs %+v", w.PBLEs)
	}
	for _, line := range []string{
		fmt.Sprintf("%#x", g.pble(16)), "page PBLE  16-17", "0x420000 0x425000", "GUEST PHYSICAL", "direct",
		"00007f1234567ff8  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66\n",
	} {
		if !strings.Contains(resp.Text, line) {
			t.Errorf("no %q in\n%s", line, resp.Text)
		}
	}
	if resp := ask(Request{Name: name, Address: fmt.Sprint(va), Bytes: 0x300}); strings.Count(resp.Text, "\n00007f12") != 0x30 {
		t.Errorf("dump of 0x300 bytes:\n%s", resp.Text)
	}

	for want, r := range map[string]Request{
		"AMP_BOUNDS_VIOLATION": {Name: name, Address: fmt.Sprint(va), Length: "0x301"},
		"AMP_BAD_STAG_KEY":     {Name: fmt.Sprint(stag ^ 1), Address: fmt.Sprint(va)},
		"no STag 0x15400932":   {Name: fmt.Sprint(stag ^ 1)},
		"is not a number":      {Name: name, Address: "here"},
		"between 1 and":        {Name: name, Address: fmt.Sprint(va), Bytes: 1 << 31},
		"need an STag":         {Bytes: 1},
	} {
		r.What = "mr"
		resp, err := Ask(t.Context(), o.Control, r)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", r, err, want)
		}
		if strings.HasPrefix(want, "AMP") && !strings.Contains(resp.Text, "0x15400933") {
			t.Errorf("%s: the walk until then is missing: %q", want, resp.Text)
		}
	}
	h.cards[0].dev.UnmapAllDMA()
	if _, err := Ask(t.Context(), o.Control, Request{What: "mr", Name: name, Address: fmt.Sprint(va), Bytes: 1}); err == nil || !strings.Contains(err.Error(), "no DMA map") {
		t.Errorf("guest memory gone: %v", err)
	}
}

// A page descriptor that the device has used and memory has otherwise by now.
func TestExplainStale(t *testing.T) {
	h, o := start(t, 1)
	g := newDriverOn(t, h.cards[0].dev, func(g *driver) {
		for i := range uint64(512) {
			g.store(pagesAt+8*i, segmentAt+4096*i|1)
		}
		g.command([8]uint64{0: 0x80008000, 1: pagesAt | 0x801, 3: 0x8000001F00000000})
	})
	g.store(g.pble(16), dataAt)
	const stag = 9<<8 | 0x33
	g.command([8]uint64{0: 0x1000, 1: 12<<46 | 0x300, 2: stag, 3: 0x882F180A00000000, 6: 16})
	// The CCQ lies in pages of the same list: writing to it is the device's own use.
	g.store(g.pble(32), dataAt+0x1000)
	g.command([8]uint64{0: 16, 3: 0x8002D00300000000, 5: shadowAt, 6: 32})
	at := binary.LittleEndian.Uint64(g.mem[bufferAt+112:]) >> 32 * 512 // FPM of the PBLEs
	pd := at >> 12
	ask := func(r Request, v any) string {
		t.Helper()
		resp, err := Ask(t.Context(), o.Control, r)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(resp.Data, v); err != nil {
			t.Fatal(err)
		}
		narrow(t, r.What, resp.Text)
		return strings.Join(strings.Fields(resp.Text), " ")
	}
	var w Walk
	r := Request{What: "mr", Name: fmt.Sprint(stag), Address: "0x1000"}
	ask(r, &w)
	p := w.PBLEs[0]
	if p.PD != uint32(pd) || p.PDAt != pagesAt+8*pd || p.PDVal != segmentAt+4096*pd|1 || !p.Kept || p.Stale || p.At != g.pble(16) || p.Value != dataAt {
		t.Errorf("word %+v", p)
	}
	g.store(pagesAt+8*pd, p.PDVal+0x7000)
	text := ask(r, &w)
	if s := w.PBLEs[0]; !s.Stale || s.PDVal != p.PDVal || s.PDNow != p.PDVal+0x7000 || s.Value != dataAt {
		t.Errorf("stale word %+v", s)
	}
	if want := fmt.Sprintf("PD %d %#x %#x kept, stale: memory has %#x", pd, p.PDAt, p.PDVal, p.PDVal+0x7000); !strings.Contains(text, want) {
		t.Errorf("no %q in %s", want, text)
	}
	var m HMC
	text = ask(Request{What: "hmc", Name: "0"}, &m)
	for _, want := range []string{"1 of them stale", fmt.Sprintf("%d page true %#x %#x stale", pd, p.PDVal+0x7000-1, p.PDVal-1), "STag 0x00000933", "CQ 0"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
}
