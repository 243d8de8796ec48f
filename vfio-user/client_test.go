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
	"strings"
	"sync"
	"testing"
	"time"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
	"golang.org/x/sys/unix"
)

func readEvent(t *testing.T, fd int) uint64 {
	t.Helper()
	var b [8]byte
	if _, err := unix.Read(fd, b[:]); err != nil && err != unix.EAGAIN {
		t.Fatal(err)
	}
	return binary.NativeEndian.Uint64(b[:])
}

func TestClientInfo(t *testing.T) {
	path, _ := serve(t, vfiouser.Options{})
	c := dial(t, path)
	if got, want := c.Info(), (vfiouser.DeviceInfo{Flags: 3, Regions: 9, IRQs: 5}); got != want {
		t.Errorf("Info: %+v, want %+v", got, want)
	}
	region, err := c.RegionInfo(4)
	if want := (vfiouser.RegionInfo{Flags: 3, Size: 2 << 20}); err != nil || region != want {
		t.Errorf("RegionInfo: %+v, %v, want %+v", region, err, want)
	}
	irq, err := c.IRQInfo(vfiouser.IRQMSIX)
	if want := (vfiouser.IRQInfo{Flags: 1, Count: 2048}); err != nil || irq != want {
		t.Errorf("IRQInfo: %+v, %v, want %+v", irq, err, want)
	}
	if _, err := c.RegionInfo(9); !errors.Is(err, unix.EINVAL) {
		t.Errorf("RegionInfo of none: %v, want EINVAL", err)
	}
	if _, err := c.IRQInfo(5); !errors.Is(err, unix.EINVAL) {
		t.Errorf("IRQInfo of none: %v, want EINVAL", err)
	}
}

func TestClientRegions(t *testing.T) {
	path, _ := serve(t, vfiouser.Options{})
	c := dial(t, path)
	if err := c.Write64(0, 0, 0x1122334455667788); err != nil {
		t.Fatal(err)
	}
	if err := c.Post32(0, 4, 0xaabbccdd); err != nil {
		t.Fatal(err)
	}
	if v, err := c.Read64(0, 0); err != nil || v != 0xaabbccdd55667788 {
		t.Errorf("Read64: %#x, %v", v, err)
	}
	if v, err := c.Read32(0, 4); err != nil || v != 0xaabbccdd {
		t.Errorf("Read32: %#x, %v", v, err)
	}
	if err := c.Write32(2, 0, 1); !errors.Is(err, unix.EINVAL) {
		t.Errorf("write to a read-only region: %v, want EINVAL", err)
	}
	if err := c.PostRegion(2, 0, []byte{1}); err != nil {
		t.Errorf("post to a read-only region: %v", err)
	}
	big := slices.Repeat([]byte("abcdefgh"), 1<<17)
	if err := c.WriteRegion(4, 0, big); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(big))
	if err := c.ReadRegion(4, 0, got); err != nil || !slices.Equal(got, big) {
		t.Errorf("1 MiB came back different, %v", err)
	}
}

func TestClientPostRegions(t *testing.T) {
	var mu sync.Mutex
	messages := map[vfiouser.Command]int{}
	path, _ := serve(t, vfiouser.Options{Observer: func(m vfiouser.Message) {
		mu.Lock()
		defer mu.Unlock()
		if !m.Sent {
			messages[m.Command]++
		}
	}})
	writes := make([]vfiouser.RegionWriteOp, 450)
	for i := range writes {
		writes[i] = vfiouser.RegionWriteOp{Region: 4, Offset: uint64(4 * i), Data: binary.LittleEndian.AppendUint32(nil, uint32(i+1))}
	}
	count := func(cmd vfiouser.Command) int {
		mu.Lock()
		defer mu.Unlock()
		return messages[cmd]
	}
	check := func(c *vfiouser.Client) {
		t.Helper()
		if err := c.PostRegions(writes); err != nil {
			t.Fatal(err)
		}
		for _, i := range []int{0, 199, 200, 449} {
			if v, err := c.Read32(4, uint64(4*i)); err != nil || v != uint32(i+1) {
				t.Errorf("write %d: %#x, %v", i, v, err)
			}
		}
	}
	c := dial(t, path)
	check(c)
	if multi, single := count(vfiouser.CmdRegionWriteMulti), count(vfiouser.CmdRegionWrite); multi != 3 || single != 0 {
		t.Errorf("%d multiple and %d single writes, want 3 and 0", multi, single)
	}
	if err := c.PostRegions([]vfiouser.RegionWriteOp{{Data: make([]byte, 9)}}); err == nil {
		t.Error("9 bytes in a multiple write were sent")
	}
	c.Close()

	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c, err = vfiouser.NewClient(conn.(*net.UnixConn), vfiouser.ClientOptions{
		Capabilities: `{"capabilities":{"max_msg_fds":8,"max_data_xfer_size":1048576,"pgsizes":4096}}`})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	check(c)
	if multi, single := count(vfiouser.CmdRegionWriteMulti), count(vfiouser.CmdRegionWrite); multi != 3 || single != 450 {
		t.Errorf("%d multiple and %d single writes, want 3 and 450", multi, single)
	}
}

func TestClientDMA(t *testing.T) {
	path, _ := serve(t, vfiouser.Options{})
	c := dial(t, path)
	f := memory(t, 1<<20)
	defer f.Close()
	if _, err := f.WriteAt([]byte("guestmem"), 0x3008); err != nil {
		t.Fatal(err)
	}
	const regMaps, regAddress, regFetch = 0xf10, 0xf28, 0xf30
	ranges := []vfiouser.DMARange{
		{IOVA: 0x100000, Size: 0x1000, File: f, Offset: 0x3000, Flags: vfiouser.DMARead | vfiouser.DMAWrite},
		{IOVA: 0x200000, Size: 0x1000, Flags: vfiouser.DMARead},
		{IOVA: 0x100000, Size: 0x1000, File: f, Flags: vfiouser.DMARead},
		{IOVA: 0x300000, Size: 0x1000, File: f, Flags: vfiouser.DMARead},
	}
	if err := c.MapDMAs(ranges); !errors.Is(err, unix.EEXIST) {
		t.Errorf("MapDMAs with an overlap: %v, want EEXIST", err)
	}
	if v, err := c.Read32(0, regMaps); err != nil || v != 3 {
		t.Errorf("%d maps, %v, want 3", v, err)
	}
	if err := c.Write64(0, regAddress, 0x100008); err != nil {
		t.Fatal(err)
	}
	if v, err := c.Read64(0, regFetch); err != nil || v != binary.LittleEndian.Uint64([]byte("guestmem")) {
		t.Errorf("device read %#x, %v", v, err)
	}
	if err := c.UnmapDMA(0x100000, 0x180000); err != nil {
		t.Error(err)
	}
	if v, err := c.Read32(0, regMaps); err != nil || v != 1 {
		t.Errorf("%d maps after unmap, %v, want 1", v, err)
	}
	if err := c.UnmapAllDMA(); err != nil {
		t.Error(err)
	}
	if v, err := c.Read32(0, regMaps); err != nil || v != 0 {
		t.Errorf("%d maps after unmap of all, %v", v, err)
	}
}

// TestClientIRQChunks: lists of eventfds are cut as QEMU cuts them.
func TestClientIRQChunks(t *testing.T) {
	var mu sync.Mutex
	var got [][3]uint32 // start, count, descriptors
	path, _ := serve(t, vfiouser.Options{Observer: func(m vfiouser.Message) {
		if m.Command == vfiouser.CmdSetIRQs && !m.Sent {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, [3]uint32{binary.LittleEndian.Uint32(m.Payload[12:]), binary.LittleEndian.Uint32(m.Payload[16:]), uint32(m.FDs)})
		}
	}})
	c := dial(t, path)
	events := make([]int, 20)
	for i := range events {
		events[i] = eventFD(t)
		defer unix.Close(events[i])
	}
	if err := c.SetIRQ(vfiouser.IRQMSIX, 0, events); err != nil {
		t.Fatal(err)
	}
	if err := c.SetIRQ(vfiouser.IRQMSIX, 30, []int{events[0], -1, -1, events[1], events[2]}); err != nil {
		t.Fatal(err)
	}
	want := [][3]uint32{{0, 8, 8}, {8, 8, 8}, {16, 4, 4}, {30, 1, 1}, {31, 2, 0}, {33, 2, 2}}
	mu.Lock()
	if !slices.Equal(got, want) {
		t.Errorf("messages %v, want %v", got, want)
	}
	mu.Unlock()
	if err := c.TriggerIRQ(vfiouser.IRQMSIX, 18, 2); err != nil {
		t.Fatal(err)
	}
	for i, want := range map[int]uint64{17: 0, 18: 1, 19: 1} {
		if n := readEvent(t, events[i]); n != want {
			t.Errorf("vector %d: %d, want %d", i, n, want)
		}
	}
}

func TestBlockingEventFD(t *testing.T) {
	path, _ := serve(t, vfiouser.Options{})
	c := dial(t, path)
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := c.SetIRQ(vfiouser.IRQMSIX, 0, []int{fd}); err != nil {
		t.Fatal(err)
	}
	if err := c.TriggerIRQ(vfiouser.IRQMSIX, 0, 1); err != nil {
		t.Fatal(err)
	}
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(p, 0); n != 1 || err != nil {
		t.Fatalf("eventfd is not signalled: %v", err)
	}
	if n := readEvent(t, fd); n != 1 {
		t.Errorf("eventfd counted %d", n)
	}
}

func TestClientMasks(t *testing.T) {
	path, dev := serve(t, vfiouser.Options{})
	c := dial(t, path)
	event, resample := eventFD(t), eventFD(t)
	defer unix.Close(event)
	defer unix.Close(resample)
	if err := errors.Join(
		c.SetIRQ(vfiouser.IRQIntx, 0, []int{event}),
		c.MaskIRQ(vfiouser.IRQIntx, 0, 1),
		c.UnmaskIRQByEventFD(vfiouser.IRQIntx, 0, resample),
		c.UnmaskIRQ(vfiouser.IRQIntx, 0, 1),
	); err != nil {
		t.Fatal(err)
	}
	dev.Signal(vfiouser.IRQIntx, 0)
	dev.Signal(vfiouser.IRQIntx, 0)
	if n := readEvent(t, event); n != 1 {
		t.Fatalf("INTx counted %d, want 1", n)
	}
	if _, err := unix.Write(resample, binary.NativeEndian.AppendUint64(nil, 1)); err != nil {
		t.Fatal(err)
	}
	p := []unix.PollFd{{Fd: int32(event), Events: unix.POLLIN}}
	if n, err := unix.Poll(p, int(patience.Milliseconds())); n != 1 {
		t.Fatalf("INTx was not signalled again: %v", err)
	}
	if err := c.UnmaskIRQByEventFD(vfiouser.IRQIntx, 0, -1); err != nil {
		t.Error(err)
	}
}

// script plays a server by hand: each reply is built from the request.
func script(t *testing.T, replies ...func(h vfiouser.Header, payload []byte, conn *net.UnixConn)) *net.UnixConn {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ends := make([]*net.UnixConn, 2)
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		ends[i] = c.(*net.UnixConn)
	}
	var served sync.WaitGroup
	t.Cleanup(func() {
		ends[1].Close()
		served.Wait()
	})
	served.Go(func() {
		for _, reply := range replies {
			var head [16]byte
			if _, err := io.ReadFull(ends[1], head[:]); err != nil {
				return
			}
			h := vfiouser.ParseHeader(head[:])
			payload := make([]byte, h.Size-16)
			if _, err := io.ReadFull(ends[1], payload); err != nil {
				return
			}
			reply(h, payload, ends[1])
		}
	})
	return ends[0]
}

func message(h vfiouser.Header, payload []byte) []byte {
	b := make([]byte, 16)
	h.Size = uint32(16 + len(payload))
	h.Put(b)
	return append(b, payload...)
}

func versionReply(text string) func(vfiouser.Header, []byte, *net.UnixConn) {
	return func(h vfiouser.Header, _ []byte, conn *net.UnixConn) {
		h.Flags = vfiouser.FlagReply
		conn.Write(message(h, append(make([]byte, 4), text...)))
	}
}

func infoReply(h vfiouser.Header, p []byte, conn *net.UnixConn) {
	h.Flags = vfiouser.FlagReply
	conn.Write(message(h, p))
}

// TestClientIsStrict: every server that QEMU would choke on ends in ErrProtocol.
func TestClientIsStrict(t *testing.T) {
	fits := `{"capabilities":{"max_msg_fds":8}}` + "\x00"
	pad := func(n int) string { // JSON text of n bytes with its NUL
		return `{"capabilities":{}` + strings.Repeat(" ", n-len(`{"capabilities":{}`)-2) + "}\x00"
	}
	for name, text := range map[string]string{
		"reply longer than request": pad(199),
		"no NUL":                    "{}",
		"two NULs":                  "{}\x00\x00",
		"only NUL":                  "\x00",
		"too many descriptors":      `{"capabilities":{"max_msg_fds":17}}` + "\x00",
		"too large transfers":       `{"capabilities":{"max_data_xfer_size":67108865}}` + "\x00",
		"too small transfers":       `{"capabilities":{"max_data_xfer_size":255}}` + "\x00",
		"odd pages":                 `{"capabilities":{"pgsizes":4095}}` + "\x00",
		"write_multiple a number":   `{"capabilities":{"write_multiple":1}}` + "\x00",
		"spurious capability":       `{"capabilities":{"twin_socket":{}}}` + "\x00",
	} {
		conn := script(t, versionReply(text), infoReply)
		if c, err := vfiouser.NewClient(conn, vfiouser.ClientOptions{}); !errors.Is(err, vfiouser.ErrProtocol) {
			t.Errorf("VERSION, %s: %v, %v, want ErrProtocol", name, c, err)
		}
	}
	for name, text := range map[string]string{"as long as the request": pad(len(vfiouser.QEMUCapabilities) + 1), "no JSON": "", "plain": fits} {
		conn := script(t, versionReply(text), infoReply)
		c, err := vfiouser.NewClient(conn, vfiouser.ClientOptions{})
		if err != nil {
			t.Errorf("VERSION, %s: %v", name, err)
			continue
		}
		c.Close()
	}

	reply := func(change func(h *vfiouser.Header, p *[]byte)) func(vfiouser.Header, []byte, *net.UnixConn) {
		return func(h vfiouser.Header, p []byte, conn *net.UnixConn) {
			h.Flags = vfiouser.FlagReply
			p = append(p, 1, 2, 3, 4)
			change(&h, &p)
			conn.Write(message(h, p))
		}
	}
	for name, answer := range map[string]func(vfiouser.Header, []byte, *net.UnixConn){
		"wrong id":            reply(func(h *vfiouser.Header, _ *[]byte) { h.ID++ }),
		"wrong command":       reply(func(h *vfiouser.Header, _ *[]byte) { h.Command++ }),
		"no_reply flag":       reply(func(h *vfiouser.Header, _ *[]byte) { h.Flags |= vfiouser.FlagNoReply }),
		"type 2":              reply(func(h *vfiouser.Header, _ *[]byte) { h.Flags = 2 }),
		"longer than asked":   reply(func(_ *vfiouser.Header, p *[]byte) { *p = append(*p, 0) }),
		"shorter than asked":  reply(func(_ *vfiouser.Header, p *[]byte) { *p = (*p)[:19] }),
		"other offset":        reply(func(_ *vfiouser.Header, p *[]byte) { (*p)[0]++ }),
		"error with payload":  reply(func(h *vfiouser.Header, _ *[]byte) { h.Flags |= vfiouser.FlagError }),
		"header in pieces":    func(h vfiouser.Header, p []byte, conn *net.UnixConn) { conn.Write(message(h, nil)[:8]) },
		"size below a header": func(h vfiouser.Header, p []byte, conn *net.UnixConn) { conn.Write(make([]byte, 16)) },
		"a descriptor": func(h vfiouser.Header, p []byte, conn *net.UnixConn) {
			h.Flags = vfiouser.FlagReply
			conn.WriteMsgUnix(message(h, append(p, 1, 2, 3, 4)), unix.UnixRights(0), nil)
		},
	} {
		c, err := vfiouser.NewClient(script(t, versionReply(fits), infoReply, answer), vfiouser.ClientOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read32(0, 0); !errors.Is(err, vfiouser.ErrProtocol) {
			t.Errorf("%s: %v, want ErrProtocol", name, err)
		}
		c.Close()
	}

	c, err := vfiouser.NewClient(script(t, versionReply(fits), infoReply, reply(func(*vfiouser.Header, *[]byte) {})), vfiouser.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if v, err := c.Read32(0, 0); err != nil || v != 0x04030201 {
		t.Errorf("good reply: %#x, %v", v, err)
	}
}

// TestClientReplyToPosted: the reply to a posted write is not overlooked.
func TestClientReplyToPosted(t *testing.T) {
	path := versionReply("{}\x00")
	c, err := vfiouser.NewClient(script(t, path, infoReply, infoReply), vfiouser.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Post32(0, 0, 1); err != nil {
		t.Fatal(err)
	}
	settles(t, "client has not ended", 0, func() int {
		if c.Err() == nil {
			return 1
		}
		return 0
	})
	if !errors.Is(c.Err(), vfiouser.ErrProtocol) {
		t.Errorf("Err: %v, want ErrProtocol", c.Err())
	}
	if err := c.Post32(0, 0, 1); !errors.Is(err, vfiouser.ErrProtocol) {
		t.Errorf("later post: %v, want ErrProtocol", err)
	}
}

func TestClientTimeout(t *testing.T) {
	late := make(chan func(), 1)
	c, err := vfiouser.NewClient(script(t, versionReply("{}\x00"), infoReply, func(h vfiouser.Header, p []byte, conn *net.UnixConn) {
		late <- func() { infoReply(h, append(p, 0, 0, 0, 0), conn) }
	}), vfiouser.ClientOptions{Timeout: 2 * time.Second}) // long enough for VERSION on a busy machine
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Read32(0, 0); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("no reply: %v, want ErrDeadlineExceeded", err)
	}
	if c.Err() != nil {
		t.Errorf("connection ended: %v", c.Err())
	}
	(<-late)()
	if err := c.Reset(); !errors.Is(err, vfiouser.ErrProtocol) {
		t.Errorf("after a late reply: %v, want ErrProtocol", err)
	}
}

// TestClientRefusesCommands: what the server asks is answered, not ignored, but
// only once nothing waits for a reply.
func TestClientRefusesCommands(t *testing.T) {
	replied := make(chan struct{})
	read := func(h vfiouser.Header, p []byte, conn *net.UnixConn) {
		conn.Write(message(vfiouser.Header{ID: 77, Command: vfiouser.CmdRegionRead}, make([]byte, 16)))
		infoReply(h, append(p, 9, 0, 0, 0), conn)
		close(replied)
	}
	late := make(chan vfiouser.Header, 1)
	conn := script(t, versionReply("{}\x00"), infoReply, read, func(h vfiouser.Header, _ []byte, _ *net.UnixConn) { late <- h })
	c, err := vfiouser.NewClient(conn, vfiouser.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if v, err := c.Read32(0, 0); err != nil || v != 9 {
		t.Errorf("read: %d, %v", v, err)
	}
	<-replied
	want := vfiouser.Header{ID: 77, Command: vfiouser.CmdRegionRead, Size: 16, Flags: 0x21, Errno: uint32(unix.ENOSYS)}
	if got := <-late; got != want {
		t.Errorf("answer %+v, want %+v", got, want)
	}
}

func TestClientServerGone(t *testing.T) {
	path, stop := serveDevice(t, newCounter(), vfiouser.Options{})
	c := dial(t, path)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read32(0, 0); err == nil {
		t.Error("read from a server that is gone")
	}
	c.Close()
	if err := c.Reset(); err == nil {
		t.Error("reset after Close")
	}
	if c, err := vfiouser.Dial(t.Context(), path); !errors.Is(err, unix.ENOENT) {
		t.Errorf("Dial: %v, %v, want ENOENT", c, err)
	}
}

func TestDialCancelled(t *testing.T) {
	l, err := vfiouser.Listen(t.TempDir() + "/s")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if conn, err := l.AcceptUnix(); err == nil {
			defer conn.Close()
			conn.Read(make([]byte, 1)) // VERSION is on its way; it gets no reply
			cancel()
			conn.Read(make([]byte, 1000))
			conn.Read(make([]byte, 1))
		}
	}()
	if c, err := vfiouser.Dial(ctx, l.Path()); !errors.Is(err, context.Canceled) {
		t.Errorf("Dial: %v, %v, want Canceled", c, err)
	}
}

// TestSendIRQSet sends the forms of SET_IRQS that QEMU does not.
func TestSendIRQSet(t *testing.T) {
	dev := &maskLog{counter: newCounter()}
	l := smallLayout()
	l.IRQs[vfiouser.IRQMSIX] = 4
	path, _ := serveLayout(t, dev, l, vfiouser.Options{})
	c := dial(t, path)
	fds := []int{eventFD(t), eventFD(t), eventFD(t), eventFD(t)}
	for _, fd := range fds {
		defer unix.Close(fd)
	}
	const x = vfiouser.IRQMSIX
	if err := c.SetIRQ(x, 0, fds); err != nil {
		t.Fatal(err)
	}
	for i, tt := range []struct {
		set   vfiouser.IRQSet
		fires [4]uint64
		masks string
		bad   bool
	}{
		{vfiouser.IRQSet{Flags: 0x22, Index: x, Start: 1, Count: 3, Bools: []byte{1, 0, 9}}, [4]uint64{0, 1, 0, 1}, "", false},
		{vfiouser.IRQSet{Flags: 0x21, Index: x, Count: 2}, [4]uint64{1, 1, 0, 0}, "", false},
		{vfiouser.IRQSet{Flags: 0x0a, Index: x, Count: 4, Bools: []byte{0, 0, 1, 1}}, [4]uint64{}, "+2+3", false},
		{vfiouser.IRQSet{Flags: 0x09, Index: x, Start: 1, Count: 1}, [4]uint64{}, "+1", false},
		{vfiouser.IRQSet{Flags: 0x21, Index: x, Count: 4}, [4]uint64{1, 0, 0, 0}, "", false},
		{vfiouser.IRQSet{Flags: 0x12, Index: x, Start: 2, Count: 2, Bools: []byte{0, 1}}, [4]uint64{0, 0, 0, 1}, "-3", false},
		{vfiouser.IRQSet{Flags: 0x11, Index: x, Start: 1, Count: 2}, [4]uint64{0, 1, 1, 0}, "-1-2", false},
		{vfiouser.IRQSet{Flags: 0x22, Index: x, Count: 3, Bools: []byte{1, 0}}, [4]uint64{}, "", true},
		{vfiouser.IRQSet{Flags: 0x21, Index: x, Count: 1, FDs: fds[:1]}, [4]uint64{}, "", true},
		{vfiouser.IRQSet{Flags: 0x31, Index: x, Count: 1}, [4]uint64{}, "", true},
	} {
		if err := c.SendIRQSet(tt.set); tt.bad != errors.Is(err, unix.EINVAL) || !tt.bad && err != nil {
			t.Errorf("%d: %v", i, err)
		}
		var fired [4]uint64
		for j, fd := range fds {
			fired[j] = readEvent(t, fd)
		}
		if got := dev.take(); fired != tt.fires || got != tt.masks {
			t.Errorf("%d: fired %v, masked %q; want %v, %q", i, fired, got, tt.fires, tt.masks)
		}
	}
}

// maskLog notes what is masked.
type maskLog struct {
	*counter
	mu  sync.Mutex
	log string
}

func (d *maskLog) IRQMasked(_, vector int, masked bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log += map[bool]string{true: "+", false: "-"}[masked] + string(rune('0'+vector))
}

func (d *maskLog) take() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer func() { d.log = "" }()
	return d.log
}
