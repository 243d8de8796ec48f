// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"fmt"
	"strings"

	"github.com/vrnic/vrnic/devmodel"
	"github.com/vrnic/vrnic/devmodel/decode"
	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/rdma"
)

// CQ is a completion queue in data form.
type CQ struct {
	event.CQInfo
	// Of a CQ asked for by number:
	Senders   []uint32      `json:"senders,omitempty"`   // QPs whose send queue completes to it
	Receivers []uint32      `json:"receivers,omitempty"` // and whose receive queue
	HeadNow   *uint32       `json:"head_now,omitempty"`  // shadow head in memory now
	ArmNow    *uint32       `json:"arm_now,omitempty"`   // shadow word of the arming
	Entries   []UnreadEntry `json:"entries,omitempty"`   // unread ones, oldest first, at most maxEntries
	Error     string        `json:"error,omitempty"`     // why that is not all
}

// UnreadEntry is an entry that software has not taken.
type UnreadEntry struct {
	Index uint32        `json:"index"`
	CQE   decode.Result `json:"cqe"`
}

// maxEntries bounds how many entries of a CQ are shown.
const maxEntries = 16

func explainCQ(d *devmodel.Device, r Request) (string, any, error) {
	e := d.RDMA()
	cqs, one, err := chosen(r, "CQ", e.CQs, func(c event.CQInfo) uint32 { return c.ID })
	if err != nil {
		return "", nil, err
	}
	data := make([]CQ, len(cqs))
	for i := range cqs {
		data[i].CQInfo = cqs[i]
	}
	if one {
		data[0].complete(d, &e)
		return data[0].text(), data, nil
	}
	rows := [][]string{}
	for _, c := range cqs {
		ceq := "none"
		if c.CEQ >= 0 {
			ceq = fmt.Sprint(c.CEQ)
		}
		rows = append(rows, []string{fmt.Sprint(c.ID), fmt.Sprint(c.Size), fmt.Sprint(c.Next), fmt.Sprint(c.Polarity), fmt.Sprint(c.Unread), c.Armed, ceq})
	}
	return table([]string{"CQ", "ENTRIES", "NEXT", "POLARITY", "UNREAD", "ARMED", "CEQ"}, rows), data, nil
}

// complete adds what is asked for of one only.
func (c *CQ) complete(d *devmodel.Device, e *rdma.Snapshot) {
	for _, q := range e.QPs {
		if q.SendCQ == c.ID {
			c.Senders = append(c.Senders, q.ID)
		}
		if q.RecvCQ == c.ID {
			c.Receivers = append(c.Receivers, q.ID)
		}
	}
	if w, err := readWords(d, c.Shadow, 5); err != nil {
		c.Error = fmt.Sprintf("shadow area: %v", err)
	} else {
		head, arm := uint32(w[0]&0xFFFFF), uint32(w[4]&0x3FFFF)
		c.HeadNow, c.ArmNow = &head, &arm
	}
	format := "cqe"
	if c.ID == event.CCQ {
		format = "ccqe"
	}
	for n := uint64(0); n < c.Unread; n++ {
		if n == maxEntries {
			c.Error = fmt.Sprintf("only the oldest %d of %d are shown", maxEntries, c.Unread)
			return
		}
		i := uint32((uint64(c.Head) + n) % uint64(c.Size))
		at, err := locate(d, c.Buf, uint64(i)*event.CQESize)
		if err != nil {
			c.Error = err.Error()
			return
		}
		w, err := readWords(d, at, event.CQESize/8)
		if err != nil {
			c.Error = err.Error()
			return
		}
		for _, r := range decoded(format, w) {
			c.Entries = append(c.Entries, UnreadEntry{i, r})
		}
	}
}

func (c *CQ) text() string {
	var b strings.Builder
	d := &details{}
	d.add("CQ", "%d, %d entries, %s", c.ID, c.Size, place(c.Buf))
	if c.Stopped {
		d.add("state", "stopped: it overflowed, or its memory is gone")
	}
	d.add("next entry", "%d with valid bit %d", c.Next, c.Polarity)
	d.add("consumer", "at %d when the device looked last, %d unread", c.Head, c.Unread)
	shadow := fmt.Sprintf("%#x", c.Shadow)
	if c.HeadNow != nil {
		shadow += fmt.Sprintf(": head %d, arm word %#x (sequence %d, ARM_NEXT %d, ARM_NEXT_SE %d, SW_CQ_SELECT %d)", *c.HeadNow, *c.ArmNow,
			*c.ArmNow>>16&3, *c.ArmNow>>14&1, *c.ArmNow>>15&1, *c.ArmNow&0x3FFF)
	}
	d.add("shadow area", "%s", shadow)
	armed := map[string]string{"no": "no", "solicited": "for solicited completions and errors", "any": "for any completion"}[c.Armed]
	d.add("armed", "%s", armed)
	if c.CEQ >= 0 {
		d.add("events", "CEQ %d, %s", c.CEQ, names("one at a time (ENCEQEMASK)", c.CEQMask, "waits for PFPE_CQACK", c.Unacked, "another one is due then", c.Owed))
	} else {
		d.add("events", "none: no CEQ")
	}
	d.add("context", "%#x", c.Context)
	if c.Resizes > 0 {
		d.add("resized", "%d times", c.Resizes)
	}
	if c.ID == event.CCQ {
		d.add("users", "the control QP")
	} else {
		d.add("users", "send queues of QPs %s; receive queues of QPs %s", spans(c.Senders), spans(c.Receivers))
	}
	b.WriteString(d.String())
	if len(c.Entries) > 0 {
		rows := [][]string{}
		for _, e := range c.Entries {
			rows = append(rows, []string{fmt.Sprint(e.Index), strings.Join(e.CQE.Notes, "; ")})
		}
		b.WriteString("\n" + table([]string{"UNREAD", "WHAT"}, rows))
	}
	if c.Error != "" {
		wrap(&b, "", c.Error)
	}
	return b.String()
}
