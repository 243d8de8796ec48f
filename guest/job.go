// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/vrnic/vrnic/guest/wire"
	"golang.org/x/sys/unix"
)

// job is one command of the host: a process in a session of its own, whose
// three descriptors are pipes or one terminal, copied to and from streams.
type job struct {
	mux    *wire.Mux
	id     uint16
	spec   wire.Start
	stdin  *wire.Reader // nil: none wanted
	stdout *wire.Writer
	stderr *wire.Writer // nil with a terminal

	mu       sync.Mutex
	pid      int // 0: not running
	terminal *os.File
}

func newJob(mux *wire.Mux, id uint16, s wire.Start) *job {
	j := &job{mux: mux, id: id, spec: s, stdout: mux.OpenWriter(id, wire.StreamStdout)}
	if s.Stdin || s.TTY != nil {
		j.stdin = mux.OpenReader(id, wire.StreamStdin)
	}
	if s.TTY == nil {
		j.stderr = mux.OpenWriter(id, wire.StreamStderr)
	}
	return j
}

// run runs the command and returns when it has ended and its output is sent.
func (j *job) run(procs *processes, all sockets) wire.Exit {
	defer j.closeStreams()
	exit, err := j.runProcess(procs, all)
	if err == nil {
		return exit
	}
	if errors.Is(err, errNotFound) || errors.Is(err, unix.ENOENT) {
		return wire.Exit{Status: 127, Error: err.Error()}
	}
	return wire.Exit{Status: 126, Error: err.Error()}
}

func (j *job) closeStreams() {
	if j.stdin != nil {
		_ = j.stdin.Close()
	}
	_ = j.stdout.Close()
	if j.stderr != nil {
		_ = j.stderr.Close()
	}
}

func (j *job) runProcess(procs *processes, all sockets) (wire.Exit, error) {
	env := append(os.Environ(), wire.Strings(j.spec.Env)...)
	if j.spec.TTY != nil && lookupEnv(env, "TERM") == "" {
		env = append(env, "TERM=vt100") // what every terminal emulator understands
	}
	argv := wire.Strings(j.spec.Argv)
	path, err := lookPath(argv[0], env)
	if err != nil {
		return wire.Exit{}, err
	}
	plumb := j.plumbPipes
	if j.spec.TTY != nil {
		plumb = j.plumbTerminal
	}
	p, err := plumb()
	if err != nil {
		return wire.Exit{}, err
	}
	var before map[string]bool
	if j.spec.AwaitListen > 0 {
		before = all.listening()
	}
	pid, done, err := procs.start(path, argv, &syscall.ProcAttr{
		Env:   env,
		Files: []uintptr{p.child[0].Fd(), p.child[1].Fd(), p.child[2].Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true, Setctty: j.spec.TTY != nil, Ctty: 0},
	})
	p.closeChild()
	if err != nil {
		p.closeParent()
		return wire.Exit{}, err
	}
	j.setRunning(pid, p.terminal)
	if err := j.mux.Send(wire.TypeStarted, j.id, nil); err != nil {
		return wire.Exit{}, err
	}

	if j.spec.AwaitListen > 0 {
		ended := make(chan struct{})
		defer close(ended)
		go func() {
			if all.awaitNew(before, j.spec.AwaitListen, ended) {
				_ = j.mux.Send(wire.TypeListening, j.id, nil)
			}
		}()
	}
	if j.stdin != nil {
		// Not waited for: it ends when the stream is closed, at the latest.
		go copyInput(p.input, j.stdin, p.terminal != nil)
	}
	var outputs sync.WaitGroup
	outputs.Go(func() { copyOutput(j.stdout, p.outputs[0]) })
	if len(p.outputs) > 1 {
		outputs.Go(func() { copyOutput(j.stderr, p.outputs[1]) })
	}
	status := <-done
	j.setRunning(0, nil)
	// Somebody else may hold the descriptors for ever (a daemon the command
	// left behind): take what is in them now, then close.
	for _, f := range p.outputs {
		_ = f.SetReadDeadline(time.Unix(1, 0))
	}
	outputs.Wait()
	p.closeParent()
	return wire.Exit{Status: exitStatus(status)}, nil
}

func (j *job) setRunning(pid int, terminal *os.File) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pid, j.terminal = pid, terminal
}

// signal goes to the command's whole process group: of "sh -c 'a; b'" the shell
// alone would be the wrong one to hit.
func (j *job) signal(s syscall.Signal) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.pid > 0 {
		_ = syscall.Kill(-j.pid, s)
	}
}

func (j *job) resize(r wire.Resize) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.terminal != nil {
		setSize(j.terminal, r)
	}
}

// plumbing is a command's descriptors.
type plumbing struct {
	child    [3]*os.File
	input    *os.File   // ours: its standard input; nil if it has none of ours
	outputs  []*os.File // ours: its standard output, then its standard error
	terminal *os.File   // ours: the master side, if it has a terminal
}

func (p *plumbing) closeChild() {
	for _, f := range p.child {
		if f != nil {
			_ = f.Close()
		}
	}
}

func (p *plumbing) closeParent() {
	for _, f := range p.outputs {
		_ = f.Close()
	}
	if p.input != nil {
		_ = p.input.Close()
	}
}

// plumbPipes makes a pipe for each descriptor.
func (j *job) plumbPipes() (p *plumbing, err error) {
	p = &plumbing{}
	defer func() {
		if err != nil {
			p.closeChild()
			p.closeParent()
		}
	}()
	if j.stdin == nil {
		if p.child[0], err = os.Open(os.DevNull); err != nil {
			return nil, err
		}
	} else if p.child[0], p.input, err = os.Pipe(); err != nil {
		return nil, err
	}
	for i := 1; i < 3; i++ {
		var ours *os.File
		if ours, p.child[i], err = os.Pipe(); err != nil {
			return nil, err
		}
		p.outputs = append(p.outputs, ours)
	}
	// What the child gets must block, as any program expects.
	for _, f := range p.child {
		if err = unix.SetNonblock(int(f.Fd()), false); err != nil {
			return nil, fmt.Errorf("pipe: %w", err)
		}
	}
	return p, nil
}

// plumbTerminal makes a pseudo terminal for all descriptors.
func (j *job) plumbTerminal() (p *plumbing, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/ptmx: %w", err)
	}
	master := os.NewFile(uintptr(fd), "/dev/ptmx")
	p = &plumbing{input: master, outputs: []*os.File{master}, terminal: master}
	defer func() {
		if err != nil {
			p.closeChild()
			p.closeParent()
		}
	}()
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, fmt.Errorf("unlock terminal: %w", err)
	}
	number, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, fmt.Errorf("terminal number: %w", err)
	}
	setSize(master, *j.spec.TTY)
	name := fmt.Sprintf("/dev/pts/%d", number)
	for i := range p.child {
		slave, err := unix.Open(name, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		p.child[i] = os.NewFile(uintptr(slave), name)
	}
	return p, nil
}

func setSize(terminal *os.File, r wire.Resize) {
	conn, err := terminal.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: r.Rows, Col: r.Cols})
	})
}

// endOfFile is what a terminal takes for the end of its input.
const endOfFile = 0x04

// copyInput feeds the command's standard input. When the command does not want
// any more the host is told so, and stops reading ours.
func copyInput(dst *os.File, src *wire.Reader, terminal bool) {
	defer src.Close()
	_, err := io.CopyBuffer(onlyWriter{dst}, src, make([]byte, wire.MaxPayload))
	if terminal {
		// The master side stays open for the output.
		if err == nil {
			_, _ = dst.Write([]byte{endOfFile})
		}
		return
	}
	_ = dst.Close()
}

// onlyWriter hides ReadFrom, which would splice with buffers of its own size.
type onlyWriter struct{ io.Writer }

// copyOutput sends what the command writes. It reads only what there is room
// for, so that a command blocks when nobody reads, and closes the pipe when the
// reader has gone, so that the command gets SIGPIPE as it would on the host.
// After a read deadline it sends what the descriptor holds, and ends.
func copyOutput(dst *wire.Writer, src *os.File) {
	buf := make([]byte, wire.MaxPayload)
	for {
		if err := dst.Wait(); err != nil {
			_ = src.Close()
			return
		}
		n, err := src.Read(buf)
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				_ = src.Close()
				return
			}
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			drain(dst, src, buf)
			return
		case err != nil: // end of file, or EIO from a terminal that was hung up
			return
		}
	}
}

// drain sends the bytes that are in src now; the command that wrote them has
// ended, so what comes later is somebody else's. A terminal's bytes may still be
// on their way through its line discipline: it is read until it is hung up.
func drain(dst io.Writer, src *os.File, buf []byte) {
	conn, err := src.SyscallConn()
	if err != nil {
		return
	}
	left := 0
	terminal := false
	if err := conn.Control(func(fd uintptr) {
		left, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		_, e := unix.IoctlGetTermios(int(fd), unix.TCGETS)
		terminal = e == nil
	}); err != nil {
		return
	}
	if terminal {
		_ = src.SetReadDeadline(time.Now().Add(time.Second))
		_, _ = io.CopyBuffer(onlyWriter{dst}, src, buf)
		return
	}
	_ = src.SetReadDeadline(time.Time{})
	_, _ = io.CopyBuffer(onlyWriter{dst}, io.LimitReader(src, int64(left)), buf)
}
