// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
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

// kill ends QEMU now.
func (p *process) kill() { _ = p.cmd.Process.Kill() }
