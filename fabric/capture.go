// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/vrnic/vrnic/devmodel/engine"
)

// captureBuffer bounds the bytes that wait for the writer; a frame more may be
// added. Senders wait when it is full.
const captureBuffer = 1 << 20

// readerPatience is how long a reader may take nothing while the writer waits
// for it. It is less than the 5 s after which QEMU gives a device up, whose
// reset may wait for a sender.
const readerPatience = 3 * time.Second

// pipePiece is how much is written at a time to what has deadlines: a pipe
// takes it whole or not at all (PIPE_BUF), so each is a sign of life.
const pipePiece = 4096

// Directions of a captured frame, as the station sees them.
const (
	inbound  = pcapgo.NgEpbFlagDirectionInbound
	outbound = pcapgo.NgEpbFlagDirectionOutbound
)

// Capture writes a pcapng file of what passes the ports of a switch: one
// interface per port, direction in epb_flags, times in nanoseconds. A frame is
// in it once at the port that sent it, before the impairment of that cable,
// and once at each port that got it, behind the impairment there.
//
// It loses nothing: when the writer is slow, senders wait for it. It is as
// live as the writer: what was captured is written at once when nothing else
// is being written, and nobody is asked for a comment (see Notes): then the order
// in which frames came is kept, and each waits for those before it. After an error it ends, with one CaptureEnded event, and
// the senders go on. So it does when a writer with deadlines (a pipe, a FIFO)
// has a reader that is there but takes nothing for 3 s.
type Capture struct {
	w        io.Writer
	patience time.Duration
	done     chan struct{} // the writer has ended

	mu            sync.Mutex
	changed       sync.Cond
	ng            *pcapgo.NgWriter // writes to pending
	pending, work []byte
	clock         engine.Clock
	epoch         time.Time // when clock was 0
	emit          func(any)
	err           error
	closed        bool
	frames        uint64
	flags         pcapgo.NgEpbFlags

	// Comments.
	said      map[*byte]string  // on frames about to be sent, by their first byte
	noted     map[noteKey]*Note // frames that are being received
	held      []*Note           // what waits for comments, and what came after it
	heldBytes int
	late      engine.Timer
	buffers   *buffers
}

// NewCapture captures to w. Give it to one switch in its Options, and close it
// before the switch, whose Close waits for senders. A w that has a method
// SetWriteDeadline, as an os.File has, and does not refuse it, as one of a
// regular file does, is not waited for without end.
func NewCapture(w io.Writer) *Capture { return newCapture(w, readerPatience) }

// NewLateCapture is NewCapture without the writer, which Start brings. Until
// then frames wait as for one that is slow.
func NewLateCapture() *Capture {
	c := &Capture{patience: readerPatience, done: make(chan struct{}), said: map[*byte]string{}, noted: map[noteKey]*Note{}}
	c.changed.L = &c.mu
	return c
}

// Start begins to write what was captured and will be. It is called once.
func (c *Capture) Start(w io.Writer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.w = w
	go c.run()
}

func newCapture(w io.Writer, patience time.Duration) *Capture {
	c := NewLateCapture()
	c.patience = patience
	c.Start(w)
	return c
}

// SetEpoch sets the time of day at which the switch's clock shows 0. Without
// it the times are those of today.
func (c *Capture) SetEpoch(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch = t
}

func (c *Capture) begin(clock engine.Clock, emit func(any), b *buffers) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock, c.emit, c.buffers = clock, emit, b
	c.late = clock.NewTimer(c.expire)
	if c.epoch.IsZero() {
		c.epoch = time.Now().Add(-clock.Now())
	}
}

// addInterface writes the block of a port.
func (c *Capture) addInterface(name string) (id int) {
	port := pcapgo.NgInterface{Name: name, LinkType: layers.LinkTypeEthernet, TimestampResolution: 9}
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.changed.Broadcast()
	if c.ng == nil {
		section := pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Application: "vrnic"}}
		ng, err := pcapgo.NewNgWriterInterface((*captureSink)(c), port, section)
		c.check(err)
		c.ng = ng
	} else {
		n, err := c.ng.AddInterface(port)
		c.check(err)
		id = n
	}
	c.check(c.ng.Flush())
	return id
}

// check keeps the first error of the encoder, whose memory cannot fail.
func (c *Capture) check(err error) {
	if err != nil {
		c.fail(fmt.Errorf("encode: %w", err))
	}
}

// write captures a frame. comment may be empty.
func (c *Capture) write(port int, d pcapgo.NgEpbFlag, frame []byte, comment string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.room() {
		return
	}
	if len(c.held) > 0 {
		c.hold(port, d, frame).text = comment
		return
	}
	c.frames++
	c.encode(port, d, c.clock.Now(), frame, comment)
}

// outgoing captures a frame that a station sends; key is where the station has
// it.
func (c *Capture) outgoing(port int, key *byte, frame []byte) {
	c.mu.Lock()
	comment := c.said[key]
	c.mu.Unlock()
	c.write(port, outbound, frame, comment)
}

// room waits for the writer. False: the capture has ended. The caller holds mu.
func (c *Capture) room() bool {
	for len(c.pending) >= captureBuffer && c.err == nil && !c.closed {
		c.changed.Wait()
	}
	return c.err == nil && !c.closed
}

// encode makes a frame's block. The caller holds mu.
func (c *Capture) encode(port int, d pcapgo.NgEpbFlag, at time.Duration, frame []byte, comment string) {
	info := gopacket.CaptureInfo{
		Timestamp:      c.epoch.Add(at),
		CaptureLength:  len(frame),
		Length:         len(frame),
		InterfaceIndex: port,
	}
	c.flags.Direction = d
	o := pcapgo.NgPacketOptions{Flags: &c.flags}
	if comment != "" {
		o.Comments = []string{comment}
	}
	c.check(c.ng.WritePacketWithOptions(info, frame, o))
	c.check(c.ng.Flush())
	c.changed.Broadcast()
}

// captureSink is where the encoder writes to.
type captureSink Capture

func (s *captureSink) Write(p []byte) (int, error) {
	s.pending = append(s.pending, p...)
	return len(p), nil
}

// run writes what is pending, all that has come meanwhile at a time.
func (c *Capture) run() {
	defer close(c.done)
	c.mu.Lock()
	for c.err == nil {
		for len(c.pending) == 0 && !c.closed && c.err == nil {
			c.changed.Wait()
		}
		if len(c.pending) == 0 {
			break
		}
		c.pending, c.work = c.work[:0], c.pending
		c.changed.Broadcast()
		c.mu.Unlock()
		err := c.put(c.work)
		c.mu.Lock()
		if err != nil {
			c.fail(err)
		}
	}
	err, emit := c.err, c.emit
	c.mu.Unlock()
	if err != nil && emit != nil {
		emit(CaptureEnded{err})
	}
}

// put writes b, as long as the reader takes some of it now and then.
func (c *Capture) put(b []byte) error {
	w, ok := c.w.(interface{ SetWriteDeadline(time.Time) error })
	for len(b) > 0 {
		piece := b
		if ok && w.SetWriteDeadline(time.Now().Add(c.patience)) == nil {
			piece = b[:min(len(b), pipePiece)]
		}
		n, err := c.w.Write(piece)
		switch late := errors.Is(err, os.ErrDeadlineExceeded); {
		case late && n == 0:
			return readerStopped{c.patience}
		case err != nil && !late:
			return fmt.Errorf("write: %w", err)
		}
		b = b[n:]
	}
	return nil
}

// readerStopped is the end of a capture whose reader takes nothing.
type readerStopped struct{ after time.Duration }

func (e readerStopped) Error() string {
	return fmt.Sprintf("its reader has not read for %g s", e.after.Seconds())
}

func (e readerStopped) Unwrap() error { return os.ErrDeadlineExceeded }

// fail ends the capture; run says so.
func (c *Capture) fail(err error) {
	if c.err == nil {
		c.err = err
		c.pending = nil
		c.changed.Broadcast()
	}
}

// Frames is the number of frames captured so far.
func (c *Capture) Frames() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.frames
}

// Close ends the capture: it writes what is left, as long as ctx allows, and
// wakes senders that wait; frames that are sent later are not captured. It
// returns the error that ended the capture earlier. The writer remains open.
func (c *Capture) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.w == nil && !c.closed {
		close(c.done) // nobody writes
	}
	for len(c.held) > 0 {
		c.release()
	}
	c.closed = true
	c.changed.Broadcast()
	c.mu.Unlock()
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return fmt.Errorf("capture: the end is not written: %w", ctx.Err())
	}
}
