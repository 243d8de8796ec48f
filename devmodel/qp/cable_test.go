// SPDX-License-Identifier: Apache-2.0

package qp_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/vrnic/vrnic/devmodel/frame"
	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/devmodel/roce/wire"
)

// cableOf brings the frames of a bench back to it, as if they came from another
// card.
type cableOf struct {
	t    testing.TB
	b    *bench
	far  [6]byte                // the MAC that all of them go to
	fate func(*wire.Packet) int // how often a frame arrives; nil: once
	held bool                   // keep them
	kept [][]byte

	sent []string // all of them, in words
	all  [][]byte
	path wire.Path
}

func (c *cableOf) Send(f []byte) bool {
	i := frame.Parse(f)
	var p wire.Packet
	if v := p.Parse(f, &i); v != wire.OK || !p.CheckICRC(f) {
		c.t.Errorf("a frame that is sent: %v", v)
		return true
	}
	c.path = p.Path
	s := fmt.Sprintf("%d %s %d", p.DestQP, wire.Name(p.Opcode), p.PSN)
	if p.Opcode == wire.Acknowledge {
		s += fmt.Sprintf(" %#02x", p.Syndrome)
	}
	c.sent = append(c.sent, s)
	c.all = append(c.all, bytes.Clone(f))
	n := 1
	if c.fate != nil {
		n = c.fate(&p)
	}
	for range n {
		if c.held {
			c.kept = append(c.kept, bytes.Clone(f))
		} else {
			c.b.table.Receive(f, &i)
		}
	}
	return true
}

// release lets go what was kept.
func (c *cableOf) release() {
	for _, f := range c.kept {
		i := frame.Parse(f)
		c.b.table.Receive(f, &i)
	}
	c.held, c.kept = false, nil
}

// again lets everything arrive once more.
func (c *cableOf) again() {
	c.kept = c.all
	c.release()
}

// cabled is connected, by a cable.
func cabled(t testing.TB, change ...func(a, b *side)) (*bench, *side, *side, *cableOf) {
	c := &cableOf{t: t, far: [6]byte{0x52, 0x54, 0, 9, 9, 9}}
	b := newBench(t, func(q *qp.Config) { q.Wire = c })
	b.cable, c.b = c, b
	_, x, y := b.connect(change...)
	return b, x, y, c
}
