// SPDX-License-Identifier: Apache-2.0

package fw

import (
	"testing"

	"github.com/vrnic/vrnic/devmodel/lan"
)

// step is one command of a driver's probe.
type step struct {
	op, flags uint16
	p         []byte
	buf       []byte
	want      errno
}

// The start of ice_init_hw up to the NVM, and what of ice_init_dev_hw and
// ice_init_link needs no object that another command made, kernel by kernel.
// The NVM (TestNVMSequence) and the download lie in between.
func TestProbe(t *testing.T) {
	var (
		version   = step{op: 0x0001}
		logQuery  = step{op: 0xff32, p: []byte{4}, buf: make([]byte, 4096)}
		clearPF   = step{op: 0x02a4}
		clearPXE  = step{op: 0x0110, p: []byte{2}}
		devCaps   = step{op: 0x000b, buf: make([]byte, 4096)}
		funcCaps  = step{op: 0x000a, buf: make([]byte, 4096)}
		swConfig  = step{op: 0x0200, buf: make([]byte, 2048)}
		schedRes  = step{op: 0x0412, buf: make([]byte, 320)}
		topology  = step{op: 0x0400, buf: make([]byte, 4096)}
		phyMedia  = step{op: 0x0600, p: params(0, 2), buf: make([]byte, 560)}
		phyNVM    = step{op: 0x0600, p: params(0, 0), buf: make([]byte, 560)}
		phyActive = step{op: 0x0600, p: params(0, 4), buf: make([]byte, 560)}
		linkOff   = step{op: 0x0607, p: params(0, 2), buf: make([]byte, 32)}
		linkOn    = step{op: 0x0607, p: params(0, 3), buf: make([]byte, 32)}
		mac       = step{op: 0x0107, buf: make([]byte, 16)}
		macConfig = step{op: 0x0603, p: params(9728, 0, 0xffff, 0x7fff)}
		lane      = step{op: 0x06ea, p: []byte{0, 1}, buf: make([]byte, 128)}
		noNode    = step{op: 0x06e0, p: []byte{0, 0, 0x26, 0, 0, 0, 0x30}, want: rcENOENT}
		vlanMode  = step{op: 0x020d, buf: make([]byte, 100)}
		port      = step{op: 0x0203, p: params(0, 0, 0, 4)}
		oldPort   = step{op: 0x0203}
		mask      = step{op: 0x0613, p: params(0, 0, 0, 0, 0xeefd)}
		driver    = step{op: 0x0002, flags: flagRD, p: []byte{6, 1, 0, 0}, buf: []byte("6.1.0-42-amd64")}
		pfc       = step{op: 0x0303, p: []byte{1}}
		mib       = step{op: 0x0a08, flags: flagRD, p: params(0, 75), buf: make([]byte, 75)}
	)
	for _, k := range []struct {
		release string
		steps   []step
	}{
		{"6.1", []step{version, clearPF, clearPXE, devCaps, funcCaps, swConfig, schedRes, topology, phyMedia, linkOff,
			mac, macConfig, vlanMode, oldPort, driver, mask, linkOn, phyNVM, linkOn, phyMedia, phyMedia, phyActive, pfc, mib}},
		{"6.12", []step{version, logQuery, clearPF, clearPXE, devCaps, funcCaps, swConfig, schedRes, topology, phyMedia, linkOff,
			mac, macConfig, noNode, noNode, vlanMode, port, mask, linkOn, phyNVM, linkOn, phyMedia, phyMedia, phyActive, driver, lane, pfc, mib}},
		{"7.3", []step{version, logQuery, logQuery, clearPF, clearPXE, devCaps, funcCaps, swConfig, schedRes, topology, phyMedia, linkOff,
			mac, macConfig, lane, noNode, noNode, vlanMode, port, mask, linkOn, phyNVM, linkOn, phyMedia, phyMedia, phyActive, driver, lane, pfc, mib}},
	} {
		t.Run(k.release, func(t *testing.T) {
			d := newTestDriver(t)
			lan := &stoppedQueues{}
			d.f.cfg.LAN = lan
			for round := range 2 { // the second probe finds what the first left
				d.bringUp()
				d.setUp(mbATQ, stepMBX, memBase+atqRing, 64)
				d.setUp(mbATQ+0x280, stepMBX, memBase+arqRing, 1023)
				d.regs.Write32(mbATQ+0x280+4*stepMBX, 1022)
				for _, s := range k.steps {
					d.fails(s.want, s.op, s.flags, s.p, s.buf)
				}
				if lan.n != round+1 {
					t.Errorf("the LAN queues were stopped %d times", lan.n)
				}
				d.ok(0x0003, 0, []byte{1}, nil)
			}
			for _, e := range d.events {
				switch e.(type) {
				case Command, DriverVersion:
				default:
					t.Errorf("event %v", e)
				}
			}
		})
	}
}

type stoppedQueues struct {
	LAN
	n int
}

func (s *stoppedQueues) ResetQueues()        { s.n++ }
func (s *stoppedQueues) Steer(*lan.Steering) {}
