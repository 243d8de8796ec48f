// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// firstBuffer is the size of a receive buffer until a longer message comes.
	firstBuffer = 64 << 10
	// scmMaxFD is the most descriptors that one sendmsg can carry
	// (include/net/scm.h, SCM_MAX_FD).
	scmMaxFD = 253
	// maxHeldFDs bounds the descriptors of messages that are not complete yet.
	maxHeldFDs = 64
	// flood is how many bytes of posted writes, by one receive, mean that the
	// client has more at hand: eight of a dword.
	flood = 8 * (headerSize + regionHeaderSize + 4)
)

// stream cuts what a client sends into messages. Positions count bytes from the
// start of the connection, so that they outlive a move inside the buffer.
type stream struct {
	conn    *net.UnixConn
	raw     syscall.RawConn
	recv    recvmsg
	release *releaser // for descriptors that nobody took
	buf     []byte
	r, w    int   // unread bytes are buf[r:w]
	base    int64 // position of buf[0]

	oob  []byte
	held []heldFD // received, their message not yet taken
	lost []lostFD // of messages not yet taken
	msg  request  // what next returns

	// patience is how long a message that has brought descriptors may be incomplete;
	// 0 is for ever. Its descriptors could be what keeps the connection from ending.
	patience time.Duration
	hurried  bool // the connection has a deadline because of that

	posted int // bytes of messages without a reply since the last receive
}

// heldFD belongs to the message that has the byte at pos.
type heldFD struct {
	pos int64
	fd  int
}

// lostFD tells why descriptors of the message that has the byte at pos are not
// there.
type lostFD struct {
	pos int64
	why error
}

var (
	errNoRoomForFD = fmt.Errorf("descriptors were lost: %w", unix.EMFILE)
	errSocketFD    = errors.New("descriptor is a socket")
)

// request is one message. Its payload and descriptors are valid until the next
// call of stream.next; descriptors still there then are closed.
type request struct {
	Header
	payload []byte
	fds     []int
	fdsLost error // why some of them are not there
}

// framingError: the length of a message makes no sense, so nobody knows where
// the next one starts.
type framingError struct{ Header }

func (e *framingError) Error() string {
	return fmt.Sprintf("%v of %d bytes", e.Command, e.Size)
}

func (e *framingError) Unwrap() error { return ErrProtocol }

func newStream(conn *net.UnixConn, release *releaser) *stream {
	raw, err := conn.SyscallConn()
	if err != nil {
		panic(err) // the connection is nil
	}
	return &stream{
		conn:    conn,
		raw:     raw,
		release: release,
		buf:     make([]byte, firstBuffer),
		oob:     make([]byte, unix.CmsgSpace(4*scmMaxFD)),
	}
}

// close closes the descriptors nobody took. The connection is not the stream's.
func (s *stream) close() {
	s.releaseTaken()
	for _, h := range s.held {
		s.release.descriptor(h.fd)
	}
	s.held = nil
}

// whole tells whether next has a message without waiting.
func (s *stream) whole() bool {
	return s.w-s.r >= headerSize && s.w-s.r >= int(ParseHeader(s.buf[s.r:]).Size)
}

// next waits for one whole message. The error is that of the connection, or a
// *framingError.
func (s *stream) next() (*request, error) {
	s.releaseTaken()
	for {
		need := headerSize
		if s.w-s.r >= headerSize {
			h := ParseHeader(s.buf[s.r:])
			if h.Size < headerSize || h.Size > maxMessage {
				return nil, &framingError{h}
			}
			need = int(h.Size)
			if s.w-s.r >= need {
				return s.take(h), s.hurry()
			}
		}
		if err := s.hurry(); err != nil {
			return nil, err
		}
		s.makeRoom(need)
		if err := s.receive(); err != nil {
			return nil, err
		}
	}
}

// hurry sets the deadline for an incomplete message with descriptors, or takes it
// back.
func (s *stream) hurry() error {
	hurry := len(s.held) > 0 && s.patience > 0
	if hurry == s.hurried {
		return nil
	}
	s.hurried = hurry
	var deadline time.Time
	if hurry {
		deadline = time.Now().Add(s.patience)
	}
	return s.conn.SetReadDeadline(deadline)
}

// take removes the message with header h from the front of the buffer.
func (s *stream) take(h Header) *request {
	end := s.r + int(h.Size)
	m := &s.msg
	*m = request{Header: h, payload: s.buf[s.r+headerSize : end : end], fds: m.fds}
	s.r = end
	if h.Flags&FlagNoReply != 0 {
		s.posted += int(h.Size)
	}
	last := s.base + int64(end) - 1
	n := 0
	for _, held := range s.held {
		if held.pos <= last {
			m.fds = append(m.fds, held.fd)
		} else {
			s.held[n] = held
			n++
		}
	}
	s.held = s.held[:n]
	for len(s.lost) > 0 && s.lost[0].pos <= last {
		m.fdsLost = s.lost[0].why
		s.lost = s.lost[:copy(s.lost, s.lost[1:])]
	}
	return m
}

// makeRoom sees to it that a message of need bytes fits behind r, and that there
// is room to receive. The messages taken are behind us: their bytes may go.
func (s *stream) makeRoom(need int) {
	if s.r == s.w || len(s.buf)-s.r < need || s.w == len(s.buf) {
		old := s.buf
		if need > len(old) {
			s.buf = make([]byte, maxMessage)
		}
		s.w = copy(s.buf, old[s.r:s.w])
		s.base += int64(s.r)
		s.r = 0
	}
}

// receive does one recvmsg.
//
// Amid a flood of posted writes it lets others have the CPU first. QEMU packs
// writes together only while they queue up on its side, and sends one by one
// what a reader too eager for each takes off its hands; where reader and QEMU
// share a CPU that halves the rate. A client that waits for a reply leaves the
// CPU to us at once.
func (s *stream) receive() error {
	if s.posted >= flood {
		_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // cannot fail
	}
	s.posted = 0
	n, oobn, flags, err := s.recv.do(s.raw, s.buf[s.w:], s.oob)
	if err != nil {
		return err
	}
	s.w += n
	// The kernel ends a read behind the first data that carries descriptors, so
	// they belong to the message of the last byte.
	pos := s.base + int64(s.w) - 1
	if flags&unix.MSG_CTRUNC != 0 {
		s.lose(pos, errNoRoomForFD)
	}
	if oobn == 0 {
		return nil
	}
	msgs, err := unix.ParseSocketControlMessage(s.oob[:oobn])
	if err != nil {
		return fmt.Errorf("control message: %w", err)
	}
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			continue // some other kind of control message
		}
		for _, fd := range fds {
			s.hold(heldFD{pos, fd})
		}
	}
	return nil
}

// hold keeps a descriptor for its message. A socket it does not keep: no command
// takes one, and it could be the client's end of this connection, which would then
// not end with the client.
func (s *stream) hold(h heldFD) {
	switch {
	case isSocket(h.fd):
		s.lose(h.pos, errSocketFD)
	case len(s.held) == maxHeldFDs:
		s.lose(h.pos, errNoRoomForFD)
	default:
		s.held = append(s.held, h)
		return
	}
	s.release.descriptor(h.fd)
}

func isSocket(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK
}

// lose notes that descriptors of the message at pos are missing. What was noted
// before is about the one message that is still incomplete, or about this one:
// the first and the last position say it all.
func (s *stream) lose(pos int64, why error) {
	if len(s.lost) < 2 {
		s.lost = append(s.lost, lostFD{pos, why})
	} else {
		s.lost[1] = lostFD{pos, why}
	}
}

// takeFD moves descriptor i of the message to the caller.
func (m *request) takeFD(i int) int {
	fd := m.fds[i]
	m.fds[i] = -1
	return fd
}

// releaseTaken closes the descriptors of the last message that nobody took.
func (s *stream) releaseTaken() {
	for _, fd := range s.msg.fds {
		if fd >= 0 {
			s.release.descriptor(fd)
		}
	}
	s.msg.fds = s.msg.fds[:0]
}
