// SPDX-License-Identifier: Apache-2.0

package devmodel

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/vrnic/vrnic/devmodel/cqp"
	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/fw"
)

// A guest that lets the card run over random memory, with just enough order in
// it to be taken seriously, costs it a bounded amount of memory and no
// goroutine; and beside it another card works.
func TestHostileGuestIsBounded(t *testing.T) {
	const ram = 2 << 20
	clock := &engine.ManualClock{}
	c := newCardOn(t, engine.Config{Shards: 1, Clock: clock})
	other := newCardOn(t, engine.Config{})
	c.setMaster()
	file := ramFile(t, ram)
	rnd := rand.New(rand.NewPCG(7, 7))
	if err := c.MapDMA(0, ram, file, 0, true, true); err != nil {
		t.Fatal(err)
	}
	fill := func() {
		p := make([]byte, ram)
		for i := 0; i < len(p); i += 8 {
			v := rnd.Uint64()
			switch rnd.IntN(4) {
			case 0: // addresses that exist, and small numbers
				v %= ram
			case 1: // CQP and admin opcodes
				v = v&^(0x3F<<32|0xFFFF0000) | uint64(rnd.IntN(0x30))<<32 | uint64(rnd.IntN(0xD00))<<16
			}
			if i%64 == 24 && rnd.IntN(16) != 0 {
				v |= 1 << 63 // a valid bit
			}
			binary.LittleEndian.PutUint64(p[i:], v)
		}
		for at := 0; at < ram; at += 4096 { // a control QP's context in each page
			binary.LittleEndian.PutUint64(p[at:], uint64(1+rnd.IntN(10))<<8|2<<3)
			binary.LittleEndian.PutUint64(p[at+8:], rnd.Uint64()%ram&^511)
			binary.LittleEndian.PutUint64(p[at+32:], 1<<16)
		}
		if err := c.mem.Write(0, p); err != nil {
			t.Fatal(err)
		}
	}
	goroutines := runtime.NumGoroutine()
	var before, after runtime.MemStats
	var commands, created, ops int // so that it is known to do something
	round := func() {
		fill()
		page := func() uint32 { return uint32(rnd.IntN(ram/4096)) * 4096 }
		c.wr(0x80300, 0)
		c.wr(0x80200, 1<<31|uint32(1+rnd.IntN(1023)))
		c.wr(0x80000, page())
		c.wr(0x80280, 1<<31|uint32(1+rnd.IntN(64)))
		c.wr(0x80080, page())
		c.wr(0x80480, uint32(rnd.IntN(64)))
		for range 4 {
			c.wr(0x80400, uint32(rnd.IntN(1023)))
		}
		c.wr(ccqpLow, page())
		for range 4 {
			c.wr(0x500800, uint32(rnd.IntN(2048)))
			for _, bell := range []uint64{0x504400, 0x502C00, 0x502C80, 0x502D00, 0x7F0000, 0x7F0040, 0x520300} {
				c.wr(bell, rnd.Uint32()>>rnd.IntN(32))
			}
			c.wr(0x2C0000+4*uint64(rnd.IntN(64)), uint32(rnd.IntN(64)))
		}
		clock.Advance(globalResetTime)
		if got := other.rd(nvmULD); got != 0x73B {
			t.Fatalf("the other card's GLNVM_ULD = %#x", got)
		}
		c.mu.Lock()
		for _, e := range c.events {
			switch e := e.(type) {
			case fw.Command:
				if e.Retval == 0 {
					commands++
				}
			case cqp.Created:
				created++
			case cqp.Op:
				ops++
			}
		}
		c.events = nil
		c.mu.Unlock()
	}
	for range 20 {
		round()
	}
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 40 {
		round()
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 16<<20 {
		t.Errorf("%d MiB more after 40 rounds", grown>>20)
	}
	if commands < 50 || created < 20 || ops < 100 {
		t.Errorf("%d admin commands, %d control QPs, %d of their operations", commands, created, ops)
	}
	c.Reset()
	c.until("goroutines are gone", func() bool { return runtime.NumGoroutine() <= goroutines })
}
