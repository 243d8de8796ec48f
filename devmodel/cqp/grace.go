// SPDX-License-Identifier: Apache-2.0

package cqp

// Grace tells when the data path, which runs beside the control lock, is done
// with objects unlinked before; *grace.Domain does.
type Grace interface {
	// Quiet tells whether nothing is under way.
	Quiet() bool
	// Wait returns when everything that was under way at the call is over.
	Wait()
}

// alwaysQuiet is the Grace of an engine without a data path.
type alwaysQuiet struct{}

func (alwaysQuiet) Quiet() bool { return true }
func (alwaysQuiet) Wait()       {}

// park puts off f, and with it all execution, until what the data path has
// under way is over. f runs with the control lock held, unless a reset or the
// end of the control QP comes first. At most one thing is parked, and at most
// one goroutine waits, whatever the guest does.
func (c *CQP) park(f func()) {
	c.parked = f
	c.parkings++
	if !c.waiting && !c.closed {
		c.waiting = true
		c.waiters.Go(c.wait)
	}
}

func (c *CQP) wait() {
	c.lock.Lock()
	defer c.lock.Unlock()
	for c.parked != nil {
		parking := c.parkings
		c.lock.Unlock()
		c.grace.Wait()
		c.lock.Lock()
		// What was parked since may need a longer wait than this one.
		if f := c.parked; f != nil && c.parkings == parking {
			c.parked = nil
			f()
		}
	}
	c.waiting = false
}

// Close resets the unit for good and returns when nothing of it runs any
// more. The caller does not hold the control lock.
func (c *CQP) Close() {
	c.lock.Lock()
	c.closed = true
	c.drop()
	c.lock.Unlock()
	c.waiters.Wait()
}
