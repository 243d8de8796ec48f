// SPDX-License-Identifier: Apache-2.0

package hmc

import (
	"fmt"
	"sync"
)

// backing knows what guest memory page descriptors and segments name, to tell
// when a page descriptor shares some with another one or with a segment: the
// device would write one's state over the other's. Segments among each other,
// and with queues, are the control QP's business.
type backing struct {
	mu     sync.Mutex // a leaf, under the cache's
	pages  map[uint64]owner
	blocks map[uint64][]claim // of direct segments, by the 2 MiB blocks they touch
}

// owner of backing memory: a direct segment, the page of page descriptors of
// a paged one, or the page of a page descriptor.
type owner struct {
	sd uint32
	pd int // or whole, or list
}

const (
	whole = -1
	list  = -2
)

func (o owner) String() string {
	switch o.pd {
	case whole:
		return fmt.Sprintf("SD %d", o.sd)
	case list:
		return fmt.Sprintf("the PDs of SD %d", o.sd)
	}
	return fmt.Sprintf("PD %d of SD %d", o.pd, o.sd)
}

type claim struct {
	owner owner
	from  uint64
}

// maxClaims bounds what a guest can make us remember.
const maxClaims = 1 << 16

// take notes that o uses the page at addr; it returns who does already.
func (b *backing) take(addr uint64, o owner) (other owner, shared bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if other, shared = b.pages[addr]; shared {
		return other, other != o
	}
	for _, c := range b.blocks[addr>>segmentShift] {
		if addr >= c.from && addr < c.from+1<<segmentShift {
			return c.owner, true
		}
	}
	if b.pages == nil {
		b.pages = map[uint64]owner{}
	}
	if len(b.pages) < maxClaims {
		b.pages[addr] = o
	}
	return owner{}, false
}

// takeSegment is take for the 2 MiB of a direct segment.
func (b *backing) takeSegment(addr uint64, o owner) (other owner, shared bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	end := addr + 1<<segmentShift
	if end < addr {
		return owner{}, false // no memory is there
	}
	if len(b.pages) > 0 {
		for at := addr; at < end && !shared; at += pageMask + 1 {
			other, shared = b.pages[at]
			shared = shared && other.pd >= 0
		}
	}
	if b.blocks == nil {
		b.blocks = map[uint64][]claim{}
	}
	for block := addr >> segmentShift; block<<segmentShift < end; block++ {
		for _, c := range b.blocks[block] {
			if !shared && c.from < end && addr < c.from+1<<segmentShift {
				other, shared = c.owner, true
			}
		}
		b.blocks[block] = append(b.blocks[block], claim{o, addr})
	}
	return other, shared
}

// release undoes take.
func (b *backing) release(addr uint64, o owner) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pages[addr] == o {
		delete(b.pages, addr)
	}
}

// releaseSegment undoes takeSegment.
func (b *backing) releaseSegment(addr uint64, o owner) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for block := addr >> segmentShift; block<<segmentShift < addr+1<<segmentShift; block++ {
		list := b.blocks[block]
		for k := range list {
			if list[k].owner == o {
				list = append(list[:k], list[k+1:]...)
				break
			}
		}
		if b.blocks[block] = list; len(list) == 0 {
			delete(b.blocks, block)
		}
	}
}

func (b *backing) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pages, b.blocks = nil, nil
}

// claim and release are for a segment that begins and ends.
func (h *Cache) claim(i uint32, s *segment) {
	if !s.direct {
		h.claimPage(s.addr, owner{i, list})
		return
	}
	o := owner{i, whole}
	other, shared := h.backing.takeSegment(s.addr, o)
	h.tellShared(s.addr, o, other, shared)
}

func (h *Cache) claimPage(addr uint64, o owner) {
	other, shared := h.backing.take(addr, o)
	h.tellShared(addr, o, other, shared)
}

func (h *Cache) tellShared(addr uint64, o, other owner, shared bool) {
	if shared && (o.pd >= 0 || other.pd >= 0) {
		h.emit(BackingShared{SD: o.sd, PD: o.pd, Address: addr, Other: other.String()})
	}
}

func (h *Cache) release(i uint32, s *segment) {
	if s.direct {
		h.backing.releaseSegment(s.addr, owner{i, whole})
		return
	}
	h.backing.release(s.addr, owner{i, list})
	for pd := range s.pds.kept {
		if kept := s.pds.kept[pd].Load(); kept != 0 {
			h.backing.release(kept&^pageMask, owner{i, pd})
		}
	}
}
