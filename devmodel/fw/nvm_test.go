// SPDX-License-Identifier: Apache-2.0

package fw

import (
	"testing"

	"github.com/vrnic/vrnic/devmodel/reg"
)

// nvmRead is ice_aq_read_nvm with the lock around it.
func (d *testDriver) nvmRead(off, n int, flat bool) answer {
	d.Helper()
	p := make([]byte, 8)
	le.PutUint16(p, uint16(off))
	p[2] = byte(off >> 16)
	p[3] = 1
	if flat {
		p[3] |= nvmFlashOnly
	}
	le.PutUint16(p[6:], uint16(n))
	d.ok(0x0008, 0, params(resNVM, accessRead), nil)
	a := d.send(0x0701, 0, p, make([]byte, n))
	d.ok(0x0009, 0, params(resNVM), nil)
	if a.rc == rcOK && int(a.datalen) != n {
		d.Fatalf("read of %d bytes gave %d", n, a.datalen)
	}
	return a
}

func (d *testDriver) srWord(w int) int {
	d.Helper()
	a := d.nvmRead(2*w, 2, false)
	if a.rc != rcOK {
		d.Fatalf("shadow RAM word %#x: %v", w, a.rc)
	}
	return int(le.Uint16(a.buf))
}

func (d *testDriver) flashWord(off int) int {
	d.Helper()
	a := d.nvmRead(off, 2, true)
	if a.rc != rcOK {
		d.Fatalf("flash word at %#x: %v", off, a.rc)
	}
	return int(le.Uint16(a.buf))
}

// The whole of ice_init_nvm.
func TestNVMSequence(t *testing.T) {
	d := booted(t)
	if v := d.regs.Read32(0xb6100); v>>5&7 != 6 {
		t.Errorf("GLNVM_GENS %#x", v)
	}
	if v := d.regs.Read32(0xb6108); v&0x40 == 0 {
		t.Errorf("GLNVM_FLA %#x", v)
	}

	// ice_discover_flash_size
	lo, hi, steps := 0, 0x1000000, 0
	for hi-lo > 1 {
		mid := (lo + hi) / 2
		switch a := d.nvmRead(mid, 1, true); a.rc {
		case rcOK:
			lo = mid
		case rcEINVAL:
			hi = mid
		default:
			t.Fatalf("read at %#x: %v", mid, a.rc)
		}
		steps++
	}
	if hi != 1<<20 || steps != 24 {
		t.Fatalf("flash of %#x bytes after %d reads", hi, steps)
	}

	// ice_determine_active_flash_banks
	if c := d.srWord(0); c>>6&3 != 1 || c>>3&7 != 0 {
		t.Fatalf("control word %#x", c)
	}
	bank := func(word int) (off, size int) {
		t.Helper()
		p := d.srWord(word)
		off = p * 2
		if p&0x8000 != 0 {
			off = p & 0x7fff * 4096
		}
		return off, d.srWord(word+1) * 4096
	}
	nvm, nvmLen := bank(0x42)
	orom, oromLen := bank(0x44)
	netlist, netlistLen := bank(0x46)
	if nvm != 0x10000 || orom != 0x30000 || netlist != 0x40000 || oromLen == 0 || netlistLen == 0 {
		t.Fatalf("banks at %#x+%#x, %#x+%#x, %#x+%#x", nvm, nvmLen, orom, oromLen, netlist, netlistLen)
	}

	for _, b := range []int{nvm, nvm + nvmLen} {
		css := (d.flashWord(b+4)|d.flashWord(b+6)<<16)*2 + 8
		copyWord := (css + 31) / 32 * 32
		if copyWord != 352 {
			t.Fatalf("shadow RAM copy at word %d", copyWord)
		}
		if v := d.flashWord(b + 2*(copyWord+0x18)); v != 0x4020 || v != d.srWord(0x18) {
			t.Errorf("version word %#x", v)
		}
		track := d.flashWord(b+2*(copyWord+0x2d)) | d.flashWord(b+2*(copyWord+0x2e))<<16
		if track != eeTrack {
			t.Errorf("EETRACK %#x", track)
		}
	}

	// ice_get_orom_civd_data: the bank in chunks of a sector.
	var rom []byte
	for off := 0; off < oromLen; off += 4096 {
		a := d.nvmRead(orom+off, 4096, true)
		if a.rc != rcOK {
			t.Fatal(a.rc)
		}
		rom = append(rom, a.buf...)
	}
	found := false
	for off := 0; off+512 <= len(rom); off += 512 {
		if string(rom[off:off+4]) == "$CIV" {
			var sum byte
			for _, v := range rom[off : off+74] {
				sum += v
			}
			found = sum == 0
			break
		}
	}
	if !found {
		t.Error("no CIVD record, or a bad checksum")
	}

	// ice_get_netlist_info
	if id, n := d.flashWord(netlist), d.flashWord(netlist+4); id != 0x011b || n < 0x30 {
		t.Errorf("netlist module %#x of %#x words", id, n)
	}
	nodes := d.flashWord(netlist+6) & 0x3ff
	if major := d.flashWord(netlist + 2*(6+2*nodes+2)); major != 1 {
		t.Errorf("netlist version %d", major)
	}

	// ice_get_pfa_module_tlv: an empty list.
	pfa := d.srWord(0x40)
	if n := d.srWord(pfa); n != 2 {
		t.Errorf("preserved fields of %d words", n)
	}
	if len(seen[LockMissing](d)) != 0 {
		t.Error("locks were held")
	}
}

func TestNVMLimits(t *testing.T) {
	d := booted(t)
	for _, c := range []struct {
		what   string
		off, n int
		flat   bool
		want   errno
	}{
		{"last byte of the flash", 1<<20 - 1, 1, true, rcOK},
		{"past the flash", 1 << 20, 1, true, rcEINVAL},
		{"past the flash by its length", 1<<20 - 1, 2, true, rcEINVAL},
		{"highest offset", 0xffffff, 4096, true, rcEINVAL},
		{"last word of the shadow RAM", 65534, 2, false, rcOK},
		{"past the shadow RAM", 65536, 2, false, rcEINVAL},
		{"across a sector", 4094, 4, true, rcEINVAL},
	} {
		if a := d.nvmRead(c.off, c.n, c.flat); a.rc != c.want {
			t.Errorf("%s: %v", c.what, a.rc)
		}
	}
	if a := d.nvmRead(0x80000, 2, true); le.Uint16(a.buf) != 0xffff {
		t.Errorf("erased flash reads % x", a.buf)
	}
	d.fails(rcEINVAL, 0x0701, 0, params(0, 0, 1, 2), make([]byte, 2)) // a module
	d.fails(rcEINVAL, 0x0701, 0, params(0, 0, 0, 3), make([]byte, 2)) // longer than the buffer
	d.fails(rcEINVAL, 0x0701, 0, params(0, 0, 0, 0), make([]byte, 2))
	if got := seen[LockMissing](d); len(got) != 3 || got[0] != (LockMissing{0x0701, resNVM}) {
		t.Errorf("events %v", got)
	}
	d.reset(reg.EMPR)
	if v := d.regs.Read32(0xb6108); v != 0x40 {
		t.Errorf("GLNVM_FLA %#x", v)
	}
}

// The check of `ethtool -t`: right of a whole shadow RAM, wrong of any other.
func TestNVMChecksum(t *testing.T) {
	d := booted(t)
	verify := func() uint16 {
		d.Helper()
		d.ok(0x0008, 0, params(resNVM, accessRead), nil)
		defer d.ok(0x0009, 0, params(resNVM), nil)
		return le.Uint16(d.ok(0x0706, 0, []byte{1}, nil).p[2:])
	}
	if got := verify(); got != 0xbaba {
		t.Errorf("checksum %#x", got)
	}
	d.f.flash.parts[0].data[2*srEETrackLow]++
	if got := verify(); got == 0xbaba {
		t.Error("a changed shadow RAM is taken for whole")
	}
	d.fails(rcEPERM, 0x0706, 0, []byte{2}, nil)
}
