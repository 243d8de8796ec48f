// SPDX-License-Identifier: Apache-2.0

package hmc

import "fmt"

// Buffer is a queue's memory as the driver names it: contiguous, or a flat
// list of 4 KiB pages in PBLEs (LPBLSIZE 1, VMAP or VQ set).
type Buffer struct {
	Base    uint64 `json:"base"` // contiguous: guest address of the first byte
	Virtual bool   `json:"virtual"`
	First   uint32 `json:"first"` // virtual: index of the first PBLE
}

// Check tells whether size bytes of the buffer can be addressed at all: no
// wrap of the address space, PBLEs within the committed number.
func (h *Cache) Check(b Buffer, size uint64) error {
	if !b.Virtual {
		if b.Base+size < b.Base {
			return fmt.Errorf("buffer %#x+%#x wraps: %w", b.Base, size, ErrParameter)
		}
		return nil
	}
	pages := (size + pageMask) >> 12
	if n := uint64(h.Count(PBLE)); uint64(b.First) >= n || pages > n-uint64(b.First) {
		return fmt.Errorf("%d PBLEs from %d on, there are %d: %w", pages, b.First, n, ErrParameter)
	}
	return nil
}

// At is the guest address of the entry at byte offset off. Entries are
// powers of two no larger than a page and aligned, so none crosses one.
func (h *Cache) At(b Buffer, off uint64) (uint64, error) {
	if !b.Virtual {
		return b.Base + off, nil
	}
	page, err := h.PBLE(b.First + uint32(off>>12))
	if err != nil {
		return 0, err
	}
	return page&^pageMask + off&pageMask, nil
}
