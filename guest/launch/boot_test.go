// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vrnic/vrnic/guest/wire"
	"github.com/vrnic/vrnic/images"
	"github.com/vrnic/vrnic/serve"
)

var bootKernels = flag.String("boot", "", "boot these kernels of the image cache (comma-separated); needs network if they are not there")

// bootConfig is a guest with the real QEMU, kernel, userland and agent.
func bootConfig(t *testing.T, kernel string) Config {
	t.Helper()
	dir, err := images.DefaultDir()
	if err != nil {
		t.Fatal(err)
	}
	cache, err := images.Open(images.Options{Dir: dir, Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	qemu, err := cache.QEMU(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	k, err := cache.Kernel(t.Context(), kernel)
	if err != nil {
		t.Fatal(err)
	}
	initrd, err := cache.Initramfs(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	// The test binary may be linked dynamically (-race), and is no init.
	init := filepath.Join(t.TempDir(), "vrnic")
	build := exec.Command("go", "build", "-o", init, "github.com/vrnic/vrnic/cmd/vrnic")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return Config{
		QEMU: qemu.Argv, Kernel: k.Image, Initrd: []string{initrd}, Init: init,
		Logger: testLogger(t), Artifacts: t.TempDir(),
		Guest: wire.Config{
			Hostname:        "first",
			ModprobeOptions: []string{"ib_umad no_such_option=1"},
		},
	}
}

// TestBoot boots each kernel without a device and looks at what every command
// relies on. It is not part of a plain go test because it needs the image cache
// and, without KVM, most of a minute per kernel on a busy machine.
func TestBoot(t *testing.T) {
	if *bootKernels == "" {
		t.Skip("boots real guests: run with -boot debian-12,debian-13,debian-backports")
	}
	for kernel := range strings.SplitSeq(*bootKernels, ",") {
		t.Run(kernel, func(t *testing.T) { testBoot(t, kernel) })
	}
}

func testBoot(t *testing.T, kernel string) {
	c := bootConfig(t, kernel)
	source := filepath.Join(t.TempDir(), "tree")
	if err := os.MkdirAll(filepath.Join(source, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(source, "sub", "script"), []byte("#!/bin/sh\necho from the host\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	c.Copies = []Copy{{Host: source, Guest: "/root/"}}
	begin := time.Now()
	m, err := Boot(t.Context(), c)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer m.Kill()
	t.Logf("%s ready after %v", m.Kernel(), time.Since(begin))

	run := func(script string) (string, int) {
		t.Helper()
		var out bytes.Buffer
		result, err := m.Exec(t.Context(), Command{Argv: []string{"sh", "-c", script}, Stdout: &out, Stderr: &out}, 0)
		if err != nil {
			t.Fatalf("%s: %+v", script, err)
		}
		return out.String(), result.Status
	}
	for _, tc := range []struct {
		name, script, want string
		status             int
	}{
		{"root in its home", "id -u; pwd; hostname", "0\n/root\nfirst\n", 0},
		{"environment", `echo "$HOME $USER $SHELL"; command -v modprobe >/dev/null && command -v ibv_devinfo >/dev/null`, "/root root /bin/sh\n", 0},
		{"drivers are loaded", "for m in ice irdma ib_uverbs rdma_ucm; do test -d /sys/module/$m || echo no $m; done", "", 0},
		{"drivers can be reloaded", "rmmod irdma ice && modprobe ice && modprobe irdma", "", 0},
		{"module options", "cat /etc/modprobe.d/vrnic.conf", "options ib_umad no_such_option=1\n", 0},
		{"file systems", "for d in /proc /sys /dev /dev/pts /dev/shm /run /tmp /sys/fs/cgroup /sys/kernel/debug /sys/kernel/tracing /sys/kernel/config; do grep -q \" $d \" /proc/mounts || echo no $d; done", "", 0},
		{"device links", "echo hello >/dev/stdout; test -e /dev/fd/0 && test -c /dev/ptmx", "hello\n", 0},
		{"loopback", "ping -c1 -q 127.0.0.1 >/dev/null", "", 0},
		{"copies", "tree/sub/script", "from the host\n", 0},
		{"locked memory", "ulimit -l", "unlimited\n", 0},
		{"orphans are reaped", "sh -c 'sh -c \"exit 0\" & exit 0'; sleep 0.2; ps -o stat,comm | grep -c '^Z' || true", "0\n", 0},
		{"signal", "kill -9 $$", "", 137},
		{"status", "exit 7", "", 7},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if out, status := run(tc.script); out != tc.want || status != tc.status {
				t.Errorf("%s: status %d, output %q; want %d, %q", tc.script, status, out, tc.status, tc.want)
			}
		})
	}

	data := bytes.Repeat([]byte("0123456789abcdef\x00\xff\r\n"), 1<<19)
	var out bytes.Buffer
	if r, err := m.Exec(t.Context(), Command{Argv: []string{"cat"}, Stdin: bytes.NewReader(data), Stdout: &out}, 0); err != nil || r.Status != 0 || !bytes.Equal(out.Bytes(), data) {
		t.Errorf("cat of %d bytes: %+v, %v, %d bytes", len(data), r, err, out.Len())
	}
	out.Reset()
	if r, err := m.Exec(t.Context(), Command{Argv: []string{"stty", "size"}, Stdout: &out, TTY: true}, 0); err != nil || r.Status != 0 || out.String() != "24 80\r\n" {
		t.Errorf("terminal: %+v, %v, %q", r, err, out.String())
	}

	if _, err := m.Exec(t.Context(), Command{Argv: []string{"sh", "-c", "echo c >/proc/sysrq-trigger; cat"}, Stdin: eternal(t)}, 0); err == nil {
		t.Error("a panic gave no error")
	} else {
		var e *MachineError
		if !errors.As(err, &e) || e.Why != "Kernel panic - not syncing: sysrq triggered crash" || len(e.ConsoleTail) == 0 {
			t.Errorf("panic: %+v", err)
		}
	}
	log, err := os.ReadFile(filepath.Join(c.Artifacts, "kernel.log"))
	if err != nil || !strings.HasPrefix(string(log), "<5>[    0.000000] Linux version ") {
		t.Errorf("kernel.log begins with %.60q, %v", log, err)
	}
}

// TestPowerOff: a guest that is asked to goes quietly, and one that goes by
// itself is told apart from one that panics.
func TestPowerOff(t *testing.T) {
	if *bootKernels == "" {
		t.Skip("boots real guests: see TestBoot")
	}
	kernel, _, _ := strings.Cut(*bootKernels, ",")
	c := bootConfig(t, kernel)
	c.Guest.Modules = []string{"ib_uverbs"}
	m, err := Boot(t.Context(), c)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	begin := time.Now()
	if err := m.Close(); err != nil {
		t.Errorf("%+v", err)
	}
	t.Logf("powered off in %v", time.Since(begin))

	c.Command, c.Stdin = []string{"sh", "-c", "poweroff -f; cat"}, eternal(t)
	if e := machineError(t, c); e.Why != "the guest powered off" {
		t.Errorf("why: %q", e.Why)
	}
}

// TestBootReset: a reset ends what runs in the guest, and it comes up again with
// its card; a reset of the guest's own making still ends the machine.
func TestBootReset(t *testing.T) {
	if *bootKernels == "" {
		t.Skip("boots real guests: see TestBoot")
	}
	kernel, _, _ := strings.Cut(*bootKernels, ",")
	c := bootConfig(t, kernel)
	c.Sockets = []string{filepath.Join(t.TempDir(), "card")}
	host, err := serve.Start(t.Context(), serve.Options{Sockets: c.Sockets, Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	m, err := Boot(t.Context(), c)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer m.Kill()
	first := m.Ready()
	if len(first.Devices) != 1 || first.Devices[0].IBDev == "" || len(first.Missing) > 0 {
		t.Fatalf("before the reset: %+v", first)
	}
	for range 2 {
		p, err := m.Start(Command{Argv: []string{"yes"}}) // its output is cut off in the middle
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if err := m.Reset(t.Context()); err != nil {
			t.Fatalf("%+v", err)
		}
		t.Logf("reset and ready after %v", time.Since(begin))
		if _, err := p.Wait(t.Context(), 0); !errors.Is(err, ErrReset) {
			t.Errorf("the command ended with %v", err)
		}
		if got := m.Ready(); !reflect.DeepEqual(got, first) {
			t.Errorf("after the reset %+v, before %+v", got, first)
		}
		var out bytes.Buffer
		if r, err := m.Exec(t.Context(), Command{Argv: []string{"ibv_devinfo"}, Stdout: &out}, 0); err != nil || r.Status != 0 || !strings.Contains(out.String(), "PORT_ACTIVE") {
			t.Errorf("ibv_devinfo: %+v, %v\n%s", r, err, out.String())
		}
	}
	if _, err := m.Exec(t.Context(), Command{Argv: []string{"sh", "-c", "reboot -f; cat"}, Stdin: eternal(t)}, 0); err == nil || err.Error() != "guest: the guest reset (reboot or triple fault)" {
		t.Errorf("a reboot: %+v", err)
	}
}
