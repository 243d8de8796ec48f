// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// processes starts children and is the only one that waits for them, as PID 1
// has to wait for orphans too and wait4 cannot tell them apart beforehand.
type processes struct {
	mu      sync.Mutex
	waiting map[int]chan<- syscall.WaitStatus
	signals chan os.Signal
}

func newProcesses() *processes {
	p := &processes{
		waiting: make(map[int]chan<- syscall.WaitStatus),
		signals: make(chan os.Signal, 1), // one pending SIGCHLD stands for any number
	}
	signal.Notify(p.signals, unix.SIGCHLD)
	return p
}

// reap collects the dead for ever.
func (p *processes) reap() {
	for range p.signals {
		for {
			var status syscall.WaitStatus
			pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
			if err == syscall.EINTR {
				continue
			}
			if err != nil || pid <= 0 {
				break
			}
			p.mu.Lock()
			done := p.waiting[pid]
			delete(p.waiting, pid)
			p.mu.Unlock()
			if done != nil {
				done <- status
			}
		}
	}
}

// start runs a program; the channel delivers its end.
func (p *processes) start(path string, argv []string, attr *syscall.ProcAttr) (pid int, done <-chan syscall.WaitStatus, err error) {
	c := make(chan syscall.WaitStatus, 1)
	// Held over the fork, so that the reaper cannot see the end of a child
	// that is not in the table yet.
	p.mu.Lock()
	defer p.mu.Unlock()
	pid, err = syscall.ForkExec(path, argv, attr)
	if err != nil {
		return 0, nil, fmt.Errorf("%s: %w", path, err)
	}
	p.waiting[pid] = c
	return pid, c, nil
}

// run runs one of the guest's own helpers to its end and returns what it wrote,
// which is also in the error if it failed.
func (p *processes) run(argv ...string) (string, error) {
	env := os.Environ()
	path, err := lookPath(argv[0], env)
	if err != nil {
		return "", err
	}
	// Small outputs only: the file is read when the program has ended.
	fd, err := unix.MemfdCreate("output", unix.MFD_CLOEXEC)
	if err != nil {
		return "", fmt.Errorf("memfd: %w", err)
	}
	output := os.NewFile(uintptr(fd), "output")
	defer output.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return "", err
	}
	defer null.Close()
	_, done, err := p.start(path, argv, &syscall.ProcAttr{
		Env:   env,
		Files: []uintptr{null.Fd(), output.Fd(), output.Fd()},
	})
	if err != nil {
		return "", err
	}
	status := <-done
	text := make([]byte, 16<<10)
	n, _ := output.ReadAt(text, 0)
	text = bytes.TrimSpace(text[:n])
	if code := exitStatus(status); code != 0 {
		return string(text), fmt.Errorf("%s: exit status %d: %s", strings.Join(argv, " "), code, text)
	}
	return string(text), nil
}

// exitStatus is the status as a shell reports it.
func exitStatus(s syscall.WaitStatus) int {
	if s.Signaled() {
		return 128 + int(s.Signal())
	}
	return s.ExitStatus()
}

// errNotExecutable tells "found but cannot be run" (126) from "not found" (127).
var errNotExecutable = errors.New("not an executable file")

// lookPath finds name as a shell with that environment would.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, executable(name)
	}
	var found error
	for _, dir := range filepath.SplitList(lookupEnv(env, "PATH")) {
		path := filepath.Join(dir, name)
		err := executable(path)
		if err == nil {
			return path, nil
		}
		if errors.Is(err, errNotExecutable) {
			found = err
		}
	}
	if found != nil {
		return "", found
	}
	return "", fmt.Errorf("%s: command %w", name, errNotFound)
}

var errNotFound = errors.New("not found")

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%s: %w", path, errNotFound)
	case err != nil:
		return err
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return fmt.Errorf("%s: %w", path, errNotExecutable)
	}
	return nil
}

// lookupEnv returns the last value of key, which is the one that counts.
func lookupEnv(env []string, key string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(env[i], key+"="); ok {
			return v
		}
	}
	return ""
}
