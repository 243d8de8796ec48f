// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	ethernet "github.com/vrnic/vrnic/devmodel/frame"
)

const (
	// notePatience is how long a capture waits for what a station has to say of
	// a frame, and noteBytes how much waits with it.
	notePatience = 100 * time.Millisecond
	noteBytes    = 16 << 20
)

// unsaid is said of a frame when the patience is over.
const unsaid = "verdict not known in time"

// Notes takes a station's comments on its own RoCE frames, for the capture. A
// frame is known by where its bytes are. Methods may be called from any
// goroutine; a nil Notes is not to be used.
type Notes struct{ port *Port }

// Notes makes the capture ask the port's station for comments. It is called
// before the first frame. nil: there is no capture.
func (p *Port) Notes() *Notes {
	if p.sw.capture == nil {
		return nil
	}
	p.noted.Store(true)
	return &Notes{p}
}

// Outgoing says what the frame is that the station sends next from that memory.
// After Send the caller forgets it, with an empty text: it may not have left.
func (n *Notes) Outgoing(f []byte, text string) {
	c := n.port.sw.capture
	c.mu.Lock()
	defer c.mu.Unlock()
	if text == "" {
		delete(c.said, &f[0])
	} else {
		c.said[&f[0]] = text
	}
}

// Incoming is the note on a frame that the station's Receive has been given, and
// is called during that. nil: nobody wants to know.
func (n *Notes) Incoming(f []byte) *Note {
	c := n.port.sw.capture
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.noted[noteKey{n.port.id, &f[0]}]
}

type noteKey struct {
	port uint16
	at   *byte
}

// Note is a captured frame that a station may comment on: while it is being
// received, and from Hold to Done. So long the capture keeps it, and everything
// behind it, but not for ever.
type Note struct {
	c         *Capture
	port      int
	direction pcapgo.NgEpbFlag
	at        time.Duration
	frame     *buffer
	text      string
	open      int // who may say more
}

// Say adds a comment.
func (n *Note) Say(text string) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	if n.text != "" {
		n.text += "; "
	}
	n.text += text
}

// Hold tells that there is more to be said after Receive.
func (n *Note) Hold() {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	n.open++
}

// Done ends a Hold.
func (n *Note) Done() {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	n.open--
	n.c.advance()
}

// receive captures a frame for the port's station and gives it to that.
func (p *Port) receive(f []byte) {
	c := p.sw.capture
	if c == nil {
		p.receiver.Receive(f)
		return
	}
	if p.noted.Load() {
		if i := ethernet.Parse(f); i.RoCE(f) {
			n := c.open(p, f)
			p.receiver.Receive(f)
			c.received(p, f, n)
			return
		}
	}
	c.write(p.tap, inbound, f, "")
	p.receiver.Receive(f)
}

// open captures a frame that a station may comment on.
func (c *Capture) open(p *Port, f []byte) *Note {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.room() {
		return nil
	}
	n := c.hold(p.tap, inbound, f)
	n.open = 1
	c.noted[noteKey{p.id, &f[0]}] = n
	return n
}

// received ends the Receive of a frame.
func (c *Capture) received(p *Port, f []byte, n *Note) {
	if n == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.noted, noteKey{p.id, &f[0]})
	n.open--
	c.advance()
}

// hold puts a frame behind those that wait for comments.
func (c *Capture) hold(port int, d pcapgo.NgEpbFlag, f []byte) *Note {
	n := &Note{c: c, port: port, direction: d, at: c.clock.Now(), frame: c.buffers.take(len(f))}
	copy(n.frame.bytes, f)
	c.frames++
	if len(c.held) == 0 {
		c.late.Reset(notePatience)
	}
	c.held = append(c.held, n)
	c.heldBytes += n.frame.cost()
	for c.heldBytes > noteBytes {
		c.release()
	}
	return n
}

// advance writes what waits for nobody.
func (c *Capture) advance() {
	for len(c.held) > 0 && c.held[0].open == 0 {
		c.release()
	}
}

// release writes the oldest frame that waits.
func (c *Capture) release() {
	n := c.held[0]
	c.held[0] = nil
	c.held = c.held[1:]
	c.heldBytes -= n.frame.cost()
	if n.open > 0 && n.text == "" {
		n.text = unsaid
	}
	if c.err == nil {
		c.encode(n.port, n.direction, n.at, n.frame.bytes, n.text)
	}
	c.buffers.release(n.frame)
	n.frame = nil
}

// expire writes what has waited too long.
func (c *Capture) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	for len(c.held) > 0 && now-c.held[0].at >= notePatience {
		c.release()
		c.advance()
	}
	if len(c.held) > 0 {
		c.late.Reset(c.held[0].at + notePatience - now)
	}
}
