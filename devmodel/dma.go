// SPDX-License-Identifier: Apache-2.0

package devmodel

import "github.com/vrnic/vrnic/devmodel/guestmem"

// dma is guest memory behind the function's bus master enable: a PCI function
// with COMMAND.MASTER clear starts no memory request.
type dma struct {
	mem     *guestmem.Memory
	allowed func() bool
}

func (d dma) check(op string, iova, n uint64) error {
	if d.allowed() {
		return nil
	}
	return &guestmem.Fault{Op: op, IOVA: iova, Len: n, Why: "bus mastering is off (COMMAND)"}
}

// Read copies guest memory at iova into p.
func (d dma) Read(iova uint64, p []byte) error {
	if err := d.check("read", iova, uint64(len(p))); err != nil {
		return err
	}
	return d.mem.Read(iova, p)
}

// Write copies p into guest memory at iova.
func (d dma) Write(iova uint64, p []byte) error {
	if err := d.check("write", iova, uint64(len(p))); err != nil {
		return err
	}
	return d.mem.Write(iova, p)
}

// Load64 loads an aligned word.
func (d dma) Load64(iova uint64) (uint64, error) {
	if err := d.check("load", iova, 8); err != nil {
		return 0, err
	}
	return d.mem.Load64(iova)
}

// Store64 stores an aligned word.
func (d dma) Store64(iova uint64, v uint64) error {
	if err := d.check("store", iova, 8); err != nil {
		return err
	}
	return d.mem.Store64(iova, v)
}
