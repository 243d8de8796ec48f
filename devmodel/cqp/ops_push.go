// SPDX-License-Identifier: Apache-2.0

package cqp

import "fmt"

// noPushPage is the op_ret_val of an allocation that found none: drivers take
// any number from 256 on for that (icrdma_hw.h:ICRDMA_MAX_PUSH_PAGE_COUNT,
// irdma.h:IRDMA_INVALID_PUSH_PAGE_INDEX).
const noPushPage = 0xFFFF_FFFF

// managePushPages gives out pages of the BAR by which programs hand over WQEs
// without the device reading them, and takes them back. Without a free one
// the command succeeds, with a number that is none; drivers then do without.
func (c *CQP) managePushPages(w *wqe) (result, error) {
	const free = 62
	page := uint32(w.bits(3, 31, 0))
	if w.flag(3, free) {
		if _, ok := c.tables.push[page]; !ok {
			return result{}, c.absent(w, "push page", page)
		}
		if qp, ok := c.qps.UserOfPushPage(page); ok {
			c.tell(PushPageInUse{Page: page, QP: qp})
		}
		delete(c.tables.push, page)
		return result{}, nil
	}
	if t := w.bits(3, 61, 60); t != 0 {
		return result{}, fmt.Errorf("push page of type %d: %w", t, errParameter)
	}
	handle := uint16(w.bits(2, 9, 0))
	for page := range c.pushPages {
		if _, taken := c.tables.push[page]; !taken {
			c.checkHandle(w, "push page", page, handle)
			c.tables.push[page] = handle
			return result{value: page}, nil
		}
	}
	return result{value: noPushPage}, nil
}
