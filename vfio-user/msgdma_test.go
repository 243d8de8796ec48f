// SPDX-License-Identifier: Apache-2.0

package vfiouser_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
	"github.com/vrnic/vrnic/vfio-user/conformance"
	"golang.org/x/sys/unix"
)

type transfer = func(ctx context.Context, iova uint64, p []byte) error

// messaging is a device that does DMA by message when the test says so.
type messaging struct {
	*counter
	mu          sync.Mutex
	read, write transfer
	onRead      func(p []byte) error // instead of ReadRegion
}

func (d *messaging) AttachMemory(read, write func(ctx context.Context, iova uint64, p []byte) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.read, d.write = read, write
}

func (d *messaging) memory() (read, write transfer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.read, d.write
}

func (d *messaging) ReadRegion(region int, offset uint64, p []byte) error {
	if d.onRead != nil {
		return d.onRead(p)
	}
	return d.counter.ReadRegion(region, offset, p)
}

func newMessaging() *messaging { return &messaging{counter: newCounter()} }

// dialWith is dial with options.
func dialWith(t testing.TB, path string, opts vfiouser.ClientOptions) *vfiouser.Client {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := vfiouser.NewClient(conn.(*net.UnixConn), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

const (
	dmaRW   = vfiouser.DMARead | vfiouser.DMAWrite
	ramIOVA = 0x100000
	ramSize = 1 << 20
)

func pattern(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i*7 + i>>8)
	}
	return p
}

// dmaLog is an observer that keeps the DMA messages.
type dmaLog struct {
	mu   sync.Mutex
	sent []string // command, address and count
}

func (l *dmaLog) observe(m vfiouser.Message) {
	if m.Sent && (m.Command == vfiouser.CmdDMARead || m.Command == vfiouser.CmdDMAWrite) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.sent = append(l.sent, fmt.Sprintf("%v %x+%x", m.Command, binary.LittleEndian.Uint64(m.Payload), binary.LittleEndian.Uint64(m.Payload[8:])))
	}
}

func (l *dmaLog) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := strings.Join(l.sent, ", ")
	l.sent = nil
	return s
}

// TestMessageDMA: memory without a descriptor is reached in pieces, at its place,
// with one probe before the first.
func TestMessageDMA(t *testing.T) {
	small := `{"capabilities": {"max_msg_fds": 8, "max_data_xfer_size": 4096, "twin_socket": {"supported": false}}}`
	for _, tt := range []struct {
		name         string
		capabilities string
		write, read  string // messages for 0x21000 bytes from 0x101ff0 on
	}{
		{"64 KiB", "", "DMA_WRITE 101ff0+0, DMA_WRITE 101ff0+10000, DMA_WRITE 111ff0+10000, DMA_WRITE 121ff0+10",
			"DMA_READ 101ff0+10000, DMA_READ 111ff0+10000, DMA_READ 121ff0+10"},
		{"the client's limit", small, "", ""},
		{"twin socket", vfiouser.TwinCapabilities, "DMA_WRITE 101ff0+0, DMA_WRITE 101ff0+10000, DMA_WRITE 111ff0+10000, DMA_WRITE 121ff0+10",
			"DMA_READ 101ff0+10000, DMA_READ 111ff0+10000, DMA_READ 121ff0+10"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log dmaLog
			dev := newMessaging()
			path, _ := serveLayout(t, dev, smallLayout(), vfiouser.Options{Observer: log.observe})
			c := dialWith(t, path, vfiouser.ClientOptions{Capabilities: tt.capabilities})
			ram := memory(t, ramSize)
			defer ram.Close()
			if err := c.MapDMAs([]vfiouser.DMARange{
				{IOVA: ramIOVA, Size: 0x4000, Guest: ram, Flags: dmaRW},
				{IOVA: ramIOVA + 0x4000, Size: ramSize - 0x4000, Offset: 0x4000, Guest: ram, Flags: dmaRW},
			}); err != nil {
				t.Fatal(err)
			}
			read, write := dev.memory()
			data := pattern(0x20010)
			if err := write(t.Context(), ramIOVA+0x1ff0, data); err != nil {
				t.Fatal(err)
			}
			if got := log.take(); tt.write != "" && got != tt.write {
				t.Errorf("write sent %s, want %s", got, tt.write)
			} else if n := strings.Count(got, "1000") + strings.Count(got, "+10,"); tt.write == "" && n < 32 {
				t.Errorf("write sent %s, want pieces of 4096", got)
			}
			got := make([]byte, ramSize)
			if _, err := ram.ReadAt(got, 0); err != nil {
				t.Fatal(err)
			}
			if want := append(append(make([]byte, 0x1ff0), data...), make([]byte, ramSize-0x1ff0-len(data))...); !bytes.Equal(got, want) {
				t.Error("memory differs from what was written")
			}
			back := make([]byte, len(data))
			if err := read(t.Context(), ramIOVA+0x1ff0, back); err != nil || !bytes.Equal(back, data) {
				t.Errorf("read back different, %v", err)
			}
			if got := log.take(); tt.read != "" && got != tt.read {
				t.Errorf("read sent %s, want %s", got, tt.read)
			}
			if err := read(t.Context(), 0, nil); err != nil {
				t.Errorf("read of nothing: %v", err)
			}
		})
	}
}

// TestMessageDMARanges: nothing is sent about what is not mapped for it.
func TestMessageDMARanges(t *testing.T) {
	var log dmaLog
	dev := newMessaging()
	path, _ := serveLayout(t, dev, smallLayout(), vfiouser.Options{Observer: log.observe})
	c := dial(t, path)
	ram := memory(t, ramSize)
	defer ram.Close()
	top := uint64(math.MaxUint64 - 0xfff) // the last page there is
	if err := c.MapDMAs([]vfiouser.DMARange{
		{IOVA: ramIOVA, Size: 0x2000, Guest: ram, Flags: dmaRW},
		{IOVA: 0x200000, Size: 0x1000, Guest: ram, Flags: vfiouser.DMARead},
		{IOVA: 0x201000, Size: 0x1000, Guest: ram, Flags: vfiouser.DMAWrite},
		{IOVA: 0x300000, Size: 0x1000, Flags: dmaRW}, // nothing behind it
		{IOVA: top, Size: 0x1000, Guest: ram, Flags: dmaRW},
	}); err != nil {
		t.Fatal(err)
	}
	read, write := dev.memory()
	if err := read(t.Context(), ramIOVA, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	log.take()
	for _, tt := range []struct {
		name  string
		do    transfer
		iova  uint64
		n     int
		errno error
		sends bool
	}{
		{"below", read, ramIOVA - 1, 2, unix.EFAULT, false},
		{"end", write, ramIOVA + 0x1ff8, 9, unix.EFAULT, false},
		{"up to the end", write, ramIOVA + 0x1ff8, 8, nil, true},
		{"read-only read", read, 0x200ff8, 8, nil, true},
		{"read-only write", write, 0x200000, 8, unix.EFAULT, false},
		{"write-only read", read, 0x200ff8, 16, unix.EFAULT, false},
		{"write-only write", write, 0x201000, 16, nil, true},
		{"the client has nothing there", read, 0x300000, 16, unix.ENODEV, true},
		{"last page", write, top, 0x1000, nil, true},
		{"wraps", read, top + 0xff8, 16, unix.EFAULT, false},
		{"far", read, 1 << 60, 16, unix.EFAULT, false},
	} {
		err := tt.do(t.Context(), tt.iova, make([]byte, tt.n))
		if tt.errno == nil && err != nil || !errors.Is(err, tt.errno) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.errno)
		}
		if sent := log.take(); (sent != "") != tt.sends {
			t.Errorf("%s: sent %q", tt.name, sent)
		}
	}
	for _, unmap := range []func() error{func() error { return c.UnmapDMA(0, 0x200000) }, c.UnmapAllDMA} {
		if err := unmap(); err != nil {
			t.Fatal(err)
		}
		if err := read(t.Context(), ramIOVA, make([]byte, 8)); !errors.Is(err, unix.EFAULT) {
			t.Errorf("read after the unmap: %v, want EFAULT", err)
		}
	}
	if err := read(t.Context(), 0x200000, make([]byte, 8)); !errors.Is(err, unix.EFAULT) {
		t.Errorf("read after unmap all: %v, want EFAULT", err)
	}
}

// TestClientTakesNoData: such a client is not asked for anything.
func TestClientTakesNoData(t *testing.T) {
	dev := newMessaging()
	path, _ := serveLayout(t, dev, smallLayout(), vfiouser.Options{})
	c := dialWith(t, path, vfiouser.ClientOptions{Capabilities: `{"capabilities": {"max_msg_fds": 8, "max_data_xfer_size": 0, "max_dma_maps": 100}}`, Minor: 1})
	if err := c.MapDMA(ramIOVA, ramSize, nil, 0, dmaRW); err != nil {
		t.Fatal(err)
	}
	if read, _ := dev.memory(); !errors.Is(read(t.Context(), ramIOVA, make([]byte, 8)), unix.ENOTSUP) {
		t.Error("read did not fail with ENOTSUP")
	}
	dialNoJSON := func() {
		c.Close()
		c := dialWith(t, path, vfiouser.ClientOptions{NoJSON: true})
		if err := c.Write32(0, 0, 1); err != nil {
			t.Error(err)
		}
	}
	dialNoJSON()
}

// TestNarrowDMA: QEMU 10's encoding is found out before any data goes wrong.
func TestNarrowDMA(t *testing.T) {
	dev := newMessaging()
	path, _ := serveLayout(t, dev, smallLayout(), vfiouser.Options{})
	c := dialWith(t, path, vfiouser.ClientOptions{NarrowDMA: true})
	ram := memory(t, ramSize)
	defer ram.Close()
	if err := c.MapDMAs([]vfiouser.DMARange{{IOVA: ramIOVA, Size: ramSize, Guest: ram, Flags: dmaRW}}); err != nil {
		t.Fatal(err)
	}
	read, write := dev.memory()
	for range 2 {
		if err := write(t.Context(), ramIOVA, pattern(100)); !errors.Is(err, vfiouser.ErrNarrowDMA) {
			t.Errorf("write: %v, want ErrNarrowDMA", err)
		}
		if err := read(t.Context(), ramIOVA, make([]byte, 100)); !errors.Is(err, vfiouser.ErrNarrowDMA) {
			t.Errorf("read: %v, want ErrNarrowDMA", err)
		}
	}
	for _, hint := range []string{"QEMU 11", "share=on"} {
		if !strings.Contains(vfiouser.ErrNarrowDMA.Error(), hint) {
			t.Errorf("%q does not name %s", vfiouser.ErrNarrowDMA, hint)
		}
	}
	got := make([]byte, 200)
	if _, err := ram.ReadAt(got, 0); err != nil || !bytes.Equal(got, make([]byte, 200)) {
		t.Errorf("memory was written: % x, %v", got, err)
	}
}

// TestMessageDMADeadlock: a device that waits for the client's memory before it
// replies gets no answer, as with QEMU. With a twin socket it does.
func TestMessageDMADeadlock(t *testing.T) {
	for _, twin := range []bool{false, true} {
		dev := newMessaging()
		dev.onRead = func(p []byte) error {
			read, _ := dev.memory()
			limit := patience
			if !twin {
				limit = 100 * time.Millisecond // the answer cannot come
			}
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			return read(ctx, ramIOVA+0x80, p)
		}
		path, _ := serveLayout(t, dev, smallLayout(), vfiouser.Options{})
		opts := vfiouser.ClientOptions{Timeout: patience}
		if twin {
			opts.Capabilities = vfiouser.TwinCapabilities
		}
		c := dialWith(t, path, opts)
		ram := memory(t, ramSize)
		defer ram.Close()
		if _, err := ram.WriteAt([]byte{1, 2, 3, 4}, 0x80); err != nil {
			t.Fatal(err)
		}
		if err := c.MapDMAs([]vfiouser.DMARange{{IOVA: ramIOVA, Size: ramSize, Guest: ram, Flags: dmaRW}}); err != nil {
			t.Fatal(err)
		}
		v, err := c.Read32(0, 0)
		if twin && (err != nil || v != 0x04030201) {
			t.Errorf("with a twin socket: %#x, %v", v, err)
		}
		if !twin && !errors.Is(err, unix.EINVAL) { // what an error without errno is sent as
			t.Errorf("without: %#x, %v; want EINVAL", v, err)
		}
		if c.Err() != nil {
			t.Errorf("connection ended: %v", c.Err())
		}
	}
}

// peer is a raw client of a messaging device, with a range mapped and the device's
// DMA in its hands.
func peer(t *testing.T) (conn *net.UnixConn, dev *messaging) {
	t.Helper()
	dev = newMessaging()
	path, _ := serveLayout(t, dev, smallLayout(), vfiouser.Options{})
	conn = rawClient(t, path).(*net.UnixConn)
	send(t, conn, conformance.Message(1, vfiouser.CmdDMAMap, 0, conformance.U32(32, 3), conformance.U64(0, ramIOVA, ramSize)))
	expectIDs(t, conn, 0, 1)
	return conn, dev
}

// answer replies to the DMA message h with payload p.
func answer(h vfiouser.Header, p []byte) []byte {
	return message(vfiouser.Header{ID: h.ID, Command: h.Command, Flags: vfiouser.FlagReply}, p)
}

// begin has the device start a transfer and takes the message.
func begin(t *testing.T, conn net.Conn, do transfer, p []byte) (vfiouser.Header, []byte, chan error) {
	t.Helper()
	result := make(chan error, 1)
	go func() { result <- do(context.Background(), ramIOVA, p) }()
	h, payload := next(t, conn)
	return h, payload, result
}

// probed gets the probe out of the way.
func probed(t *testing.T, conn net.Conn, dev *messaging) {
	t.Helper()
	_, write := dev.memory()
	h, p, result := begin(t, conn, write, []byte{1})
	if !bytes.Equal(p, conformance.U64(ramIOVA, 0)) || h.Command != vfiouser.CmdDMAWrite {
		t.Fatalf("%+v with % x is no probe", h, p)
	}
	send(t, conn, answer(h, p))
	h, p = next(t, conn)
	if !bytes.Equal(p, append(conformance.U64(ramIOVA, 1), 1)) {
		t.Fatalf("%+v with % x after the probe", h, p)
	}
	send(t, conn, answer(h, p[:16]))
	if err := <-result; err != nil {
		t.Fatal(err)
	}
}

// TestHostileAnswers: whatever the client answers, the device gets an error or
// what it asked for.
func TestHostileAnswers(t *testing.T) {
	conn, dev := peer(t)
	probed(t, conn, dev)
	read, write := dev.memory()
	u64, u32 := conformance.U64, conformance.U32
	fail := func(errno uint32, p []byte) func(h vfiouser.Header) []byte {
		return func(h vfiouser.Header) []byte {
			return message(vfiouser.Header{ID: h.ID, Command: h.Command, Flags: vfiouser.FlagReply | vfiouser.FlagError, Errno: errno}, p)
		}
	}
	ok := func(parts ...[]byte) func(h vfiouser.Header) []byte {
		return func(h vfiouser.Header) []byte { return answer(h, bytes.Join(parts, nil)) }
	}
	for _, tt := range []struct {
		name   string
		do     transfer
		answer func(h vfiouser.Header) []byte
		want   error
	}{
		{"error", read, fail(uint32(unix.ENODEV), nil), unix.ENODEV},
		{"error with payload", read, fail(uint32(unix.EPERM), make([]byte, 24)), unix.EPERM},
		{"error 0", write, fail(0, nil), unix.EIO},
		{"error that is none", write, fail(0xfffffff0, nil), unix.EIO},
		{"bare", read, ok(), vfiouser.ErrProtocol},
		{"bare write", write, ok(), vfiouser.ErrProtocol},
		{"15 bytes", read, ok(make([]byte, 15)), vfiouser.ErrProtocol},
		{"no data", read, ok(u64(ramIOVA, 8)), vfiouser.ErrProtocol},
		{"too little data", read, ok(u64(ramIOVA, 8), make([]byte, 7)), vfiouser.ErrProtocol},
		{"too much data", read, ok(u64(ramIOVA, 8), make([]byte, 9)), vfiouser.ErrProtocol},
		{"larger count", read, ok(u64(ramIOVA, 9), make([]byte, 9)), vfiouser.ErrProtocol},
		{"huge count", read, ok(u64(ramIOVA, math.MaxUint64), make([]byte, 8)), vfiouser.ErrProtocol},
		{"other address", read, ok(u64(ramIOVA+1, 8), make([]byte, 8)), vfiouser.ErrProtocol},
		{"write with data", write, ok(u64(ramIOVA, 8), make([]byte, 8)), vfiouser.ErrProtocol},
		{"write of more", write, ok(u64(ramIOVA, 9)), vfiouser.ErrProtocol},
		{"nothing done", read, ok(u64(ramIOVA, 0)), unix.EIO},
		{"nothing written", write, ok(u64(ramIOVA, 0)), unix.EIO},
		{"QEMU 10's read", read, ok(u64(ramIOVA), u32(8), make([]byte, 12)), nil}, // cannot be told apart when all is 0
		{"fine", read, ok(u64(ramIOVA, 8), make([]byte, 8)), nil},
	} {
		h, _, result := begin(t, conn, tt.do, make([]byte, 8))
		send(t, conn, tt.answer(h))
		if err := <-result; tt.want == nil && err != nil || !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}

	// Answers to nothing.
	h, _, result := begin(t, conn, read, make([]byte, 8))
	other := h
	other.ID++
	send(t, conn, answer(other, u64(ramIOVA, 8)))
	expectIDs(t, conn, unix.EINVAL, other.ID)
	other = h
	other.Command = vfiouser.CmdDMAWrite
	send(t, conn, answer(other, u64(ramIOVA, 8)))
	expectIDs(t, conn, unix.EINVAL, other.ID)
	send(t, conn, answer(h, append(u64(ramIOVA, 8), make([]byte, 8)...)), answer(h, u64(ramIOVA, 8)))
	expectIDs(t, conn, unix.EINVAL, h.ID)
	if err := <-result; err != nil {
		t.Error(err)
	}
}

// TestShortTransfer: a client may do a part; the rest is asked for.
func TestShortTransfer(t *testing.T) {
	conn, dev := peer(t)
	probed(t, conn, dev)
	read, write := dev.memory()
	u64 := conformance.U64
	got := make([]byte, 8)
	h, _, result := begin(t, conn, read, got)
	send(t, conn, answer(h, append(u64(ramIOVA, 3), 1, 2, 3)))
	h, p := next(t, conn)
	if !bytes.Equal(p, u64(ramIOVA+3, 5)) {
		t.Errorf("second message % x", p)
	}
	send(t, conn, answer(h, append(u64(ramIOVA+3, 5), 4, 5, 6, 7, 8)))
	if err := <-result; err != nil || !bytes.Equal(got, []byte{1, 2, 3, 4, 5, 6, 7, 8}) {
		t.Errorf("% x, %v", got, err)
	}
	h, _, result = begin(t, conn, write, []byte{1, 2, 3})
	send(t, conn, answer(h, u64(ramIOVA, 1)))
	h, p = next(t, conn)
	if !bytes.Equal(p, append(u64(ramIOVA+1, 2), 2, 3)) {
		t.Errorf("second message % x", p)
	}
	send(t, conn, answer(h, p[:16]))
	if err := <-result; err != nil {
		t.Error(err)
	}
}

// TestAbandonedDMA: who gives up is not written to by the answer, and answers may
// come in any order.
func TestAbandonedDMA(t *testing.T) {
	conn, dev := peer(t)
	probed(t, conn, dev)
	read, _ := dev.memory()
	u64 := conformance.U64
	because := errors.New("queue is gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	first, second := make([]byte, 8), make([]byte, 8)
	result := make(chan error, 1)
	go func() { result <- read(ctx, ramIOVA, first) }()
	h1, _ := next(t, conn)
	h2, _, other := begin(t, conn, read, second)
	cancel(because)
	if err := <-result; !errors.Is(err, because) {
		t.Errorf("cancelled: %v, want its cause", err)
	}
	ones := []byte{1, 1, 1, 1, 1, 1, 1, 1}
	send(t, conn, answer(h2, append(u64(ramIOVA, 8), ones...)), answer(h1, append(u64(ramIOVA, 8), ones...)), readMessage(7))
	expectIDs(t, conn, 0, 7) // and nothing about the late answer
	if err := <-other; err != nil || !bytes.Equal(second, ones) {
		t.Errorf("other read: % x, %v", second, err)
	}
	if !bytes.Equal(first, make([]byte, 8)) {
		t.Errorf("late answer wrote % x", first)
	}
	if err := read(ctx, ramIOVA, first); !errors.Is(err, because) {
		t.Errorf("cancelled before: %v, want its cause", err)
	}
}

// TestUnansweredDMA: what is under way is bounded by what a client's socket takes,
// also when its callers gave up.
func TestUnansweredDMA(t *testing.T) {
	conn, dev := peer(t)
	probed(t, conn, dev)
	read, _ := dev.memory()
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for range 40 {
		callers.Go(func() { read(ctx, ramIOVA, make([]byte, 8)) })
	}
	for range 16 {
		next(t, conn)
	}
	cancel()
	callers.Wait()
	send(t, conn, readMessage(1))
	if h, _ := next(t, conn); h.Command != vfiouser.CmdRegionRead {
		t.Errorf("%+v after 16 unanswered messages", h)
	}
	waiting := make(chan error, 1)
	go func() { waiting <- read(context.Background(), ramIOVA, make([]byte, 64<<10)) }()
	conn.Close()
	if err := <-waiting; !errors.Is(err, unix.ENOTCONN) {
		t.Errorf("read when the client leaves: %v, want ENOTCONN", err)
	}
}

// TestDMAClientGone: calls end when the client does, and later ones fail, for this
// client's functions.
func TestDMAClientGone(t *testing.T) {
	dev := newMessaging()
	path, stop := serveLayout(t, dev, smallLayout(), vfiouser.Options{BusyWait: patience})
	for _, how := range []string{"client", "server"} {
		conn := rawClient(t, path).(*net.UnixConn)
		send(t, conn, conformance.Message(1, vfiouser.CmdDMAMap, 0, conformance.U32(32, 3), conformance.U64(0, ramIOVA, ramSize)))
		expectIDs(t, conn, 0, 1)
		read, write := dev.memory()
		_, _, result := begin(t, conn, read, make([]byte, 8))
		if how == "client" {
			conn.Close()
		} else if err := stop(); err != nil {
			t.Error(err)
		}
		if err := <-result; !errors.Is(err, unix.ENOTCONN) {
			t.Errorf("%s gone: %v, want ENOTCONN", how, err)
		}
		if err := write(t.Context(), ramIOVA, make([]byte, 8)); !errors.Is(err, unix.ENOTCONN) {
			t.Errorf("%s gone, later: %v, want ENOTCONN", how, err)
		}
	}
}

// TestDMARace: transfers from many goroutines while the client maps and unmaps,
// accesses regions and leaves.
func TestDMARace(t *testing.T) {
	for _, capabilities := range []string{"", vfiouser.TwinCapabilities} {
		dev := newMessaging()
		path, _ := serveLayout(t, dev, smallLayout(), vfiouser.Options{BusyWait: patience})
		ram := memory(t, ramSize)
		defer ram.Close()
		for range 3 {
			c := dialWith(t, path, vfiouser.ClientOptions{Capabilities: capabilities})
			all := []vfiouser.DMARange{{IOVA: ramIOVA, Size: ramSize, Guest: ram, Flags: dmaRW}}
			if err := c.MapDMAs(all); err != nil {
				t.Fatal(err)
			}
			read, write := dev.memory()
			var busy sync.WaitGroup
			for i := range 6 {
				busy.Go(func() {
					p := make([]byte, 10<<(2*i))
					for {
						err := errors.Join(write(t.Context(), ramIOVA, p), read(t.Context(), ramIOVA, p))
						if errors.Is(err, unix.ENOTCONN) {
							return
						}
						if err != nil && !errors.Is(err, unix.EFAULT) && !errors.Is(err, unix.ENODEV) {
							t.Errorf("transfer: %v", err)
							return
						}
					}
				})
			}
			for range 20 {
				if err := errors.Join(c.UnmapDMA(ramIOVA, ramSize), c.Write32(0, 0, 1), c.MapDMAs(all)); err != nil {
					t.Error(err)
				}
			}
			c.Close()
			busy.Wait()
		}
	}
}

// TestTwinSocketEnds: DMA ends with it, the connection does not.
func TestTwinSocketEnds(t *testing.T) {
	for name, bad := range map[string][]byte{"closed": nil, "a command": readMessage(1), "framing lost": make([]byte, 16),
		"unasked": message(vfiouser.Header{ID: 9, Command: vfiouser.CmdDMARead, Flags: vfiouser.FlagReply}, nil)} {
		t.Run(name, func(t *testing.T) {
			dev := newMessaging()
			path, _ := serveLayout(t, dev, smallLayout(), vfiouser.Options{})
			nc, err := net.Dial("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			conn := nc.(*net.UnixConn)
			send(t, conn, conformance.Message(0, vfiouser.CmdVersion, 0, conformance.U32(1<<16), []byte(vfiouser.TwinCapabilities), []byte{0}))
			buf, oob := make([]byte, 512), make([]byte, 100)
			n, oobn, _, _, err := conn.ReadMsgUnix(buf, oob)
			if err != nil {
				t.Fatal(err)
			}
			if want := `"twin_socket":{"supported":true,"fd_index":0}`; !bytes.Contains(buf[:n], []byte(want)) {
				t.Errorf("answer %q has no %s", buf[20:n], want)
			}
			msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
			if err != nil || len(msgs) != 1 {
				t.Fatalf("%d control messages, %v", len(msgs), err)
			}
			fds, err := unix.ParseUnixRights(&msgs[0])
			if err != nil || len(fds) != 1 {
				t.Fatalf("descriptors %v, %v", fds, err)
			}
			twin := os.NewFile(uintptr(fds[0]), "twin")
			if bad != nil {
				if _, err := twin.Write(bad); err != nil {
					t.Fatal(err)
				}
				if n, err := twin.Read(buf); n != 0 {
					t.Errorf("twin socket is not closed: %d, %v", n, err)
				}
			}
			twin.Close()
			send(t, conn, conformance.Message(1, vfiouser.CmdDMAMap, 0, conformance.U32(32, 3), conformance.U64(0, ramIOVA, ramSize)))
			expectIDs(t, conn, 0, 1)
			read, _ := dev.memory()
			if err := read(t.Context(), ramIOVA, make([]byte, 8)); !errors.Is(err, unix.ENOTCONN) {
				t.Errorf("read: %v, want ENOTCONN", err)
			}
			send(t, conn, readMessage(2))
			expectIDs(t, conn, 0, 2)
		})
	}
}

// TestNoTwinWithoutUse: a device without DMA by message has no second socket.
func TestNoTwinWithoutUse(t *testing.T) {
	path, _ := serveLayout(t, newCounter(), smallLayout(), vfiouser.Options{})
	c := dialWith(t, path, vfiouser.ClientOptions{Capabilities: vfiouser.TwinCapabilities})
	if err := c.Write32(0, 0, 1); err != nil {
		t.Error(err)
	}
}
