// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"fmt"
	"strings"

	"github.com/vrnic/vrnic/devmodel/check"
)

// guestInfo is what is known of the guest that drives a card.
type guestInfo struct {
	kernel  string
	modules []check.Module
}

// Describe adds to a device's report what only its guest knows: its kernel's
// release and its modules. It is good until it is called again.
func (h *Host) Describe(device int, kernel string, modules []check.Module) {
	h.cards[device].guest.Store(&guestInfo{kernel, modules})
}

// Reports tells what was found about the driver of each device that is checked,
// since its client came. It may be called after Close, too.
func (h *Host) Reports() []check.Report {
	var out []check.Report
	for i := range h.cards {
		if r, ok := h.report(i); ok {
			out = append(out, r)
		}
	}
	return out
}

func (h *Host) report(device int) (check.Report, bool) {
	c := h.cards[device]
	if c.checker == nil {
		return check.Report{}, false
	}
	r := c.checker.Report()
	r.Device, r.Personality = cardName(device), h.personality
	if g := c.guest.Load(); g != nil {
		r.Kernel, r.Modules = g.kernel, g.modules
	}
	return r, true
}

// DriverErrors counts the findings that are errors, of all devices and all
// clients so far.
func (h *Host) DriverErrors() (n uint64) {
	for _, c := range h.cards {
		if c.checker != nil {
			n += c.checker.Errors()
		}
	}
	return n
}

func (h *Host) explainFindings(device int) (string, any, error) {
	r, ok := h.report(device)
	if !ok {
		return "", nil, fmt.Errorf("device %d is not checked (--check off)", device)
	}
	var b strings.Builder
	if err := r.Write(&b, check.Note); err != nil {
		return "", nil, err
	}
	if b.Len() == 0 {
		b.WriteString("nothing found\n")
	}
	return b.String(), r, nil
}
