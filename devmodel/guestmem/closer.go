// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"os"
	"sync"
)

// closer closes descriptors whose close may wait for somebody (FUSE asks its
// server). Nobody waits for it, and at most one of its goroutines gets stuck.
type closer struct {
	mu   sync.Mutex
	list []*os.File
	busy bool
}

func (c *closer) close(f *os.File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, f)
	if !c.busy {
		c.busy = true
		go c.run()
	}
}

func (c *closer) run() {
	for f := c.next(); f != nil; f = c.next() {
		f.Close()
	}
}

// next returns a descriptor to close; nil ends the goroutine.
func (c *closer) next() *os.File {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.list) == 0 {
		c.busy, c.list = false, nil
		return nil
	}
	f := c.list[0]
	c.list = c.list[1:]
	return f
}
