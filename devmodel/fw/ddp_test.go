// SPDX-License-Identifier: Apache-2.0

package fw

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vrnic/vrnic/devmodel/reg"
)

type testSection struct {
	kind uint32
	data []byte
}

// pkgBuffer lays out a package buffer of 4096 bytes.
func pkgBuffer(sections ...testSection) []byte {
	b := make([]byte, 4096)
	off := (pkgHeader + len(sections)*pkgEntry + 3) &^ 3
	le.PutUint16(b[0:], uint16(len(sections)))
	for i, s := range sections {
		e := b[pkgHeader+i*pkgEntry:]
		le.PutUint32(e[0:], s.kind)
		le.PutUint16(e[4:], uint16(off))
		le.PutUint16(e[6:], uint16(len(s.data)))
		off += copy(b[off:], s.data)
	}
	le.PutUint16(b[2:], uint16(off))
	return b
}

func metadata(name string, version ...byte) testSection {
	b := make([]byte, metadataSize)
	copy(b, version)
	copy(b[4:], name)
	le.PutUint32(b[32:], 0xc0000001)
	return testSection{sectionMetadata, b}
}

type packageEntry struct {
	Version             [4]byte
	Name                string
	Track               uint32
	NVM, Active, AtBoot byte
}

// packages is ice_get_pkg_info: the buffer is of one entry more than are
// supported, 164 bytes.
func (d *testDriver) packages() []packageEntry {
	d.Helper()
	a := d.ok(0x0c43, 0, nil, make([]byte, 164))
	n := int(le.Uint32(a.buf))
	if len(a.buf) != 4+40*n {
		d.Fatalf("%d entries in %d bytes", n, len(a.buf))
	}
	var list []packageEntry
	for i := range n {
		e := a.buf[4+40*i:]
		list = append(list, packageEntry{[4]byte(e[:4]), string(e[4:17]), le.Uint32(e[32:]), e[36], e[37], e[38]})
	}
	return list
}

// download sends buffers under the global lock, like ice_dwnld_cfg_bufs.
func (d *testDriver) download(bufs ...[]byte) {
	d.Helper()
	a := d.ok(0x0008, 0, params(resGlobal, accessWrite), nil)
	if s := le.Uint16(a.p[12:]); s != globalSuccess {
		d.Fatalf("global lock status %d", s)
	}
	for i, b := range bufs {
		p := make([]byte, 8)
		if i == len(bufs)-1 {
			p[0] = 1
		}
		a := d.ok(0x0c40, flagRD, p, b)
		if le.Uint64(a.p) != 0 {
			d.Fatalf("error offset and info % x", a.p[:8])
		}
	}
	d.fails(rcEINVAL, 0x0c41, flagRD, nil, pkgBuffer(testSection{58, make([]byte, 64)}))
	d.ok(0x0009, 0, params(resGlobal), nil)
}

func TestPackageDownload(t *testing.T) {
	d := booted(t)
	if got := d.packages(); len(got) != 0 {
		t.Fatalf("packages %v before any download", got)
	}
	// The metadata of the distribution's package is the fifteenth of sixteen
	// sections of the fourth buffer.
	var many []testSection
	for i := range 16 {
		many = append(many, testSection{uint32(20 + i), make([]byte, 40)})
	}
	many[14] = metadata("ICE OS Default Package", 1, 3, 41, 0)
	d.download(
		pkgBuffer(testSection{2, make([]byte, 4000)}), pkgBuffer(testSection{3, make([]byte, 4000)}),
		pkgBuffer(testSection{3, nil}), pkgBuffer(many...), pkgBuffer(testSection{56, make([]byte, 92)}))

	want := []packageEntry{{[4]byte{1, 3, 41, 0}, "ICE OS Defaul", 0xc0000001, 0, 1, 0}}
	if diff := cmp.Diff(want, d.packages()); diff != "" {
		t.Fatal(diff)
	}
	if diff := cmp.Diff([]PackageLoaded{{"ICE OS Default Package", [4]uint8{1, 3, 41, 0}, 5}}, seen[PackageLoaded](d)); diff != "" {
		t.Error(diff)
	}
	name, v, ok := d.f.Package()
	if name != "ICE OS Default Package" || v != [4]uint8{1, 3, 41, 0} || !ok {
		t.Errorf("package %q %v %v", name, v, ok)
	}
	if n := len(seen[LockMissing](d)); n != 0 {
		t.Errorf("%d missing locks", n)
	}

	// It outlives a reset of the function, and no download is wanted then.
	d.reset(reg.PFR)
	d.ok(0x02a4, 0, nil, nil)
	if diff := cmp.Diff(want, d.packages()); diff != "" {
		t.Errorf("after PFR: %s", diff)
	}
	a := d.ok(0x0008, 0, params(resGlobal, accessWrite), nil)
	if s := le.Uint16(a.p[12:]); s != globalDone {
		t.Errorf("global lock status %d with a package there", s)
	}
	d.reset(reg.FLR)
	if diff := cmp.Diff(want, d.packages()); diff != "" {
		t.Errorf("after FLR: %s", diff)
	}

	// The reset of the core ends it; the driver downloads again.
	d.reset(reg.CORER)
	if got := d.packages(); len(got) != 0 {
		t.Errorf("packages %v after CORER", got)
	}
	d.download(pkgBuffer(testSection{2, make([]byte, 10)}), pkgBuffer(metadata("ICE COMMS", 1, 3, 52, 0)))
	want = []packageEntry{{[4]byte{1, 3, 52, 0}, "ICE COMMS\x00\x00\x00\x00", 0xc0000001, 0, 1, 0}}
	if diff := cmp.Diff(want, d.packages()); diff != "" {
		t.Error(diff)
	}
}

func TestPackageIsNotActiveBeforeItsLastBuffer(t *testing.T) {
	d := booted(t)
	d.ok(0x0008, 0, params(resGlobal, accessWrite), nil)
	d.ok(0x0c40, flagRD, params(0), pkgBuffer(metadata("half", 1, 3, 0, 0)))
	if got := d.packages(); len(got) != 0 {
		t.Errorf("packages %v", got)
	}
	d.fails(rcENOENT, 0x0c42, flagRD, params(1), pkgBuffer(testSection{13, make([]byte, 8)}))
}

func TestPackageUpdate(t *testing.T) {
	d := booted(t)
	d.download(pkgBuffer(metadata("p", 1, 3, 0, 0)))
	d.ok(0x0008, 0, params(resChange, accessWrite), nil)
	d.ok(0x0c42, flagRD, params(1), pkgBuffer(testSection{43, make([]byte, 8)})[:64])
	d.ok(0x0009, 0, params(resChange), nil)
	if n := len(seen[LockMissing](d)); n != 0 {
		t.Errorf("%d missing locks", n)
	}
	d.ok(0x0c42, flagRD, params(1), pkgBuffer(testSection{43, make([]byte, 8)})[:64])
	if diff := cmp.Diff([]LockMissing{{0x0c42, resChange}}, seen[LockMissing](d)); diff != "" {
		t.Error(diff)
	}
	bad := pkgBuffer(testSection{43, make([]byte, 64)})[:64]
	a := d.fails(rcEINVAL, 0x0c42, flagRD, params(1), bad)
	if le.Uint32(a.p) != 4 || le.Uint32(a.p[4:]) == 0 {
		t.Errorf("error offset and info % x", a.p[:8])
	}
}

func TestBadPackages(t *testing.T) {
	short := metadata("x", 1, 3)
	short.data = short.data[:35]
	edit := func(f func(b []byte)) []byte {
		b := pkgBuffer(metadata("x", 1, 3, 0, 0))
		f(b)
		return b
	}
	for _, c := range []struct {
		what string
		buf  []byte
	}{
		{"no sections", edit(func(b []byte) { le.PutUint16(b, 0) })},
		{"512 sections", edit(func(b []byte) { le.PutUint16(b, 512) })},
		{"65535 sections", edit(func(b []byte) { le.PutUint16(b, 65535) })},
		{"section over the header", edit(func(b []byte) { le.PutUint16(b[8:], 4) })},
		{"section past the end", edit(func(b []byte) { le.PutUint16(b[8:], 4090) })},
		{"section of 65535 bytes", edit(func(b []byte) { le.PutUint16(b[10:], 65535) })},
		{"short metadata", pkgBuffer(short)},
		{"no metadata", pkgBuffer(testSection{56, make([]byte, 4)})},
		{"table past a short buffer", pkgBuffer(metadata("x", 1, 3, 0, 0))[:8]},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := booted(t)
			d.ok(0x0008, 0, params(resGlobal, accessWrite), nil)
			a := d.fails(rcEINVAL, 0x0c40, flagRD, params(1), c.buf)
			if le.Uint32(a.p[4:]) == 0 {
				t.Error("no error information")
			}
			if got := d.packages(); len(got) != 0 {
				t.Errorf("packages %v", got)
			}
			if n := len(seen[BadPackage](d)); n != 1 {
				t.Errorf("%d events", n)
			}
		})
	}
}
