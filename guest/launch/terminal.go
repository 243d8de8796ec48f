// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/vrnic/vrnic/guest/wire"
	"golang.org/x/sys/unix"
)

// terminal is the user's terminal in raw mode.
type terminal struct {
	file    *os.File
	fd      int
	saved   unix.Termios
	signals chan os.Signal
}

// defaultSize is what a command gets that has a terminal while we have none.
var defaultSize = wire.Resize{Rows: 24, Cols: 80}

// openTerminal puts the terminal behind in into raw mode; nil if it is none.
func openTerminal(in io.Reader) *terminal {
	f, ok := in.(*os.File)
	if !ok {
		return nil
	}
	fd := int(f.Fd())
	saved, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil
	}
	raw := *saved // as cfmakeraw(3) does
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag &^= unix.CSIZE | unix.PARENB
	raw.Cflag |= unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &raw); err != nil {
		return nil
	}
	t := &terminal{file: f, fd: fd, saved: *saved, signals: make(chan os.Signal, 1)}
	signal.Notify(t.signals, unix.SIGWINCH)
	return t
}

// restore gives the terminal its settings back.
func (t *terminal) restore() {
	if t == nil {
		return
	}
	signal.Stop(t.signals)
	_ = unix.IoctlSetTermios(t.fd, unix.TCSETS, &t.saved)
}

func (t *terminal) size() wire.Resize {
	if t == nil {
		return defaultSize
	}
	ws, err := unix.IoctlGetWinsize(t.fd, unix.TIOCGWINSZ)
	if err != nil || ws.Row == 0 || ws.Col == 0 {
		return defaultSize
	}
	return wire.Resize{Rows: ws.Row, Cols: ws.Col}
}

// resized delivers SIGWINCH; never, without a terminal.
func (t *terminal) resized() <-chan os.Signal {
	if t == nil {
		return nil
	}
	return t.signals
}

// Three times Ctrl-] ends a session whose guest may not answer any more.
const (
	escapeKey   = 0x1d // Ctrl-]
	escapeCount = 3
)

// escapeReader looks for the escape: a raw terminal has no other way out of a
// guest that hangs.
type escapeReader struct {
	file  *os.File
	count int
	hit   func()
}

// SyscallConn makes the wait for input interruptible, see forwardInput.
func (e *escapeReader) SyscallConn() (syscall.RawConn, error) { return e.file.SyscallConn() }

func (e *escapeReader) Read(p []byte) (int, error) {
	n, err := e.file.Read(p)
	for _, b := range p[:n] {
		if b != escapeKey {
			e.count = 0
			continue
		}
		if e.count++; e.count == escapeCount {
			e.hit()
		}
	}
	return n, err
}
