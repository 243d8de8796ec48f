// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// streamWire sends and gets frames with their length before them.
type streamWire struct {
	conn net.Conn
	raw  syscall.RawConn

	bytes []byte
	n     int
	err   error
	once  func(fd uintptr) bool
}

func newStreamWire(c net.Conn) (*streamWire, error) {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil, err
	}
	w := &streamWire{conn: c, raw: raw}
	w.once = func(fd uintptr) bool {
		for {
			if w.n, w.err = unix.Write(int(fd), w.bytes); w.err != unix.EINTR {
				return true
			}
		}
	}
	return w, nil
}

func (w *streamWire) trySend(records []byte) int {
	w.bytes = records
	if err := w.raw.Write(w.once); err != nil {
		w.err = err
	}
	switch w.err {
	case nil:
		return w.n
	case unix.EAGAIN:
		return 0
	}
	w.conn.Close() // the reader finds out
	return len(records)
}

// streamPiece is how much is written at a time, that it be seen to go.
const streamPiece = 64 << 10

func (w *streamWire) send(records []byte, took func(n int)) {
	for len(records) > 0 {
		n, err := w.conn.Write(records[:min(len(records), streamPiece)])
		if err != nil {
			w.conn.Close()
			return
		}
		took(n)
		records = records[n:]
	}
}

func (w *streamWire) receive(deliver func(frame []byte)) error {
	return decodeStream(w.conn, deliver)
}

func (w *streamWire) Close() error { return w.conn.Close() }
