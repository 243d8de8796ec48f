// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
	"golang.org/x/sys/unix"
)

// Run has the conversation with the server at path.
func (c Case) Run(ctx context.Context, path string) error {
	r := newRunner(path)
	defer r.close()
	if err := r.connect(ctx, !c.Raw); err != nil {
		return fmt.Errorf("%s: connect: %w", c.Name, err)
	}
	closed := false
	for i, s := range c.Steps {
		if err := r.step(ctx, s); err != nil {
			return fmt.Errorf("%s: step %d: %w", c.Name, i, err)
		}
		closed = s.Closed
	}
	if closed {
		return nil
	}
	if err := r.alive(ctx); err != nil {
		return fmt.Errorf("%s: afterwards: %w", c.Name, err)
	}
	return nil
}

// runner is a client with one connection.
type runner struct {
	path  string
	conn  wire
	twin  wire // what twin_socket gave, or -1
	multi bool // write_multiple was agreed on
	// agreedOn: VERSION was.
	agreedOn bool
	fds      map[string]int
	saved    map[string][]byte
	held     map[string][]func() error

	strays  map[stray]bool       // replies sent that nobody asked for
	unread  []byte               // sent, but not yet a whole message
	lost    bool                 // what was sent has no framing any more
	waiting map[uint16][]request // by id, oldest first
}

// stray is a reply under an id that the server did not use. Servers may answer it
// with EINVAL, as libvfio-user does, or say nothing.
type stray struct {
	id  uint16
	cmd vfiouser.Command
}

// request is a command that waits for its reply.
type request struct {
	cmd   vfiouser.Command
	limit int // bytes of the longest reply
}

func newRunner(path string) *runner {
	return &runner{path: path, conn: -1, twin: -1, fds: make(map[string]int), saved: make(map[string][]byte), held: make(map[string][]func() error)}
}

func (r *runner) close() {
	r.disconnect()
	for _, fd := range r.fds {
		unix.Close(fd)
	}
}

func (r *runner) disconnect() {
	for _, w := range []*wire{&r.conn, &r.twin} {
		if *w >= 0 {
			unix.Close(int(*w))
		}
		*w = -1
	}
	r.unread, r.lost, r.agreedOn = nil, false, false
	r.waiting, r.strays = make(map[uint16][]request), make(map[stray]bool)
	clear(r.held)
}

func (r *runner) connect(ctx context.Context, negotiate bool) error {
	r.disconnect()
	conn, err := dial(r.path)
	if err != nil {
		return err
	}
	r.conn = conn
	if !negotiate {
		return nil
	}
	return r.step(ctx, Step{Send: version(0, 0, vfiouser.QEMUCapabilities+"\x00"), Want: []Want{{Command: vfiouser.CmdVersion}}})
}

// alive sends one more command; its reply must be what comes next, and last.
// Whether a server talks to a client that it never came to terms with is its own
// business.
func (r *runner) alive(ctx context.Context) error {
	if !r.agreedOn {
		return nil
	}
	const id = 0xfffe
	err := r.step(ctx, Step{
		Send: Message(id, cmdInfo, 0, U32(16, 0, 0, 0)),
		Want: []Want{{ID: id, Command: cmdInfo, Check: func(p []byte) error { return wantLen(p, 16) }}},
	})
	if err == nil && !r.conn.empty() {
		err = errors.New("more than the replies")
	}
	if err == nil && r.twin >= 0 && !r.twin.empty() {
		err = errors.New("a command on the twin socket that nobody expects")
	}
	return err
}

func (r *runner) step(ctx context.Context, s Step) error {
	if s.Reconnect {
		if err := r.connect(ctx, true); err != nil {
			return fmt.Errorf("reconnect: %w", err)
		}
	}
	if s.Signal != "" {
		if _, err := unix.Write(r.fds[s.Signal], binary.NativeEndian.AppendUint64(nil, 1)); err != nil {
			return fmt.Errorf("signal %s: %w", s.Signal, err)
		}
	}
	for _, name := range s.Release {
		for _, send := range r.held[name] {
			if err := send(); err != nil {
				return fmt.Errorf("answer %s: %w", name, err)
			}
		}
		delete(r.held, name)
	}
	fds, close, err := r.open(s.FDs)
	if err != nil {
		return err
	}
	r.expect(s.Send)
	// The replies are taken while the rest is on its way: a server may stop
	// reading when nobody reads its replies.
	sent := make(chan error, 1)
	go func() {
		defer close()
		sent <- r.conn.send(s.Send, s.Split, fds)
	}()
	err = r.take(ctx, s)
	if err != nil {
		unix.Shutdown(int(r.conn), unix.SHUT_RDWR) // ends the sender
	}
	if e := <-sent; err == nil && e != nil && !s.Closed {
		err = e
	}
	if err != nil {
		return err
	}
	for _, check := range s.Checks {
		if err := r.check(ctx, check); err != nil {
			return fmt.Errorf("%s: %w", check.Name, err)
		}
	}
	if s.Closed {
		m, err := r.conn.receive(ctx)
		if err == nil {
			m.close()
			return fmt.Errorf("connection goes on with %+v", m.Header)
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
			return fmt.Errorf("connection goes on: %w", err)
		}
	}
	return nil
}

// expect notes which replies the server owes for b, which follows what was sent
// before.
func (r *runner) expect(b []byte) {
	r.unread = append(r.unread, b...)
	for len(r.unread) >= 16 && !r.lost {
		h := vfiouser.ParseHeader(r.unread)
		r.lost = h.Size < 16 || h.Size > Largest
		if !r.lost && int(h.Size) > len(r.unread) {
			return
		}
		q := request{h.Command, 16}
		if !r.lost {
			q.limit = room(h, r.unread[16:h.Size])
			r.unread = r.unread[h.Size:]
		}
		if h.Flags&noReply == 0 {
			r.waiting[h.ID] = append(r.waiting[h.ID], q)
		}
	}
}

// room is how long the reply to a command may be: what QEMU has a buffer for.
func room(h vfiouser.Header, p []byte) int {
	le := binary.LittleEndian
	switch h.Command {
	case cmdVersion:
		return int(h.Size)
	case cmdInfo, cmdRegion, cmdIRQ, cmdUnmap, vfiouser.CmdGetRegionIOFDs, vfiouser.CmdDeviceFeature, vfiouser.CmdMigDataRead:
		if len(p) >= 4 {
			return 16 + int(min(le.Uint32(p), 1<<20)) // argsz
		}
	case cmdRead:
		if len(p) >= 16 {
			return 32 + int(min(le.Uint32(p[12:]), 1<<20))
		}
	case cmdWrite:
		return 32
	case cmdMulti:
		return 24
	}
	return 16
}

// take receives what the step wants and nothing else.
func (r *runner) take(ctx context.Context, s Step) error {
	want, dma := slices.Clone(s.Want), s.DMA
	var answers []func() error
	for len(want)+len(dma) > 0 || len(answers) > 0 {
		if len(want) == 0 && len(answers) > 0 {
			if err := answers[0](); err != nil {
				return fmt.Errorf("answer: %w", err)
			}
			answers = answers[1:]
			continue
		}
		m, from, err := r.next(ctx)
		if err != nil {
			return fmt.Errorf("while waiting for %s: %w", describe(want, dma), err)
		}
		if m.Flags&vfiouser.FlagTypeMask == vfiouser.FlagCommand {
			var send func() error
			if send, dma, err = r.command(m, from, dma); err != nil {
				return err
			}
			answers = append(answers, send)
			continue
		}
		if s := (stray{m.ID, m.Command}); r.strays[s] && m.Flags == vfiouser.FlagReply|vfiouser.FlagError && m.Errno == uint32(unix.EINVAL) && len(m.payload) == 0 {
			delete(r.strays, s)
			continue
		}
		i := slices.IndexFunc(want, func(w Want) bool { return w.ID == m.ID && w.Command == m.Command })
		if i < 0 {
			m.close()
			return fmt.Errorf("reply %+v while waiting for %s", m.Header, describe(want, dma))
		}
		if err := r.reply(want[i], m); err != nil {
			return fmt.Errorf("reply to %v, id %d: %w", m.Command, m.ID, err)
		}
		copy(want[1:i+1], want[:i]) // the front is where it mostly is
		want = want[1:]
	}
	return nil
}

func describe(want []Want, dma []DMA) string {
	var b bytes.Buffer
	for _, w := range want[:min(len(want), 3)] {
		fmt.Fprintf(&b, "%v id %d, ", w.Command, w.ID)
	}
	for _, d := range dma[:min(len(dma), 3)] {
		fmt.Fprintf(&b, "the server's %v %#x+%d, ", d.Command, d.Address, d.Count)
	}
	return fmt.Sprintf("%s%d replies and %d commands in all", b.String(), len(want), len(dma))
}

// next takes the next message of either socket.
func (r *runner) next(ctx context.Context) (*message, wire, error) {
	from := r.conn
	if r.twin >= 0 {
		if ok, err := poll(ctx, int(r.conn), int(r.twin)); err != nil || !ok {
			return nil, 0, errors.Join(err, errors.New("nothing came in time"))
		}
		if !r.twin.empty() {
			from = r.twin
		}
	}
	m, err := from.receive(ctx)
	return m, from, err
}

// reply holds a reply against what it should be.
func (r *runner) reply(w Want, m *message) error {
	defer m.close()
	queue := r.waiting[m.ID]
	i := slices.IndexFunc(queue, func(q request) bool { return q.cmd == m.Command })
	if i < 0 {
		return errors.New("nothing was asked, or No_reply was")
	}
	if limit := queue[i].limit; int(m.Size) > limit && !w.Long {
		return fmt.Errorf("%d bytes, the client has room for %d", m.Size, limit)
	}
	r.waiting[m.ID] = slices.Delete(queue, i, i+1)
	if err := w.match(m.Header, m.payload); err != nil {
		return err
	}
	if w.Save != "" {
		r.saved[w.Save] = m.payload
	}
	if w.Like != "" && !bytes.Equal(m.payload, r.saved[w.Like]) {
		return fmt.Errorf("payload %s, want %s as before", short(m.payload), short(r.saved[w.Like]))
	}
	files := 0
	if w.File != "" {
		files = 1
	}
	if w.AnyFile && len(m.fds) == 1 {
		return nil
	}
	if len(m.fds) != files {
		return fmt.Errorf("%d descriptors, want %d", len(m.fds), files)
	}
	if m.Command == cmdVersion && w.Errno == 0 {
		return r.agreed(m, w.File)
	}
	if files > 0 {
		r.keep(w.File, m.fds[0])
		m.fds = nil
	}
	return nil
}

// agreed notes what the answer to VERSION says; its descriptor is the twin.
func (r *runner) agreed(m *message, twin string) error {
	var answer struct {
		Capabilities struct {
			WriteMultiple bool `json:"write_multiple"`
			Twin          *struct {
				Supported bool `json:"supported"`
				Index     *int `json:"fd_index"`
			} `json:"twin_socket"`
		} `json:"capabilities"`
	}
	if len(m.payload) > 5 {
		if err := json.Unmarshal(bytes.TrimRight(m.payload[4:], "\x00"), &answer); err != nil {
			return err
		}
	}
	r.agreedOn = true
	r.multi = answer.Capabilities.WriteMultiple
	if twin == "" {
		return nil
	}
	if t := answer.Capabilities.Twin; t == nil || !t.Supported || t.Index == nil || *t.Index != 0 {
		return fmt.Errorf("a descriptor, but twin_socket is %+v", t)
	}
	r.twin = wire(m.fds[0])
	m.fds = nil
	return nil
}

func (w Want) match(h vfiouser.Header, payload []byte) error {
	flags, errno := vfiouser.FlagReply, w.Errno
	other := w.Or != 0 && h.Errno == uint32(w.Or)
	if other {
		errno = w.Or
	}
	if errno != 0 {
		flags |= vfiouser.FlagError
	}
	if h.Flags != flags || h.Errno != uint32(errno) {
		return fmt.Errorf("flags %#x, errno %d, want %#x and %d", h.Flags, h.Errno, flags, errno)
	}
	if errno != 0 && len(payload) != 0 {
		return fmt.Errorf("error with a payload of %d bytes", len(payload))
	}
	if other {
		return nil
	}
	if w.Payload != nil && !bytes.Equal(payload, w.Payload) {
		return fmt.Errorf("payload %s, want %s", short(payload), short(w.Payload))
	}
	if w.Check != nil {
		return w.Check(payload)
	}
	return nil
}

func short(b []byte) string {
	if len(b) > 128 {
		return fmt.Sprintf("% x … (%d bytes)", b[:128], len(b))
	}
	return fmt.Sprintf("% x", b)
}

// command holds a command of the server's against the next one expected, and
// returns what sends the answer. A DMA_WRITE of nothing is a server that finds
// out how the client encodes the command: it may come at any time.
func (r *runner) command(m *message, from wire, dma []DMA) (func() error, []DMA, error) {
	defer m.close()
	if len(m.fds) != 0 {
		return nil, dma, fmt.Errorf("%d descriptors with %v of the server", len(m.fds), m.Command)
	}
	if r.twin >= 0 && from != r.twin {
		return nil, dma, fmt.Errorf("%v is not on the twin socket", m.Command)
	}
	if m.Command != vfiouser.CmdDMARead && m.Command != vfiouser.CmdDMAWrite {
		return nil, dma, fmt.Errorf("%v is no command of a server's", m.Command)
	}
	if m.Flags != 0 || m.Errno != 0 || len(m.payload) < 16 {
		return nil, dma, fmt.Errorf("malformed command %+v", m.Header)
	}
	le := binary.LittleEndian
	address, count := le.Uint64(m.payload), le.Uint64(m.payload[8:])
	probe := m.Command == vfiouser.CmdDMAWrite && count == 0
	if probe && (len(dma) == 0 || dma[0].Count != 0) {
		dma = slices.Insert(slices.Clone(dma), 0, DMA{Command: m.Command, Address: address})
	}
	if len(dma) == 0 {
		return nil, dma, fmt.Errorf("%v %#x+%d of the server, which nobody expects", m.Command, address, count)
	}
	d := dma[0]
	if m.Command != d.Command || (address != d.Address && !probe) || count != d.Count {
		return nil, dma, fmt.Errorf("server's %v %#x+%d, want %v %#x+%d", m.Command, address, count, d.Command, d.Address, d.Count)
	}
	data := m.payload[16:]
	if d.Command == vfiouser.CmdDMAWrite {
		if uint64(len(data)) != count || (d.Data != nil && !bytes.Equal(data, d.Data)) {
			return nil, dma, fmt.Errorf("%v of %s, want %s", m.Command, short(data), short(d.Data))
		}
	} else if len(data) != 0 {
		return nil, dma, fmt.Errorf("%v with %d bytes of data", m.Command, len(data))
	}
	right := m.payload[:16]
	if d.Command == vfiouser.CmdDMARead {
		right = slices.Concat(right, d.Data)
	}
	send := func() error { return r.answer(from, m.Header, d.Answers, right) }
	if d.Hold != "" {
		held := send
		r.held[d.Hold] = append(r.held[d.Hold], held)
		send = func() error { return nil }
	}
	return send, dma[1:], nil
}

func (r *runner) answer(to wire, h vfiouser.Header, answers []Answer, right []byte) error {
	if answers == nil {
		answers = []Answer{{}}
	}
	for _, a := range answers {
		id, cmd, flags, payload := h.ID, h.Command, vfiouser.FlagReply, a.Payload
		if a.OtherID {
			id ^= 0x5555
			r.strays[stray{id, cmd}] = true
		}
		if a.Command != 0 {
			cmd = a.Command
			r.strays[stray{id, cmd}] = true
		}
		if a.Errno != 0 {
			flags |= vfiouser.FlagError
		} else if payload == nil {
			payload = right
		}
		if a.Flags != 0 {
			flags = a.Flags
		}
		b := Message(id, cmd, flags, payload)
		binary.LittleEndian.PutUint32(b[12:], uint32(a.Errno))
		fds, close, err := r.open(a.FDs)
		if err == nil {
			err = to.send(b, 0, fds)
			close()
		}
		if err != nil {
			return err
		}
	}
	return nil
}
