// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vrnic/vrnic/guest/launch"
	"github.com/vrnic/vrnic/images"
)

// root of the checkout, from here.
const root = "../.."

// vrnicBinary is what make build makes.
func vrnicBinary(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, "bin", "vrnic"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v (make build makes it)", err)
	}
	return path
}

// buildProgram builds a program of this folder, static, as guests need it.
func buildProgram(t *testing.T, name string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), name)
	cmd := exec.Command("go", "build", "-trimpath", "-o", out, "./"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, text)
	}
	return out
}

// server is a process that serves vfio-user sockets.
type server struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer  // to be read after stop
	done   chan struct{} // closed when it has ended
}

// startServer starts a server and waits for its line "ready". It ends with the
// test, and with this process even if that is killed: the kernel kills it with
// the thread that started it, so that thread is kept for as long.
func startServer(t *testing.T, argv ...string) *server {
	t.Helper()
	s := &server{cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	s.cmd.Stderr = &s.stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	s.cmd.Stdout = stdout
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := s.cmd.Start()
		stdout.Close()
		started <- err
		if err == nil {
			_ = s.cmd.Wait() // the echo server dies of stop's signal
			close(s.done)
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.stop() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%s: %q, %v\n%s", argv[0], line, err, s.stop())
	}
	return s
}

// stop ends the server and returns what it said on stderr.
func (s *server) stop() string {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // fails if it has ended
	timer := time.AfterFunc(10*time.Second, func() { _ = s.cmd.Process.Kill() })
	defer timer.Stop()
	<-s.done
	return s.stderr.String()
}

// guestConfig is a guest with one CPU and no driver.
func guestConfig(t *testing.T, vrnic string) launch.Config {
	t.Helper()
	dir, err := images.DefaultDir()
	if err != nil {
		t.Fatal(err)
	}
	cache, err := images.Open(images.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	qemu, err := cache.QEMU(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := cache.Kernel(t.Context(), images.DefaultKernel)
	if err != nil {
		t.Fatal(err)
	}
	initrd, err := cache.Initramfs(t.Context(), kernel)
	if err != nil {
		t.Fatal(err)
	}
	c := launch.Config{
		QEMU: qemu.Argv, Kernel: kernel.Image, Initrd: []string{initrd}, Init: vrnic,
		CPUs: 1, MemoryMiB: 768,
		BootTimeout: 5 * time.Minute, // few CPUs for everything
	}
	c.Guest.Modules = []string{}
	return c
}

// bootGuest starts a guest with the devices on sockets, edu, and the programs
// given in /root.
func bootGuest(t *testing.T, vrnic string, sockets []string, programs ...string) *launch.Machine {
	t.Helper()
	c := guestConfig(t, vrnic)
	c.Sockets, c.QEMUArgs = sockets, []string{"-device", "edu"}
	// A register of a bound device may be mapped.
	c.Append = "iomem=relaxed"
	for _, p := range programs {
		c.Copies = append(c.Copies, launch.Copy{Host: p, Guest: "/root/"})
	}
	m, err := launch.Boot(t.Context(), c)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(m.Kill)
	return m
}

// guestLimit bounds a program in the guest.
const guestLimit = 10 * time.Minute

// inGuest runs a program that must succeed and returns its output.
func inGuest(t *testing.T, m *launch.Machine, argv ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	r, err := m.Exec(t.Context(), launch.Command{Argv: argv, Stdout: &stdout, Stderr: &stderr}, guestLimit)
	if err != nil || r.Status != 0 {
		t.Fatalf("%s: %+v, %v\n%s%s", strings.Join(argv, " "), r, err, &stdout, &stderr)
	}
	return stdout.String()
}

// tool is mmiobench, running in the guest.
type tool struct {
	process *launch.Process
	stdin   io.WriteCloser
	stdout  *bufio.Reader
	stderr  *bytes.Buffer // to be read once the program has ended
}

// startTool starts mmiobench for the devices.
func startTool(t *testing.T, m *launch.Machine, devices ...string) *tool {
	t.Helper()
	in, stdin := io.Pipe()
	out, stdout := io.Pipe()
	b := &tool{stdin: stdin, stdout: bufio.NewReader(out), stderr: new(bytes.Buffer)}
	var err error
	b.process, err = m.Start(launch.Command{Argv: append([]string{"/root/mmiobench"}, devices...), Stdin: in, Stdout: stdout, Stderr: b.stderr})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := b.process.Wait(t.Context(), 0)
		stdout.CloseWithError(cmp.Or(err, io.EOF))
	}()
	for range devices {
		t.Logf("in the guest: %s", b.line(t))
	}
	return b
}

func (b *tool) line(t *testing.T) string {
	t.Helper()
	line, err := b.stdout.ReadString('\n')
	if err != nil {
		t.Fatalf("mmiobench: %v\n%s", err, b.stderr)
	}
	return strings.TrimSpace(line)
}

// run does count accesses ("read" or "write") to a device.
func (b *tool) run(t *testing.T, what, device string, count int) (whole, issue time.Duration) {
	t.Helper()
	if _, err := fmt.Fprintln(b.stdin, what, device, count); err != nil {
		t.Fatalf("mmiobench: %v", err)
	}
	if line := b.line(t); !scan(line, &whole, &issue) {
		t.Fatalf("mmiobench: %q", line)
	}
	return whole, issue
}

func scan(line string, whole, issue *time.Duration) bool {
	n, err := fmt.Sscan(line, (*int64)(whole), (*int64)(issue))
	return n == 2 && err == nil
}

// stop ends the program.
func (b *tool) stop() { b.stdin.Close() }
