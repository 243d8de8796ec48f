// SPDX-License-Identifier: Apache-2.0

package devmodel

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// ramFile is a file of n bytes for a map.
func ramFile(t testing.TB, n int64) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("devmodel-test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "devmodel-test")
	if err := f.Truncate(n); err != nil {
		t.Fatal(err)
	}
	return f
}

// setMaster allows DMA.
func (c *card) setMaster() {
	c.t.Helper()
	if err := c.WriteRegion(configRegion, command, []byte{6, 0}); err != nil {
		c.t.Fatal(err)
	}
}

// postAdmin sets up an admin queue at IOVA 0 and posts its first n slots.
func (c *card) postAdmin(n uint32) {
	for _, r := range []struct {
		off uint64
		v   uint32
	}{{0x80300, 0}, {0x80400, 0}, {0x80200, 1<<31 | 64}, {0x80000, 0}, {0x80100, 0}, {0x80400, n}} {
		c.wr(r.off, r.v)
	}
}

func (c *card) alarms() (found []Unreachable) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.events {
		if u, ok := e.(Unreachable); ok {
			found = append(found, u)
		}
	}
	return found
}

func TestMemoryWithoutDescriptorIsSaidOnce(t *testing.T) {
	c := newCard(t)
	for life := range 2 {
		c.setMaster()
		if err := c.MapDMA(0, 1<<16, nil, 0, true, true); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			c.postAdmin(1)
		}
		got := c.alarms()
		if len(got) != life+1 || got[life].Private || !strings.Contains(got[life].String(), "share=on") {
			t.Errorf("client %d: alarms %v", life, got)
		}
		c.Detach()
		c.attach()
	}
}

// Unmapped memory is the driver's fault, and no alarm.
func TestUnmappedMemoryIsNoAlarm(t *testing.T) {
	c := newCard(t)
	c.setMaster()
	c.postAdmin(1)
	if got := c.alarms(); len(got) != 0 {
		t.Errorf("alarms %v", got)
	}
}

func TestPrivateMemoryIsNoticed(t *testing.T) {
	command := make([]byte, 32)
	command[2] = 1
	for _, x := range []struct {
		name  string
		read  func(p []byte) error // what the client says of its memory
		alarm bool
	}{
		{"share=off", func(p []byte) error { copy(p, command); return nil }, true},
		{"blank for the guest, too", func(p []byte) error { clear(p); return nil }, false},
		{"shared, answered", func(p []byte) error { copy(p, []byte{7, 0, 0, 0, 0, 0, 3}); return nil }, false},
		{"a client that cannot tell", func([]byte) error { return errors.New("narrow") }, false},
	} {
		c := newCard(t)
		c.Detach()
		asked := make(chan uint64, 64)
		c.AttachMemory(func(_ context.Context, iova uint64, p []byte) error {
			c.rd(rstat) // the device's methods are free to be called meanwhile
			err := x.read(p)
			asked <- iova
			return err
		}, nil)
		c.attach()
		c.setMaster()
		if err := c.MapDMA(0, 1<<16, ramFile(t, 1<<16), 0, true, true); err != nil {
			t.Fatal(err)
		}
		c.postAdmin(3)
		if at := <-asked; at != 0 {
			t.Errorf("%s: asked for %#x", x.name, at)
		}
		c.postAdmin(2)
		if x.alarm {
			c.until("alarm", func() bool { return len(c.alarms()) > 0 })
		}
		c.Detach() // nothing is under way any more
		if got := c.alarms(); x.alarm != (len(got) == 1) || x.alarm && !got[0].Private {
			t.Errorf("%s: alarms %v", x.name, got)
		}
	}
}

// A client may go while it is being asked.
func TestDetachDuringAProbe(t *testing.T) {
	c := newCard(t)
	c.Detach()
	asked := make(chan struct{})
	c.AttachMemory(func(ctx context.Context, _ uint64, _ []byte) error {
		close(asked)
		<-ctx.Done()
		return ctx.Err()
	}, nil)
	c.attach()
	c.setMaster()
	if err := c.MapDMA(0, 1<<16, ramFile(t, 1<<16), 0, true, true); err != nil {
		t.Fatal(err)
	}
	c.postAdmin(1)
	<-asked
	c.Detach()
	if got := c.alarms(); len(got) != 0 {
		t.Errorf("alarms %v", got)
	}
}
