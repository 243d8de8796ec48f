// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// twin is the second socket of a client that offers to take DMA messages there
// (vfio-user.rst, "twin_socket"). Its end is not that of the connection.
type twin struct {
	conn   *conn
	sock   sender
	theirs *os.File // the client's end, until it is sent
	done   chan struct{}
}

func newTwin(c *conn) (*twin, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	return &twin{conn: c, sock: sender{sock: ours, timeout: c.sock.timeout}, theirs: theirs}, nil
}

// socketPair makes one end for this process and one to give away.
func socketPair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	theirs := os.NewFile(uintptr(fds[1]), "twin socket")
	ours, err := unixConn(os.NewFile(uintptr(fds[0]), "twin socket"))
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

// unixConn turns f, which it closes, into a connection.
func unixConn(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	nc, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	conn, ok := nc.(*net.UnixConn)
	if !ok {
		nc.Close()
		return nil, fmt.Errorf("%s is no UNIX socket", f.Name())
	}
	return conn, nil
}

// start begins to take answers, once the client has its end.
func (t *twin) start() {
	t.theirs.Close()
	t.done = make(chan struct{})
	go t.run()
}

func (t *twin) run() {
	defer close(t.done)
	in := newStream(t.sock.sock, &t.conn.srv.release)
	defer in.close()
	in.patience = messageTimeout
	err := t.receive(in)
	t.conn.log.Debug("twin socket ended", "error", err)
	t.sock.end()
	t.conn.messages.close()
}

func (t *twin) receive(in *stream) error {
	for {
		m, err := in.next()
		if err != nil {
			return err
		}
		t.conn.observe(Message{Header: m.Header, Payload: m.payload, FDs: len(m.fds)})
		if !m.IsReply() || !t.conn.messages.answer(m) {
			return fmt.Errorf("%w: %v with flags %#x and id %d", ErrProtocol, m.Command, m.Flags, m.ID)
		}
	}
}

func (t *twin) send(h Header, b []byte) error {
	t.conn.observe(sent(h, b, nil))
	return t.sock.send(b, nil)
}

// close ends it, started or not.
func (t *twin) close() {
	t.sock.end()
	if t.done == nil {
		t.theirs.Close()
	} else {
		<-t.done
	}
	t.conn.srv.release.connection(t.sock.sock)
}
