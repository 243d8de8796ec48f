// SPDX-License-Identifier: Apache-2.0

package vfiouser

// maxDeferred bounds the replies that wait for the device to settle. With more
// of them the reader waits too.
const maxDeferred = 64

// deferredReply is the outcome of a command whose effect is not complete.
type deferredReply struct {
	wait    func() // until it is
	header  Header // of the command
	err     error
	payload [dmaUnmapSize]byte // the longest there is
	n       int                // bytes of it
}

// finisher sends deferred replies in the order of their commands. It has a
// goroutine from the first one on.
type finisher struct {
	queue chan deferredReply
	done  chan struct{}
}

// later defers the reply to a command: err, or the first n bytes of c.payload.
func (c *conn) later(wait func(), h Header, n int, err error) {
	f := &c.finisher
	if f.queue == nil {
		f.queue, f.done = make(chan deferredReply, maxDeferred), make(chan struct{})
		go c.finish()
	}
	d := deferredReply{wait: wait, header: h, err: err, n: n}
	if err == nil && copy(d.payload[:], c.payload(n)) < n {
		panic("vfiouser: a reply of this length cannot wait")
	}
	f.queue <- d
}

// finish waits for what is queued also when the client is gone: the device is
// not detached before.
func (c *conn) finish() {
	defer close(c.finisher.done)
	var out [headerSize + dmaUnmapSize]byte
	for d := range c.finisher.queue {
		d.wait()
		h := c.replyHeader(d.header, d.n)
		if d.err != nil {
			h = c.failHeader(d.header, d.err)
		}
		copy(out[headerSize:], d.payload[:])
		// A failure closes the socket, which ends the reader.
		_ = c.transmit(h, out[:h.Size], nil)
	}
}

// close returns when the last wait has.
func (f *finisher) close() {
	if f.queue != nil {
		close(f.queue)
		<-f.done
	}
}
