// SPDX-License-Identifier: Apache-2.0

package fabric

import "sync"

// buffer holds a frame beyond the call that brought it.
type buffer struct {
	bytes []byte
	class int
	array []byte
}

// bufferSizes are the sizes buffers come in.
var bufferSizes = [...]int{256, 2048, 10240, MaxFrame}

// buffers keeps buffers for the next use.
type buffers [len(bufferSizes)]sync.Pool

// take returns a buffer for n bytes, at most MaxFrame.
func (p *buffers) take(n int) *buffer {
	class := 0
	for bufferSizes[class] < n {
		class++
	}
	b, _ := p[class].Get().(*buffer)
	if b == nil {
		b = &buffer{class: class, array: make([]byte, bufferSizes[class])}
	}
	b.bytes = b.array[:n]
	return b
}

// release gives a buffer back; nil is none.
func (p *buffers) release(b *buffer) {
	if b != nil {
		p[b.class].Put(b)
	}
}

// cost is the memory the buffer takes.
func (b *buffer) cost() int { return len(b.array) }
