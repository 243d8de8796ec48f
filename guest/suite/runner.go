// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bufio"
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vrnic/vrnic/guest"
)

//go:embed python/*.py
var python embed.FS

// runner is the guest's half.
type runner struct {
	dir    string // of the Python modules and of what scripts leave
	sys    string // /sys, or a copy of its shape in tests
	kernel *kernelLog
	find   func(name string) (*Case, bool)

	mu      sync.Mutex
	out     *json.Encoder
	running map[int]*script
}

// script is a script that runs.
type script struct {
	pid     int
	stopped bool
}

// Serve runs what requests on in ask for and says on out what became of it, until
// in ends. It needs the devices of a guest, and to be root.
func Serve(in io.Reader, out io.Writer) error {
	kernel, err := openKernelLog("/dev/kmsg")
	if err != nil {
		return err
	}
	r := &runner{dir: "/run/vrnic-suite", sys: "/sys", kernel: kernel, find: find}
	return r.serve(in, out)
}

func (r *runner) serve(in io.Reader, out io.Writer) error {
	r.out, r.running = json.NewEncoder(out), map[int]*script{}
	if err := r.install(); err != nil {
		return fmt.Errorf("suite: %w", err)
	}
	r.say(reply{Say: sayHello})
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var q request
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			return fmt.Errorf("suite: request %q: %w", lines.Bytes(), err)
		}
		if err := r.handle(q); err != nil {
			return fmt.Errorf("suite: %w", err)
		}
	}
	return lines.Err()
}

// install puts the Python modules where scripts find them.
func (r *runner) install() error {
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return err
	}
	files, err := python.ReadDir("python")
	if err != nil {
		return err
	}
	for _, f := range files {
		b, err := python.ReadFile("python/" + f.Name())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(r.dir, f.Name()), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) say(p reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.out.Encode(p) // a host that has gone ends the requests, too
}

func (r *runner) handle(q request) error {
	switch q.Do {
	case doStart:
		c, ok := r.find(q.Case)
		if !ok {
			return fmt.Errorf("no case %q", q.Case)
		}
		go r.run(q, c)
	case doStop:
		r.stop(q.ID)
	case doKernel:
		log, wrong := r.kernel.read()
		r.say(reply{ID: q.ID, Say: sayKernel, Log: log, Bad: wrong})
	default:
		return fmt.Errorf("unknown request %q", q.Do)
	}
	return nil
}

// stopGrace is what a script has between SIGTERM and SIGKILL.
const stopGrace = 2 * time.Second

// stop ends a script's process group, if it still runs.
func (r *runner) stop(id int) {
	if !r.signal(id, unix.SIGTERM) {
		return
	}
	time.AfterFunc(stopGrace, func() { r.signal(id, unix.SIGKILL) })
}

func (r *runner) signal(id int, s syscall.Signal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.running[id]
	if p == nil {
		return false
	}
	p.stopped = true
	_ = unix.Kill(-p.pid, s)
	return true
}

// run runs one script to its end.
func (r *runner) run(q request, c *Case) {
	text := c.Script
	if q.Server {
		text = c.Server
	}
	p := reply{ID: q.ID, Say: sayEnded}
	begin := time.Now()
	env, err := environment(r.sys, q.Env)
	if err != nil {
		p.Status, p.Error = 126, err.Error()
		r.say(p)
		return
	}
	var output capture
	cmd := exec.Command("sh", "-c", library+text)
	cmd.Dir, cmd.Env = r.dir, append(append(os.Environ(), env...), "LIB="+r.dir)
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second // for whoever else holds the pipe
	before := guest.ListenersNow()
	if err := cmd.Start(); err != nil {
		p.Status, p.Error = 126, err.Error()
		r.say(p)
		return
	}
	s := &script{pid: cmd.Process.Pid}
	r.mu.Lock()
	r.running[q.ID] = s
	r.mu.Unlock()

	ended := make(chan struct{})
	var ready sync.WaitGroup
	if q.Server {
		ready.Go(func() {
			ok := awaitReady(c, before, cmd.Env, ended)
			r.say(reply{ID: q.ID, Say: sayReady, NotReady: !ok})
		})
	}
	var expired bool
	limit := time.AfterFunc(c.limit(), func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		expired = true
		_ = unix.Kill(-s.pid, unix.SIGKILL)
	})
	err = cmd.Wait()
	limit.Stop()
	r.mu.Lock()
	delete(r.running, q.ID)
	p.Expired, p.Stopped = expired, s.stopped
	r.mu.Unlock()
	_ = unix.Kill(-s.pid, unix.SIGKILL) // what it left behind
	close(ended)
	ready.Wait()

	p.Status, p.Output, p.Took = statusOf(cmd.ProcessState), output.String(), time.Since(begin)
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		p.Error = err.Error()
	}
	r.say(p)
}

// statusOf is the status as a shell reports it.
func statusOf(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}

// readyPoll is how often a condition is looked at.
const readyPoll = 100 * time.Millisecond

// awaitReady waits until a server can be talked to. It has as long as it may run.
func awaitReady(c *Case, before guest.Listeners, env []string, ended <-chan struct{}) bool {
	if c.Ready == "" {
		return before.AwaitNew(c.limit(), ended)
	}
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		cmd := exec.Command("sh", "-c", library+c.Ready)
		cmd.Env = env
		if cmd.Run() == nil {
			return true
		}
		select {
		case <-tick.C:
		case <-ended:
			return false
		}
	}
}

// maxOutput bounds what is kept of an output: its beginning and its end.
const maxOutput = 64 << 10

// capture keeps an output's two ends.
type capture struct {
	mu         sync.Mutex
	head, tail []byte
	lost       int
}

func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(p)
	if room := maxOutput/2 - len(c.head); room > 0 {
		c.head = append(c.head, p[:min(room, len(p))]...)
		p = p[min(room, len(p)):]
	}
	c.tail = append(c.tail, p...)
	if over := len(c.tail) - maxOutput/2; over > 0 {
		c.tail, c.lost = append([]byte(nil), c.tail[over:]...), c.lost+over
	}
	return n, nil
}

func (c *capture) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost == 0 {
		return string(c.head) + string(c.tail)
	}
	return fmt.Sprintf("%s\n(%d bytes are left out here)\n%s", bytes.TrimRight(c.head, "\n"), c.lost, c.tail)
}
