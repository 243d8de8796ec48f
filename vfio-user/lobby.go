// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"slices"
	"sync"
)

// lobby counts the connections of a server. Whoever has not agreed on a version
// makes place for a new one when there are too many, or silent clients would
// shut out the others.
type lobby struct {
	mu      sync.Mutex
	open    int     // connections, without those that were sent away
	silent  []*conn // those of them without a version, the oldest first
	crowded bool    // it has been full since a connection found it so
}

// enter takes a new connection in, and sends another away if that is needed. It
// tells whether there was a place, and whether the lobby has just become crowded.
func (l *lobby) enter(c *conn) (ok, crowded bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	full := l.open >= maxConns
	crowded = full && !l.crowded
	l.crowded = full
	if full {
		if len(l.silent) == 0 {
			return false, crowded
		}
		l.silent[0].sock.end()
		l.silent = slices.Delete(l.silent, 0, 1)
	} else {
		l.open++
	}
	l.silent = append(l.silent, c)
	return true, crowded
}

// agreed notes that c has a version. It fails if c was sent away.
func (l *lobby) agreed(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.silent, c)
	if i < 0 {
		return false
	}
	l.silent = slices.Delete(l.silent, i, i+1)
	c.heard = true
	return true
}

// leave forgets c.
func (l *lobby) leave(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.silent, c)
	if i >= 0 {
		l.silent = slices.Delete(l.silent, i, i+1)
	}
	if i >= 0 || c.heard {
		l.open--
	}
}
