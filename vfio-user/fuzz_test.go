// SPDX-License-Identifier: Apache-2.0

package vfiouser_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
	"github.com/vrnic/vrnic/vfio-user/conformance"
	"golang.org/x/sys/unix"
)

// FuzzServerMessage sends anything to a server, behind a VERSION and with some
// eventfds, and answers DMA messages as it likes. What comes back must be
// well-formed replies to commands that wanted one and well-formed DMA messages
// inside of what is mapped, and the server must be there for the next client.
//
// By hand: go test -fuzz FuzzServerMessage -fuzzminimizetime=1x.
func FuzzServerMessage(f *testing.F) {
	for _, c := range conformance.Cases() {
		for _, s := range c.Steps {
			if len(s.Send) < 512 {
				f.Add(s.Send, byte(len(s.FDs)), []byte{})
			}
		}
	}
	file := memory(f, 0x10000)
	f.Cleanup(func() { file.Close() })
	layout := mappedLayout(file, vfiouser.Area{Offset: 0x2000, Size: 0x1000})
	layout.IRQs = [vfiouser.NumIRQs]uint32{vfiouser.IRQIntx: 1, vfiouser.IRQMSIX: 65, vfiouser.IRQErr: 1, vfiouser.IRQReq: 1}
	path, _ := serveLayout(f, &fuzzDevice{}, layout, vfiouser.Options{BusyWait: patience})
	event := eventFD(f)
	defer unix.Close(event)
	f.Fuzz(func(t *testing.T, data []byte, fds byte, answers []byte) {
		nc, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		conn := nc.(*net.UnixConn)
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		version := conformance.Message(0, vfiouser.CmdVersion, 0, conformance.U32(0), []byte(vfiouser.QEMUCapabilities), []byte{0})
		roundTrip(t, conn, version, make([]byte, 512))

		w := newFuzzWriter(conn)
		defer w.close()
		w.write(data, slices.Repeat([]int{event}, int(fds%16))...)
		if whole(data) {
			w.write(lastWrite) // its reply comes when all DMA is over
		} else {
			w.close()
		}
		for {
			var head [16]byte
			_, err := io.ReadFull(conn, head[:])
			if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			h := vfiouser.ParseHeader(head[:])
			if h.Size < 16 || h.Size > conformance.Largest {
				t.Fatalf("malformed message %+v", h)
			}
			payload := make([]byte, h.Size-16)
			if _, err := io.ReadFull(conn, payload); err != nil {
				t.Fatal(err)
			}
			switch {
			case h.Flags == vfiouser.FlagCommand:
				checkDMA(t, h, payload)
				var reply []byte
				if reply, answers = fuzzAnswer(h, payload, answers); reply == nil {
					w.close()
				} else {
					w.write(reply)
				}
			case h.Flags == vfiouser.FlagReply|vfiouser.FlagError && len(payload) == 0 && h.Errno != 0:
			case h.Flags == vfiouser.FlagReply && h.Errno == 0:
			default:
				t.Fatalf("malformed reply %+v", h)
			}
			if h.IsReply() && h.ID == lastID {
				w.close()
			}
		}
	})
}

const lastID = 0xffff

// lastWrite is a config write, for which the server settles.
var lastWrite = conformance.Message(lastID, vfiouser.CmdRegionWrite, 0, conformance.U64(0), conformance.U32(vfiouser.RegionConfig, 1), []byte{0})

// whole tells whether data consists of whole messages.
func whole(data []byte) bool {
	for len(data) > 0 {
		if len(data) < 16 {
			return false
		}
		h := vfiouser.ParseHeader(data)
		if h.Size < 16 || uint64(h.Size) > uint64(len(data)) {
			return false
		}
		data = data[h.Size:]
	}
	return true
}

func checkDMA(t *testing.T, h vfiouser.Header, p []byte) {
	if h.Command != vfiouser.CmdDMARead && h.Command != vfiouser.CmdDMAWrite || h.Errno != 0 || len(p) < 16 {
		t.Fatalf("malformed command %+v", h)
	}
	count := binary.LittleEndian.Uint64(p[8:])
	want := uint64(16)
	if h.Command == vfiouser.CmdDMAWrite {
		want += count
	}
	if count > 64<<10 || uint64(len(p)) != want {
		t.Fatalf("%v of %d bytes with count %d", h.Command, len(p), count)
	}
}

// fuzzAnswer makes an answer to a DMA message of the first bytes of from: how, and
// with what. It gives what is left of from, and nil for no answer at all.
func fuzzAnswer(h vfiouser.Header, p, from []byte) (reply, rest []byte) {
	how := byte(0)
	if len(from) > 0 {
		how, from = from[0], from[1:]
	}
	n := min(len(from), int(how>>3))
	own := from[:n]
	good := slices.Clone(p[:16])
	if h.Command == vfiouser.CmdDMARead {
		good = append(good, make([]byte, binary.LittleEndian.Uint64(p[8:]))...)
	}
	r := vfiouser.Header{ID: h.ID, Command: h.Command, Flags: vfiouser.FlagReply}
	switch how & 7 {
	case 0: // as it should be
		return message(r, good), from[n:]
	case 1: // with a payload of any kind
		return message(r, own), from[n:]
	case 2: // with a part of the payload changed
		copy(good, own)
		return message(r, good), from[n:]
	case 3: // with a payload that is too long or too short
		return message(r, append(good[:len(good)-n/2], own...)), from[n:]
	case 4: // an error
		r.Flags |= vfiouser.FlagError
		r.Errno = uint32(how >> 3)
		return message(r, own), from[n:]
	case 5: // to another command or with another id
		r.ID += uint16(how>>3) & 1
		r.Command += vfiouser.Command(how>>4) & 1
		return append(message(r, good), message(vfiouser.Header{ID: h.ID, Command: h.Command, Flags: vfiouser.FlagReply}, good)...), from[n:]
	case 6: // twice
		return append(message(r, good), message(r, good)...), from[n:]
	}
	return nil, from[n:]
}

// fuzzWriter writes in the background: a server that waits for us to read must not
// find us waiting for it.
type fuzzWriter struct {
	queue chan fuzzWrite
	done  chan struct{}
	once  sync.Once
	open  bool
}

type fuzzWrite struct {
	b   []byte
	fds []int
}

func newFuzzWriter(conn *net.UnixConn) *fuzzWriter {
	w := &fuzzWriter{queue: make(chan fuzzWrite, 1000), done: make(chan struct{}), open: true}
	go func() {
		defer close(w.done)
		defer conn.CloseWrite()
		for m := range w.queue {
			if len(m.b) == 0 {
				continue
			}
			n, _, err := conn.WriteMsgUnix(m.b, unix.UnixRights(m.fds...), nil)
			if err == nil {
				conn.Write(m.b[n:]) // the server may have closed: that is what the replies tell
			}
		}
	}()
	return w
}

func (w *fuzzWriter) write(b []byte, fds ...int) {
	if w.open && len(w.queue) < cap(w.queue) {
		w.queue <- fuzzWrite{b, fds}
	}
}

// close ends what is sent, once that is written.
func (w *fuzzWriter) close() {
	w.open = false
	w.once.Do(func() { close(w.queue) })
}

// fuzzDevice does DMA by message at the address that is written to its BAR, raises
// interrupts, and is settled when its DMA is over. That needs the client, which is
// what a real device must not do; here the client answers at any time.
type fuzzDevice struct {
	signal      func(index, vector int)
	read, write transfer
	dma         sync.WaitGroup
	under       int
}

func (d *fuzzDevice) AttachMemory(read, write func(ctx context.Context, iova uint64, p []byte) error) {
	d.read, d.write = read, write
}
func (d *fuzzDevice) Attach(signal func(index, vector int)) { d.signal = signal }
func (d *fuzzDevice) Detach()                               { d.dma.Wait(); d.under = 0 }
func (d *fuzzDevice) Settle() func()                        { return d.dma.Wait }
func (d *fuzzDevice) ReadRegion(int, uint64, []byte) error  { return nil }
func (d *fuzzDevice) WriteRegion(region int, offset uint64, p []byte) error {
	if region == 0 && len(p) == 8 && d.under < 100 {
		d.under++
		iova, n := binary.LittleEndian.Uint64(p), int(offset)<<4
		read, write, signal := d.read, d.write, d.signal
		d.dma.Go(func() {
			b := make([]byte, n)
			if read(context.Background(), iova, b) == nil && write(context.Background(), iova, b) == nil {
				signal(vfiouser.IRQMSIX, n%65)
			}
		})
	}
	return nil
}
func (d *fuzzDevice) MapDMA(_, _ uint64, f *os.File, _ uint64, _, _ bool) error {
	if f != nil {
		f.Close()
	}
	return nil
}
func (d *fuzzDevice) UnmapDMA(_, _ uint64) error { return nil }
func (d *fuzzDevice) UnmapAllDMA()               {}
func (d *fuzzDevice) Reset()                     {}
