// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vrnic/vrnic/guest/wire"
	"golang.org/x/sys/unix"
)

func TestStatus(t *testing.T) {
	for _, tc := range []struct {
		name    string
		command []string
		want    Result
		stdout  string
		stderr  string
	}{
		{name: "success", command: []string{"true"}},
		{name: "failure", command: []string{"false"}, want: Result{Status: 1}},
		{name: "status", command: []string{"sh", "-c", "exit 7"}, want: Result{Status: 7}},
		{name: "killed", command: []string{"sh", "-c", "kill -9 $$"}, want: Result{Status: 137}},
		{name: "not found", command: []string{"no-such-program"}, want: Result{Status: 127, Reason: "no-such-program: command not found"}},
		{name: "not found by path", command: []string{"/no/such"}, want: Result{Status: 127, Reason: "/no/such: not found"}},
		{name: "not executable", command: []string{"/dev/null"}, want: Result{Status: 126, Reason: "/dev/null: not an executable file"}},
		{
			name:    "streams are separate",
			command: []string{"sh", "-c", `printf 'out\0\r\n'; printf err >&2; printf more; exit 3`},
			want:    Result{Status: 3}, stdout: "out\x00\r\nmore", stderr: "err",
		},
		{
			name:    "arguments are bytes",
			command: []string{"printf", "%s|", "\xff\xfe", "a b", "", "$HOME"},
			stdout:  "\xff\xfe|a b||$HOME|",
		},
		{
			name:    "no standard input",
			command: []string{"cat"},
		},
		{
			// The sleep keeps the output open; its end is not waited for.
			name:    "daemon left behind",
			command: []string{"sh", "-c", "sleep 600 & echo $!; exec kill $!"},
			want:    Result{}, stdout: "PID\n",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := fakeConfig(t, "ok", tc.command...)
			var stdout, stderr bytes.Buffer
			c.Stdout, c.Stderr = &stdout, &stderr
			got, err := Run(t.Context(), c)
			if err != nil {
				t.Fatalf("%+v", err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			out := stdout.String()
			if tc.stdout == "PID\n" {
				if _, err := strconv.Atoi(strings.TrimSpace(out)); err != nil {
					t.Errorf("standard output %q", out)
				}
				return
			}
			if out != tc.stdout || stderr.String() != tc.stderr {
				t.Errorf("standard output %q, want %q; standard error %q, want %q", out, tc.stdout, stderr.String(), tc.stderr)
			}
		})
	}
}

func TestEnvironment(t *testing.T) {
	c := fakeConfig(t, "ok", "sh", "-c", `printf %s "$GREETING"`)
	c.Env = []string{"GREETING=hello\nworld"}
	var out bytes.Buffer
	c.Stdout = &out
	if _, err := Run(t.Context(), c); err != nil {
		t.Fatalf("%+v", err)
	}
	if out.String() != "hello\nworld" {
		t.Errorf("got %q", out.String())
	}
}

// TestLargeStreams sends more than all buffers together both ways.
func TestLargeStreams(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef\x00\n"), 1<<18)
	c := fakeConfig(t, "ok", "sh", "-c", "tee /dev/stderr")
	var stdout, stderr bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(data), &stdout, &stderr
	if got, err := Run(t.Context(), c); err != nil || got.Status != 0 {
		t.Fatalf("%+v %+v", got, err)
	}
	if !bytes.Equal(stdout.Bytes(), data) || !bytes.Equal(stderr.Bytes(), data) {
		t.Errorf("%d bytes in, %d and %d bytes out", len(data), stdout.Len(), stderr.Len())
	}
}

// TestReaderHasEnough: the command gets SIGPIPE when its reader goes.
func TestReaderHasEnough(t *testing.T) {
	c := fakeConfig(t, "ok", "yes")
	r, w := io.Pipe()
	c.Stdout = w
	go func() {
		_, _ = io.ReadFull(r, make([]byte, 1<<20))
		r.Close()
	}()
	got, err := Run(t.Context(), c)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	if want := 128 + int(syscall.SIGPIPE); got.Status != want {
		t.Errorf("status %d, want %d", got.Status, want)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestOutputCannotBeWritten(t *testing.T) {
	c := fakeConfig(t, "ok", "echo", "hello")
	c.Stdout = failingWriter{}
	if _, err := Run(t.Context(), c); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v, want ENOSPC", err)
	}
}

// TestInputLeftAlone: what the command did not read is still there.
func TestInputLeftAlone(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	c := fakeConfig(t, "ok", "true")
	c.Stdin = r
	if _, err := Run(t.Context(), c); err != nil {
		t.Fatalf("%+v", err)
	}
	if _, err := w.Write([]byte("for the next")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	n, err := r.Read(buf)
	if err != nil || string(buf[:n]) != "for the next" {
		t.Errorf("read %q, %v", buf[:n], err)
	}
}

func TestTimeout(t *testing.T) {
	c := fakeConfig(t, "ok", "sh", "-c", "echo before; exec cat")
	r, w, err := os.Pipe() // never ends
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	var out bytes.Buffer
	c.Stdin, c.Stdout, c.Timeout = r, &out, 200*time.Millisecond
	if _, err := Run(t.Context(), c); !errors.Is(err, ErrTimeout) {
		t.Fatalf("got %+v, want ErrTimeout", err)
	}
	if out.String() != "before\n" {
		t.Errorf("output before the timeout: %q", out.String())
	}
}

// machineError runs c and returns the machine's failure.
func machineError(t *testing.T, c Config) *MachineError {
	t.Helper()
	_, err := Run(t.Context(), c)
	var e *MachineError
	if !errors.As(err, &e) {
		t.Fatalf("got %+v, want a MachineError", err)
	}
	if all, want := fmt.Sprintf("%+v", err), fmt.Sprintf("%+v", e); all != want {
		t.Errorf("%q, want it with its console: %q", all, want)
	}
	return e
}

func TestMachineFails(t *testing.T) {
	for _, tc := range []struct {
		name, scenario string
		command        []string
		want           string
	}{
		{"panic", "ok", []string{"sh", "-c", "kill -USR1 $PPID; exec cat"}, "Kernel panic - not syncing: sysrq triggered crash"},
		{"panic without reset", "panic-hangs", []string{"sh", "-c", "kill -USR1 $PPID; exec cat"}, "Kernel panic - not syncing: sysrq triggered crash"},
		{"reset", "ok", []string{"sh", "-c", "kill -USR2 $PPID; exec cat"}, "the guest reset (reboot or triple fault)"},
		{"QEMU killed", "ok", []string{"sh", "-c", "kill -9 $PPID; exec cat"}, "QEMU ended: signal: killed"},
		{"QEMU refuses", "bad-argument", []string{"true"}, "QEMU ended: exit status 1: qemu: -device frobnicator: no such device"},
		{"silent for ever", "silent", []string{"true"}, "no sign of life while booting, 3 times"},
		{"boots for ever", "chatty", []string{"true"}, "the agent did not speak within 500ms (--boot-timeout)"},
		{"agent talks nonsense", "nonsense", []string{"true"}, "guest channel: protocol violated: frame type 65"},
		{"agent of another version", "old-agent", []string{"true"}, "guest channel: protocol violated: the agent speaks version 3, not 2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := fakeConfig(t, tc.scenario, tc.command...)
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			defer w.Close()
			c.Stdin = r // so that cat waits
			if tc.scenario == "chatty" {
				c.BootTimeout = 500 * time.Millisecond
			}
			e := machineError(t, c)
			if e.Why != tc.want {
				t.Errorf("why: %q, want %q", e.Why, tc.want)
			}
		})
	}
}

// TestConsoleTail: the last lines, without what would disturb a terminal.
func TestConsoleTail(t *testing.T) {
	c := fakeConfig(t, "ok", "sh", "-c", "kill -USR1 $PPID; exec cat")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	c.Stdin = r
	e := machineError(t, c)
	var want []string
	for i := 16; i < 40; i++ {
		want = append(want, fmt.Sprintf("[    1.%06d] trace line %d", i, i))
	}
	want = append(want, "[    2.000000] Kernel panic - not syncing: sysrq triggered crash")
	if diff := cmp.Diff(want, e.ConsoleTail); diff != "" {
		t.Error(diff)
	}
	if got := fmt.Sprintf("%v", e); strings.Contains(got, "\n") {
		t.Errorf("%%v is not one line: %q", got)
	}
	if got := fmt.Sprintf("%+v", e); !strings.Contains(got, "\n  [    1.000016] trace line 16\n") {
		t.Errorf("%%+v has no console: %q", got)
	}
}

// TestKernelTail: where the console, which is quiet, has nothing, the kernel log
// tells how far the guest came.
func TestKernelTail(t *testing.T) {
	var log tail
	fmt.Fprint(&log, "<6>[    1.000000] ice: reading the NVM\n<4>[    2.000000] ")
	e := &MachineError{Why: "not ready", KernelTail: log.get()}
	want := "guest: not ready\nlast lines of the guest's kernel log:\n  <6>[    1.000000] ice: reading the NVM\n  <4>[    2.000000] "
	if got := fmt.Sprintf("%+v", e); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	e.ConsoleTail = []string{"panic"}
	if got := fmt.Sprintf("%+v", e); !strings.HasSuffix(got, "console:\n  panic") {
		t.Errorf("with a console: %q", got)
	}
}

// TestRestart: a guest that shows no life is started again, and it is said.
func TestRestart(t *testing.T) {
	c := fakeConfig(t, "silent-once:"+filepath.Join(t.TempDir(), "flag"), "echo", "alive")
	var out, log bytes.Buffer
	c.Stdout, c.Logger = &out, bufferLogger(&log)
	if _, err := Run(t.Context(), c); err != nil {
		t.Fatalf("%+v", err)
	}
	if out.String() != "alive\n" {
		t.Errorf("output %q", out.String())
	}
	if n := strings.Count(log.String(), "no sign of life"); n != 1 {
		t.Errorf("%d restarts in the log, want 1:\n%s", n, &log)
	}
}

// TestBooted: what the agent says of its guest is told before the command runs.
func TestBooted(t *testing.T) {
	c := fakeConfig(t, "ok", "true")
	var kernel string
	var ready wire.Ready
	c.Booted = func(k string, r wire.Ready) { kernel, ready = k, r }
	if _, err := Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if kernel != "7.3.4-fake" || len(ready.Modules) != 1 || ready.Modules[0].SrcVersion != "F4CE" {
		t.Errorf("kernel %q, %+v", kernel, ready)
	}
}

// TestMissingDevices: what the agent waited for in vain is said, and the command
// runs all the same.
func TestMissingDevices(t *testing.T) {
	c := fakeConfig(t, "ok", "true")
	var log bytes.Buffer
	c.Logger = bufferLogger(&log)
	if got, err := Run(t.Context(), c); err != nil || got.Status != 0 {
		t.Fatalf("%+v %+v", got, err)
	}
	if !strings.Contains(log.String(), "irdma0 is not active") {
		t.Errorf("log:\n%s", &log)
	}
}

// TestNoPowerOff: a guest that hangs when it should end costs the command
// nothing, but is told about.
func TestNoPowerOff(t *testing.T) {
	c := fakeConfig(t, "no-power-off", "sh", "-c", "exit 4")
	c.limits.powerOff = 50 * time.Millisecond
	var log bytes.Buffer
	c.Logger = bufferLogger(&log)
	if got, err := Run(t.Context(), c); err != nil || got.Status != 4 {
		t.Fatalf("%+v %+v", got, err)
	}
	if !strings.Contains(log.String(), "did not power off within 50ms") {
		t.Errorf("log:\n%s", &log)
	}
}

func TestCancel(t *testing.T) {
	c := fakeConfig(t, "ok", "sh", "-c", "echo started; exec cat")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("Ctrl-C")
	c.Stdin = r
	c.Stdout = writerFunc(func(p []byte) (int, error) { cancel(cause); return len(p), nil })
	if _, err := Run(ctx, c); !errors.Is(err, cause) {
		t.Errorf("got %v, want the cause", err)
	}
}

func TestCancelWhileBooting(t *testing.T) {
	c := fakeConfig(t, "chatty", "true")
	ctx, cancel := context.WithCancel(t.Context())
	c.Console = writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil })
	if _, err := Run(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestNothingLeft: no descriptor, no goroutine, no file, however a run ends.
func TestNothingLeft(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp) // where the monitor's directory is made
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	init := fakeInit(t)
	run := func(scenario string, command ...string) {
		c := fakeConfigWith(init, scenario, command...)
		c.Stdin, c.Timeout = r, 300*time.Millisecond
		_, _ = Run(t.Context(), c)
	}
	run("ok", "true") // what is set up once: poller, signal handling
	descriptors, goroutines := countDescriptors(t), runtime.NumGoroutine()
	run("ok", "true")
	run("ok", "cat") // times out
	run("ok", "sh", "-c", "kill -9 $PPID")
	run("ok", "sh", "-c", "kill -USR1 $PPID; exec cat")
	run("silent", "true")
	run("bad-argument", "true")
	run("nonsense", "true")
	if n := countDescriptors(t); n != descriptors {
		t.Errorf("%d descriptors before, %d after", descriptors, n)
	}
	for i := 0; runtime.NumGoroutine() > goroutines && i < 500; i++ {
		time.Sleep(10 * time.Millisecond) // they end on their own
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		buf := make([]byte, 1<<20)
		t.Errorf("%d goroutines before, %d after:\n%s", goroutines, n, buf[:runtime.Stack(buf, true)])
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
		t.Errorf("temporary files: %v %v", left, err)
	}
}

func countDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestDiesWithUs: QEMU does not outlive a vrnic that is killed.
func TestDiesWithUs(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	vrnic := exec.Command(self, "fake-vrnic", fakeInit(t))
	out, err := vrnic.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	vrnic.Stderr = os.Stderr
	if err := vrnic.Start(); err != nil {
		t.Fatal(err)
	}
	var qemu int
	if _, err := fmt.Fscan(out, &qemu); err != nil {
		t.Fatal(err)
	}
	pidfd, err := unix.PidfdOpen(qemu, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	if err := vrnic.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = vrnic.Wait()
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 20_000)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n != 1 {
			t.Fatalf("QEMU (%d) lives on: poll %d, %v", qemu, n, err)
		}
		return
	}
}

// TestSeveralCommands: one boot, commands in a row and at the same time.
func TestSeveralCommands(t *testing.T) {
	m, err := Boot(t.Context(), fakeConfig(t, "ok"))
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer m.Kill()
	if m.Kernel() != "7.3.4-fake" {
		t.Errorf("kernel %q", m.Kernel())
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			var out bytes.Buffer
			got, err := m.Exec(t.Context(), Command{
				Argv:  []string{"sh", "-c", "cat; exit " + strconv.Itoa(i)},
				Stdin: strings.NewReader(strings.Repeat(strconv.Itoa(i), 100_000)), Stdout: &out,
			}, 0)
			if err != nil || got.Status != i || out.String() != strings.Repeat(strconv.Itoa(i), 100_000) {
				t.Errorf("command %d: %+v %v, %d bytes", i, got, err, out.Len())
			}
		})
	}
	wg.Wait()

	p, err := m.Start(Command{Argv: []string{"sh", "-c", "trap 'exit 9' TERM; echo; while :; do read x; done"},
		Stdin: eternal(t), Stdout: writerFunc(func(b []byte) (int, error) { return len(b), nil })})
	if err != nil {
		t.Fatal(err)
	}
	<-p.started
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got, err := p.Wait(t.Context(), 0); err != nil || got.Status != 137 {
		t.Errorf("killed command: %+v %v", got, err)
	}
	if err := m.Close(); err != nil {
		t.Errorf("%+v", err)
	}
	if _, err := m.Exec(t.Context(), Command{Argv: []string{"true"}}, 0); err == nil {
		t.Error("a command ran on a machine that is gone")
	}
}

// eternal is an input that never ends.
func eternal(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close(); r.Close() }) // in this order: who waits for input may be told by nobody else
	return r
}

func TestArtifacts(t *testing.T) {
	c := fakeConfig(t, "ok", "true")
	c.Artifacts = filepath.Join(t.TempDir(), "a", "b")
	if _, err := Run(t.Context(), c); err != nil {
		t.Fatalf("%+v", err)
	}
	for name, want := range map[string]string{
		"console.log": "firmware speaks",
		"qemu.log":    "fake-qemu",
		"qmp.log":     "guest-shutdown",
		"kernel.log":  "",
	} {
		b, err := os.ReadFile(filepath.Join(c.Artifacts, name))
		if err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}
