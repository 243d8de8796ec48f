// SPDX-License-Identifier: Apache-2.0

package lan

// Receive takes a frame from the wire, on any goroutine, with no lock of the
// card held. The frame is valid during the call.
func (l *LAN) Receive(frame []byte) {
	if s := l.steering.Load(); s == nil || !s.Link {
		return
	}
	l.stats.received(frame)
}
