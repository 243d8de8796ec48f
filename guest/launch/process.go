// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is a running QEMU.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended; then err is set
	err  error         // as exec.Cmd.Wait has it
}

// startProcess starts QEMU with the given descriptors at 3 and up. It dies with
// us: the kernel kills it when the thread that started it ends, so that thread
// is kept for as long.
func startProcess(argv []string, files []*os.File, stderr io.Writer) (*process, error) {
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = stderr, stderr
	p.cmd.ExtraFiles = files
	p.cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL,
		Setpgid:   true, // the terminal's Ctrl-C is for us to handle
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		ordinarySlice()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start QEMU: %w", err)
	}
	return p, nil
}

// ordinarySlice gives this thread time slices of the usual length, and with it QEMU,
// which would else inherit the short ones that our process may have for being
// quicker than QEMU.
func ordinarySlice() {
	a, err := unix.SchedGetAttr(0, 0)
	if err != nil || a.Policy != unix.SCHED_NORMAL && a.Policy != unix.SCHED_BATCH {
		return
	}
	a.Runtime = 0
	_ = unix.SchedSetAttr(0, a, 0) // nothing but speed depends on it
}

// cpuTime is the CPU time that QEMU has used so far, by all its threads.
func (p *process) cpuTime() (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may hold anything; utime and stime are fields
	// 14 and 15 of proc(5), the state after the name is field 3.
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: %q", p.cmd.Process.Pid, b)
	}
	var ticks time.Duration
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", p.cmd.Process.Pid, err)
		}
		ticks += time.Duration(n)
	}
	const perSecond = 100 // USER_HZ, the same on every architecture that matters
	return ticks * time.Second / perSecond, nil
}

// kill ends QEMU now.
func (p *process) kill() { _ = p.cmd.Process.Kill() }
