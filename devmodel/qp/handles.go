// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"sync/atomic"

	"github.com/vrnic/vrnic/devmodel/roce/wire"
)

// maxHandles bounds the numbers of address handles: programs cut theirs to 17
// bits (rdma-core uk.h: the AHID of a WQE, ah_id of irdma_post_ud_send).
const maxHandles = 1 << 17

// Handle is an address handle: where datagrams go. Steps read it without a
// lock, so it does not change once it is set.
type Handle struct {
	PD uint32
	// Path is the way there. Its source port is the QP's.
	Path wire.Path
	// Loopback (DOLOOPBACK): the driver says that the port itself is meant, or
	// a group that QPs of it may be in.
	Loopback bool
	// Reachable: the ARP entry existed when the handle was made. Its address
	// is in Path, and stays there when the entry goes.
	Reachable bool
}

type handlePage [pageQPs]atomic.Pointer[Handle]

// handles are the address handles of one function, in pages. The control lock
// guards changes.
type handles struct {
	pages [maxHandles / pageQPs]atomic.Pointer[handlePage]
}

// SetHandle makes address handle i be h, for work requests that begin from
// then on. It returns false if no WQE can name i.
func (t *Table) SetHandle(i uint32, h Handle) bool {
	if i >= maxHandles {
		return false
	}
	p := t.handles.pages[i/pageQPs].Load()
	if p == nil {
		p = new(handlePage)
		t.handles.pages[i/pageQPs].Store(p)
	}
	p[i%pageQPs].Store(&h)
	return true
}

// DropHandle ends address handle i, if there is one.
func (t *Table) DropHandle(i uint32) {
	if i >= maxHandles {
		return
	}
	if p := t.handles.pages[i/pageQPs].Load(); p != nil {
		p[i%pageQPs].Store(nil)
	}
}

// DropHandles ends all address handles.
func (t *Table) DropHandles() {
	for i := range t.handles.pages {
		t.handles.pages[i].Store(nil)
	}
}

// handle finds an address handle from any goroutine; nil: there is none.
func (t *Table) handle(i uint32) *Handle {
	if i >= maxHandles {
		return nil
	}
	p := t.handles.pages[i/pageQPs].Load()
	if p == nil {
		return nil
	}
	return p[i%pageQPs].Load()
}
