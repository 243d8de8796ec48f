// SPDX-License-Identifier: Apache-2.0

package cqp

import "fmt"

// tell emits an event that says why the command under way is wrong, so that
// its failure, if it fails, needs no other explanation.
func (c *CQP) tell(e any) {
	c.told = true
	c.emit(e)
}

// exists is the failure of a command that makes an object under a number that
// is taken.
func (c *CQP) exists(w *wqe, object string, id uint32) error {
	c.tell(ObjectExists{Object: object, ID: id, Op: w.name, Index: w.index})
	return fmt.Errorf("%s %d exists: %w", object, id, errState)
}

// absent is the failure of a command about an object that does not exist.
func (c *CQP) absent(w *wqe, object string, id uint32) error {
	c.tell(ObjectAbsent{Object: object, ID: id, Op: w.name, Index: w.index})
	return fmt.Errorf("%s %d does not exist: %w", object, id, errState)
}

// reserved is the failure of a command that makes an object under a number
// that is kept for something else.
func (c *CQP) reserved(w *wqe, object string, id uint32) error {
	c.tell(ObjectReserved{Object: object, ID: id, Op: w.name, Index: w.index})
	return fmt.Errorf("%s %d is reserved: %w", object, id, errParameter)
}

// read copies what a command names from guest memory.
func (c *CQP) read(w *wqe, what string, addr uint64, p []byte) error {
	if err := c.mem.Read(addr, p); err != nil {
		c.unmapped(w, what, addr, uint64(len(p)), err)
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// write copies to guest memory that a command names.
func (c *CQP) write(w *wqe, what string, addr uint64, p []byte) error {
	if err := c.mem.Write(addr, p); err != nil {
		c.unmapped(w, what, addr, uint64(len(p)), err)
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func (c *CQP) unmapped(w *wqe, what string, addr, size uint64, err error) {
	c.tell(Unmapped{What: what, Address: addr, Size: size, Op: w.name, Index: w.index, Err: err})
}

// align checks the alignment of an address that a command names.
func (c *CQP) align(w *wqe, what string, addr, to uint64) error {
	if addr%to == 0 {
		return nil
	}
	c.tell(Misaligned{What: what, Address: addr, Align: to, Op: w.name, Index: w.index})
	return fmt.Errorf("%s at %#x is not %d-byte aligned: %w", what, addr, to, errParameter)
}
