// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// The window keeps what a client has to send within its socket's buffer: QEMU
// (hw/vfio-user/proxy.c) loses the end of a reply that does not fit, and with it
// the connection. It also bounds the calls that were given up and whose answer
// may still come.
const (
	dmaWindow = 16                        // credits
	dmaCredit = maxDMAMessage / dmaWindow // bytes of data a credit is good for
)

// messenger does DMA by message on one connection.
type messenger struct {
	send   func(h Header, b []byte) error // one message; h is at the front of b
	ranges dmaRanges
	piece  int // most bytes of data in a message

	gone   chan struct{} // closed when the client is
	turn   chan struct{} // full while somebody sends
	window chan struct{} // one entry per credit in use

	// The owner of the turn has these.
	out      []byte
	encoding dmaEncoding

	mu      sync.Mutex
	pending map[uint16]*dmaCall
	lastID  uint16
	closed  bool
}

// dmaEncoding is what is known of the client's idea of the structure.
type dmaEncoding int

const (
	dmaUnknown dmaEncoding = iota
	dmaWide                // u64 count, as in the specification
	dmaNarrow              // u32 count: QEMU 10
)

// dmaCall is a DMA_READ or DMA_WRITE on its way.
type dmaCall struct {
	cmd     Command
	iova    uint64
	n       int
	credits int
	into    []byte        // DMA_READ: where the data goes; nil once the caller is away
	done    chan struct{} // closed when the following are valid
	moved   int           // bytes
	bare    bool          // the answer had no payload
	err     error
}

// newMessenger makes a messenger that waits for open before it sends anything.
func newMessenger(piece uint64, send func(h Header, b []byte) error) *messenger {
	d := &messenger{
		send:    send,
		piece:   int(min(piece, maxDMAMessage)),
		gone:    make(chan struct{}),
		turn:    make(chan struct{}, 1),
		window:  make(chan struct{}, dmaWindow),
		pending: make(map[uint16]*dmaCall),
	}
	d.turn <- struct{}{}
	return d
}

// open lets the first message go: nothing may come before the reply to VERSION.
func (d *messenger) open() { <-d.turn }

// close fails what waits and what comes later.
func (d *messenger) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.closed = true
		close(d.gone)
	}
}

// read and write are what a MessageDMA gets.
func (d *messenger) read(ctx context.Context, iova uint64, p []byte) error {
	return d.transfer(ctx, CmdDMARead, iova, p)
}

func (d *messenger) write(ctx context.Context, iova uint64, p []byte) error {
	return d.transfer(ctx, CmdDMAWrite, iova, p)
}

func (d *messenger) transfer(ctx context.Context, cmd Command, iova uint64, p []byte) error {
	for len(p) > 0 {
		n := min(len(p), d.piece)
		moved, err := d.exchange(ctx, cmd, iova, p[:n])
		if err != nil {
			return fmt.Errorf("%v of %#x+%#x: %w", cmd, iova, n, err)
		}
		iova += uint64(moved)
		p = p[moved:]
	}
	return nil
}

// exchange sends one message and waits for its answer. The client may do less
// than it was asked for, but not nothing.
func (d *messenger) exchange(ctx context.Context, cmd Command, iova uint64, p []byte) (int, error) {
	k, err := d.start(ctx, cmd, iova, p)
	if err != nil {
		return 0, err
	}
	if err := d.wait(ctx, k); err != nil {
		return 0, err
	}
	if k.moved == 0 {
		return 0, fmt.Errorf("client transferred nothing: %w", unix.EIO)
	}
	return k.moved, nil
}

func (d *messenger) start(ctx context.Context, cmd Command, iova uint64, p []byte) (*dmaCall, error) {
	if d.piece == 0 {
		return nil, fmt.Errorf("client takes no data: %w", unix.ENOTSUP)
	}
	if err := d.take(ctx, d.turn); err != nil {
		return nil, err
	}
	defer func() { <-d.turn }()
	if err := d.ranges.check(cmd, iova, len(p)); err != nil {
		return nil, err
	}
	if d.encoding == dmaUnknown {
		if err := d.probe(ctx, iova); err != nil {
			return nil, err
		}
	}
	if d.encoding == dmaNarrow {
		return nil, ErrNarrowDMA
	}
	return d.post(ctx, cmd, iova, p)
}

// probe finds out how the client encodes: the specification wants the structure
// back, QEMU 10 answers a DMA_WRITE with a bare header. Nothing is written.
func (d *messenger) probe(ctx context.Context, iova uint64) error {
	k, err := d.post(ctx, CmdDMAWrite, iova, nil)
	if err != nil {
		return err
	}
	if err := d.wait(ctx, k); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	d.encoding = dmaWide
	if k.bare {
		d.encoding = dmaNarrow
	}
	return nil
}

// post sends one message when the window has room. The caller has the turn.
func (d *messenger) post(ctx context.Context, cmd Command, iova uint64, p []byte) (*dmaCall, error) {
	k := &dmaCall{cmd: cmd, iova: iova, n: len(p), done: make(chan struct{})}
	for range max(1, (len(p)+dmaCredit-1)/dmaCredit) {
		if err := d.take(ctx, d.window); err != nil {
			d.release(k)
			return nil, err
		}
		k.credits++
	}
	// As late as possible: the range may have gone while others had the window.
	if err := d.ranges.check(cmd, iova, len(p)); err != nil {
		d.release(k)
		return nil, err
	}
	size := headerSize + dmaHeaderSize
	if cmd == CmdDMAWrite {
		size += len(p)
	} else {
		k.into = p
	}
	if size > len(d.out) {
		d.out = make([]byte, size)
	}
	b := d.out[:size]
	binary.LittleEndian.PutUint64(b[headerSize:], iova)
	binary.LittleEndian.PutUint64(b[headerSize+8:], uint64(len(p)))
	copy(b[headerSize+dmaHeaderSize:], p)
	h := Header{ID: d.register(k), Command: cmd, Size: uint32(size)}
	h.Put(b)
	if err := d.send(h, b); err != nil {
		d.abandon(k)
		return nil, fmt.Errorf("%w: %v", unix.ENOTCONN, err)
	}
	return k, nil
}

// take puts an entry into a channel that has room for few.
func (d *messenger) take(ctx context.Context, c chan<- struct{}) error {
	if err := d.stopped(ctx); err != nil {
		return err
	}
	select {
	case c <- struct{}{}:
		return nil
	case <-ctx.Done():
	case <-d.gone:
	}
	return d.stopped(ctx)
}

func (d *messenger) stopped(ctx context.Context) error {
	select {
	case <-d.gone:
		return fmt.Errorf("client is gone: %w", unix.ENOTCONN)
	default:
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

func (d *messenger) register(k *dmaCall) uint16 {
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		d.lastID++
		if d.pending[d.lastID] == nil {
			d.pending[d.lastID] = k
			return d.lastID
		}
	}
}

// release gives the credits of k back.
func (d *messenger) release(k *dmaCall) {
	for range k.credits {
		<-d.window
	}
	k.credits = 0
}

// abandon sees to it that a late answer touches nothing of the caller's. The
// credits stay with the call until that comes.
func (d *messenger) abandon(k *dmaCall) {
	d.mu.Lock()
	defer d.mu.Unlock()
	k.into = nil
}

func (d *messenger) wait(ctx context.Context, k *dmaCall) error {
	select {
	case <-k.done:
		return k.err
	case <-ctx.Done():
	case <-d.gone:
	}
	d.abandon(k)
	select {
	case <-k.done: // in the last moment
		return k.err
	default:
		return d.stopped(ctx)
	}
}

// answer takes a reply of the client. It tells whether that belongs to a call,
// given up or not.
func (d *messenger) answer(m *request) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := d.pending[m.ID]
	if k == nil || k.cmd != m.Command {
		return false
	}
	delete(d.pending, m.ID)
	d.release(k)
	k.take(m)
	close(k.done)
	return true
}

// take finds out what the reply says.
func (k *dmaCall) take(m *request) {
	p := m.payload
	switch {
	case m.Flags&FlagError != 0:
		errno := unix.Errno(m.Errno)
		if errno == 0 || errno > maxErrno {
			errno = unix.EIO
		}
		k.err = fmt.Errorf("client: %w", errno)
		return
	case len(p) == 0 && k.cmd == CmdDMAWrite && k.n == 0:
		k.bare = true
		return
	}
	malformed := func(what string) {
		k.err = fmt.Errorf("%w: answer %s: %w", ErrProtocol, what, unix.EIO)
	}
	if len(p) < dmaHeaderSize {
		malformed(fmt.Sprintf("of %d bytes", len(p)))
		return
	}
	iova, count := binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:])
	data := p[dmaHeaderSize:]
	want := uint64(0)
	if k.cmd == CmdDMARead {
		want = count
	}
	if iova != k.iova || count > uint64(k.n) || uint64(len(data)) != want {
		malformed(fmt.Sprintf("about %#x+%#x with %d bytes of data", iova, count, len(data)))
		return
	}
	copy(k.into, data)
	k.moved = int(count)
}
