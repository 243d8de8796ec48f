// SPDX-License-Identifier: Apache-2.0

package fw

import (
	"slices"
	"testing"

	"github.com/vrnic/vrnic/devmodel/reg"
)

// boostOf is a section with boost entries; port 0: one that never matches.
func boostOf(entries ...[2]uint16) testSection {
	b := make([]byte, boostHeader+len(entries)*boostEntry)
	le.PutUint16(b, uint16(len(entries)))
	for n, e := range entries {
		p := b[boostHeader+n*boostEntry:]
		le.PutUint16(p, e[0])
		if e[1] != 0 { // ice_ddp.c:ice_set_key
			le.PutUint16(p[4+15:], e[1])
			le.PutUint16(p[4+20+15:], ^e[1])
		}
	}
	return testSection{sectionRxBoost, b}
}

// The ports of tunnels that the driver opens and closes are the parser's.
func TestTunnelPorts(t *testing.T) {
	d := booted(t)
	ports := func(what string, want ...uint16) {
		t.Helper()
		if got := d.f.steering.UDPTunnels; !slices.Equal(got, want) {
			t.Errorf("%s: ports %v, want %v", what, got, want)
		}
	}
	d.download(pkgBuffer(metadata("p", 1, 3, 0, 0)))
	ports("nothing told")
	d.ok(0x0008, 0, params(resChange, accessWrite), nil)
	update := func(s ...testSection) []byte { return pkgBuffer(s...)[:1024] }
	d.ok(0x0c42, flagRD, params(1), update(boostOf([2]uint16{200, 4789}), testSection{66, make([]byte, 92)}))
	ports("one", 4789)
	d.ok(0x0c42, flagRD, params(1), update(boostOf([2]uint16{201, 6081}, [2]uint16{202, 1}, [2]uint16{203, 4789})))
	ports("more", 1, 4789, 6081)
	before := d.f.steering
	d.ok(0x0c42, flagRD, params(1), update(boostOf([2]uint16{201, 6081}, [2]uint16{9, 0})))
	if d.f.steering != before {
		t.Error("a change that is none is handed over")
	}
	d.ok(0x0c42, flagRD, params(1), update(boostOf([2]uint16{200, 0}, [2]uint16{202, 0})))
	ports("two closed", 4789, 6081)
	zero := boostOf([2]uint16{205, 1})
	le.PutUint16(zero.data[boostHeader+boostPort:], 0)
	le.PutUint16(zero.data[boostHeader+boostPort+boostInverse:], 0xffff)
	d.ok(0x0c42, flagRD, params(1), update(zero))
	ports("port 0", 0, 4789, 6081)
	d.ok(0x0c42, flagRD, params(1), update(boostOf([2]uint16{205, 0})))
	ports("port 0 closed", 4789, 6081)
	d.fails(rcEINVAL, 0x0c42, flagRD, params(1), update(boostOf([2]uint16{256, 5})))
	short := boostOf([2]uint16{1, 5})
	le.PutUint16(short.data, 2)
	d.fails(rcEINVAL, 0x0c42, flagRD, params(1), update(short))
	d.fails(rcEINVAL, 0x0c42, flagRD, params(1), update(testSection{sectionRxBoost, nil}))
	ports("refused", 4789, 6081)
	d.reset(reg.CORER)
	ports("after CORER")
}
