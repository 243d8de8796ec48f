// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vrnic/vrnic/serve"
)

// qtest drives a real QEMU without a guest: its test protocol
// (docs/devel/testing/qtest.rst) writes guest memory and device registers.
type qtest struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Reader
}

func (q *qtest) do(format string, args ...any) {
	q.t.Helper()
	command := fmt.Sprintf(format, args...)
	fmt.Fprintln(q.in, command)
	if line, err := q.out.ReadString('\n'); err != nil || !strings.HasPrefix(line, "OK") {
		q.t.Fatalf("qtest: %s: %q, %v", command, line, err)
	}
}

// config writes 4 bytes of the card's config space by the PC's ports.
func (q *qtest) config(offset, value uint32) {
	q.t.Helper()
	q.do("outl 0xcf8 %#x", 1<<31|qtestSlot<<11|offset)
	q.do("outl 0xcfc %#x", value)
}

const (
	qtestSlot = 5
	bar0      = 0xe0000000
)

// postCommand does what a driver does first: set up the admin queue's send ring
// and post a command in it (ice_controlq.c:ice_cfg_sq_regs, ice_sq_send_cmd).
func (q *qtest) postCommand() {
	const ring = 0x100000
	q.config(0x10, bar0)
	q.config(0x04, 6) // memory, bus master
	q.do("write %#x 32 0x%064x", ring, 0)
	q.do("writew %#x 0x2000", ring) // ICE_AQ_FLAG_SI
	q.do("writew %#x 1", ring+2)    // ice_aqc_opc_get_ver
	for _, r := range [][2]uint32{
		{0x00080000, ring},       // PF_FW_ATQBAL
		{0x00080200, 1<<31 | 32}, // PF_FW_ATQLEN
		{0x00080400, 1},          // PF_FW_ATQT
	} {
		q.do("writel %#x %#x", bar0+r[0], r[1])
	}
	q.do("readl %#x", bar0+0x00080300) // PF_FW_ATQH: the card has seen it all
}

// TestBootMemory: a guest whose memory the card cannot share is told so, in one
// line that says what to do; one whose memory is shared is not.
func TestBootMemory(t *testing.T) {
	if *bootKernels == "" {
		t.Skip("runs the image cache's QEMU: see TestBoot")
	}
	c := bootConfig(t, strings.Split(*bootKernels, ",")[0])
	for _, tc := range []struct {
		name   string
		memory []string
		want   string // in the one line; empty: no line
	}{
		{"shared", machineArgs("256M"), ""},
		{"shared file", []string{"-machine", "q35,memory-backend=m", "-m", "256M",
			"-object", "memory-backend-file,id=m,size=256M,share=on,mem-path=" + filepath.Join(sharedMemory(t), "ram")}, ""},
		{"no descriptor", []string{"-machine", "q35", "-m", "256M"}, "no descriptor"},
		{"private", []string{"-machine", "q35,memory-backend=m", "-m", "256M",
			"-object", "memory-backend-memfd,id=m,size=256M,share=off"}, "share=off"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "card")
			lines := make(chan string, 100)
			logger := hclog.New(&hclog.LoggerOptions{Output: lineWriter(lines), Level: hclog.Warn, DisableTime: true})
			host, err := serve.Start(t.Context(), serve.Options{Sockets: []string{socket}, Logger: logger})
			if err != nil {
				t.Fatal(err)
			}
			defer host.Close()
			device := fmt.Sprintf(`{"driver":"vfio-user-pci","bus":"pcie.0","addr":"%d","socket":{"type":"unix","path":"%s"}}`, qtestSlot, socket)
			argv := slices.Concat(c.QEMU, []string{"-nodefaults", "-no-user-config", "-display", "none", "-accel", "tcg", "-S", "-qtest", "stdio", "-qtest-log", "none"},
				tc.memory, []string{"-device", device})
			cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
				if t.Failed() {
					t.Logf("QEMU: %s", stderr.Bytes())
				}
			}()
			q := &qtest{t, in, bufio.NewReader(out)}
			q.postCommand()
			if tc.want != "" {
				select {
				case line := <-lines:
					for _, want := range []string{"[ERROR]", tc.want, "memory-backend-memfd", "share=on"} {
						if !strings.Contains(line, want) {
							t.Errorf("no %q in %q", want, line)
						}
					}
				case <-time.After(20 * time.Second):
					t.Fatal("nothing said")
				}
			}
			// Whatever the driver tries next, nothing more comes.
			q.postCommand()
			host.Close()
			close(lines)
			for line := range lines {
				t.Errorf("said: %s", line)
			}
		})
	}
}

// lineWriter hands on each line; hclog writes one at a time.
type lineWriter chan<- string

func (w lineWriter) Write(p []byte) (int, error) {
	select {
	case w <- string(p):
	default: // far too many already
	}
	return len(p), nil
}

// sharedMemory is a folder for memory files: what temporary files lie on may be
// refused (see package guestmem).
func sharedMemory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "vrnic-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
