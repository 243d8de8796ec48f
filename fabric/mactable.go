// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vrnic/vrnic/devmodel/engine"
)

// ways is how many stations share a bucket; a bucket is two cache lines.
const ways = 8

// ages is into how many ticks the time of aging is divided.
const ages = 4

// macTable remembers behind which port a station was last seen. Look-ups and
// refreshes take no lock; new stations and moves do. A station is forgotten
// when it was silent for the time of aging (up to a quarter more). When its
// bucket is full a new station takes the place of an expired one or of the
// longest silent one of the same port, never that of another port's: a port
// that floods the table harms nobody's entries but its own. Without a place a
// station is not learned, and frames to it are flooded.
type macTable struct {
	buckets []bucket
	shift   int
	now     atomic.Uint32 // ticks; the hot path reads no clock

	clock engine.Clock
	tick  time.Duration
	timer engine.Timer

	mu      sync.Mutex // guards changes of keys, Port.closed, Port.up and timer
	stopped bool
}

type bucket [ways]station

// station is an address with its port; key 0 is free.
type station struct {
	key  atomic.Uint64 // address<<16 | port
	seen atomic.Uint32 // tick
}

func (t *macTable) init(c engine.Clock, stations int, aging time.Duration) {
	n := 1 << bits.Len(uint((stations-1)/ways))
	t.buckets = make([]bucket, n)
	t.shift = 64 - bits.Len(uint(n-1))
	t.clock, t.tick = c, max(aging/ages, 1)
	t.now.Store(t.ticks())
	t.timer = c.NewTimer(t.advance)
	t.timer.Reset(t.tick)
}

func (t *macTable) ticks() uint32 { return uint32(t.clock.Now() / t.tick) }

func (t *macTable) advance() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now.Store(t.ticks())
	if !t.stopped {
		t.timer.Reset(t.tick)
	}
}

func (t *macTable) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	t.timer.Stop()
}

func (t *macTable) bucket(addr uint64) *bucket {
	return &t.buckets[addr*0x9e3779b97f4a7c15>>t.shift]
}

// find returns the id of the port behind which the station is.
func (t *macTable) find(addr uint64) (id uint16, ok bool) {
	b := t.bucket(addr)
	for i := range b {
		if k := b[i].key.Load(); k>>16 == addr && k != 0 {
			return uint16(k), t.now.Load()-b[i].seen.Load() <= ages
		}
	}
	return 0, false
}

// learn remembers that the station was heard behind p. Group addresses and
// that of zeros are nobody's.
func (t *macTable) learn(p *Port, addr uint64) {
	if addr == 0 || group(addr) {
		return
	}
	b, key, now := t.bucket(addr), addr<<16|uint64(p.id), t.now.Load()
	for i := range b {
		if b[i].key.Load() == key {
			if b[i].seen.Load() != now {
				b[i].seen.Store(now)
			}
			return
		}
	}
	if !t.insert(p, b, key, now) {
		p.crowded.Add(1)
	}
}

func (t *macTable) insert(p *Port, b *bucket, key uint64, now uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.closed || !p.up.Load() {
		return true // a frame that was under way; nothing to learn
	}
	var place *station
	better := 0
	for i := range b {
		s := &b[i]
		k, age := s.key.Load(), now-s.seen.Load()
		worth := 0
		switch {
		case k != 0 && k>>16 == key>>16:
			worth = 1 << 40 // the station itself, moved
		case k == 0:
			worth = 1 << 39
		case age > ages:
			worth = 1 << 38
		case uint16(k) == p.id:
			worth = 1 + int(age)
		}
		if worth > better {
			place, better = s, worth
		}
	}
	if place == nil {
		return false
	}
	place.seen.Store(now)
	place.key.Store(key)
	return true
}

// setLink switches the port's link; without link its stations are forgotten.
func (t *macTable) setLink(p *Port, up bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.up.Store(up && !p.closed)
	if !up {
		t.forget(p)
	}
}

// remove ends the port's part in the table.
func (t *macTable) remove(p *Port) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !p.closed {
		p.closed = true
		p.up.Store(false)
		t.forget(p)
	}
}

func (t *macTable) forget(p *Port) {
	for i := range t.buckets {
		for j := range t.buckets[i] {
			if s := &t.buckets[i][j]; s.key.Load() != 0 && uint16(s.key.Load()) == p.id {
				s.key.Store(0)
			}
		}
	}
}
