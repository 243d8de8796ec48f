// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"sync"
	"sync/atomic"

	"github.com/vrnic/vrnic/devmodel/roce/wire"
)

// bufferBudget bounds the memory in which frames wait for the queue pairs of
// a card.
const bufferBudget = 32 << 20

// bufferSizes are the sizes buffers come in: control packets, a path MTU of
// 1024 and one of 4096 with headers, and the longest frame of a port.
var bufferSizes = [...]int{256, 1280, 4352, 9728}

// bufferOverhead is what a buffer costs beside its bytes.
const bufferOverhead = 256

// buffer is a frame that waits for a queue pair, or is being made by one.
type buffer struct {
	bytes  []byte
	packet wire.Packet // parsed; its payload lies in bytes
	note   Note        // what becomes of it is said there; nil: nobody wants to know

	next   *buffer // in an inbox
	order  uint32  // when it came there
	class  int8
	budget bool
	home   *buffers
	array  []byte
}

// buffers are the frame buffers of one card. Those of the budget hold frames
// that came; the others are for frames on their way out, which nothing holds
// up.
type buffers struct {
	used atomic.Int64
	free [len(bufferSizes)]sync.Pool
}

// take returns a buffer for a frame of n bytes that came, or nil: the budget is
// used up, or the frame longer than any.
func (p *buffers) take(n int) *buffer {
	class := bufferClass(n)
	if class < 0 {
		return nil
	}
	cost := bufferCost(class)
	if p.used.Add(cost) > bufferBudget {
		p.used.Add(-cost)
		return nil
	}
	b := p.get(class)
	b.budget = true
	b.bytes = b.array[:n]
	return b
}

// scratch returns a buffer for a frame of n bytes to be sent, or nil if that
// is longer than any.
func (p *buffers) scratch(n int) *buffer {
	class := bufferClass(n)
	if class < 0 {
		return nil
	}
	b := p.get(class)
	b.budget = false
	b.bytes = b.array[:n]
	return b
}

func (p *buffers) get(class int) *buffer {
	b, _ := p.free[class].Get().(*buffer)
	if b == nil {
		b = &buffer{class: int8(class), home: p, array: make([]byte, bufferSizes[class])}
	}
	return b
}

// bufferClass is the smallest class that holds n bytes, or -1.
func bufferClass(n int) int {
	for class, size := range bufferSizes {
		if n <= size {
			return class
		}
	}
	return -1
}

func bufferCost(class int) int64 { return int64(bufferSizes[class] + bufferOverhead) }

// release gives a buffer back; nil is none.
func (b *buffer) release() {
	if b == nil {
		return
	}
	if b.budget {
		b.home.used.Add(-bufferCost(int(b.class)))
	}
	if b.note != nil {
		b.note.Done()
		b.note = nil
	}
	b.bytes, b.packet.Payload, b.next = nil, nil, nil
	b.home.free[b.class].Put(b)
}
