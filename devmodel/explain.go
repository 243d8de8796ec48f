// SPDX-License-Identifier: Apache-2.0

package devmodel

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/rdma"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// ErrUnknownRegister is returned for a name that no register row has.
var ErrUnknownRegister = errors.New("no such register")

// Registers returns the registers of a kernel name without side effects:
// "PFHMC_PDINV", an element "GLINT_DYN_CTL(3)", or a whole array
// "GLINT_DYN_CTL", of which only the elements that differ from their reset
// value are listed. An empty name lists every register that differs.
func (d *Device) Registers(name string) ([]reg.Value, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if name == "" {
		return d.regs.Changed(), nil
	}
	row, _, element := strings.Cut(name, "(")
	if element {
		v, ok := d.regs.Element(name)
		if !ok {
			return nil, fmt.Errorf("%s: %w", name, ErrUnknownRegister)
		}
		return []reg.Value{v}, nil
	}
	vals, ok := d.regs.Lookup(row)
	if !ok {
		return nil, fmt.Errorf("%s: %w", name, ErrUnknownRegister)
	}
	return vals, nil
}

// RegisterTable is the table of all registers, for documents and tests.
func (d *Device) RegisterTable() []reg.Row { return d.regs.Rows() }

// RDMA returns the protocol engine's objects as they are now. It waits for the
// queue pairs that take a step just then; the device does not.
func (d *Device) RDMA() rdma.Snapshot {
	d.mu.Lock()
	rest := d.rdma.Capture()
	d.mu.Unlock()
	return rest()
}

// Open tells whether the port has a link, so that frames leave and come.
func (d *Device) Open() bool { return d.lan.Open() }

// ExplainMR walks from [to, to+n) of an STag to guest memory as the data path
// does, and tells every step; see mr.Table.Explain.
func (d *Device) ExplainMR(stag uint32, to uint64, n uint32) (mr.Walk, error) {
	return d.rdma.ExplainMR(stag, to, n)
}

// ExplainObject walks from an object of the host memory cache to guest memory,
// and tells every word read; see hmc.Cache.Explain. It changes nothing.
func (d *Device) ExplainObject(o hmc.Object, index uint32) (hmc.Walk, error) {
	return d.rdma.Explain(o, index)
}

// ReadGuest fills p from pieces of guest memory, as far as both go; it
// returns the number of bytes read.
func (d *Device) ReadGuest(segs []mr.Segment, p []byte) (int, error) {
	done := 0
	for _, s := range segs {
		n := min(int(s.Len), len(p)-done)
		if err := d.mem.Read(s.IOVA, p[done:done+n]); err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}
