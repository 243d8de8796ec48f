// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/vrnic/vrnic/guest"
	"github.com/vrnic/vrnic/guest/wire"
)

// The test binary also plays QEMU, with the real agent behind it (guest.Serve)
// whose commands run on the host; and a vrnic that somebody kills.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case "fake-qemu":
			fakeQEMU(os.Args[2], os.Args[3:])
		case "fake-vrnic":
			fakeVrnic(os.Args[2])
		}
	}
	flag.Parse()
	os.Exit(m.Run())
}

// fakeQEMU behaves as the scenario says. A command in the "guest" is its child,
// so "kill -USR1 $PPID" is the panic button and USR2 the reset button.
func fakeQEMU(scenario string, args []string) {
	if scenario == "bad-argument" {
		fmt.Fprintln(os.Stderr, "qemu: -device frobnicator: no such device")
		os.Exit(1)
	}
	for _, want := range []string{
		fmt.Sprintf("socket,id=console,fd=%d", fdConsole),
		fmt.Sprintf("socket,id=monitor,fd=%d,server=on,wait=off", fdMonitor),
		fmt.Sprintf("socket,id=agent,fd=%d", fdAgent),
		fmt.Sprintf("/proc/self/fd/%d", fdInitrd),
	} {
		if !strings.Contains(strings.Join(args, "\n"), want) {
			fmt.Fprintf(os.Stderr, "fake qemu: no %s in %q\n", want, args)
			os.Exit(1)
		}
	}
	fd := fdAgent
	if after, ok := strings.CutPrefix(scenario, "after-reset:"); ok {
		scenario = "after-reset"
		var err error
		if fd, err = strconv.Atoi(after); err != nil {
			panic(err)
		}
	}
	console := os.NewFile(fdConsole, "console")
	fmt.Fprint(console, "\x1b[2J\x1b[01;01Hfirmware speaks\r\n")

	first := true // with a file as its flag, as QEMU is started anew
	if name, ok := strings.CutPrefix(scenario, "silent-once:"); ok {
		_, err := os.Stat(name)
		first = err != nil
		_ = os.WriteFile(name, nil, 0o600)
	}
	var anew atomic.Bool
	event := fakeMonitor(scenario, fd, &anew)
	end := func(reason string) {
		event(reason)
		os.Exit(0)
	}
	buttons := make(chan os.Signal, 1)
	signal.Notify(buttons, syscall.SIGUSR1, syscall.SIGUSR2)
	go func() {
		for s := range buttons {
			if s == syscall.SIGUSR1 {
				for i := range 40 {
					fmt.Fprintf(console, "[    1.%06d] trace line %d\r\n", i, i)
				}
				fmt.Fprint(console, "[    2.000000] Kernel panic - not syncing: sysrq triggered crash\r\n")
				if scenario == "panic-hangs" {
					continue
				}
			}
			end("guest-reset")
		}
	}()
	if err := syscall.SetNonblock(fd, true); err != nil {
		panic(err)
	}
	agent := os.NewFile(uintptr(fd), "agent")
	switch {
	case scenario == "silent", strings.HasPrefix(scenario, "silent-once:") && first:
		select {}
	case scenario == "chatty":
		for {
			fmt.Fprint(console, "still booting\r\n")
			time.Sleep(20 * time.Millisecond) // the scenario itself: a console that talks now and then, for ever
		}
	case scenario == "nonsense":
		_, _ = agent.Write([]byte("AT+CGMI\r\n what is this machine?"))
		select {}
	case scenario == "old-agent":
		_ = guest.Serve(agent, wire.Hello{Version: wire.Version + 1}, wire.Ready{}, "")
		select {}
	}
	procNet, _ := strings.CutPrefix(scenario, "net:")
	ready := wire.Ready{Missing: []string{"0000:01:00.0: irdma0 is not active"}, Modules: []wire.Module{{Name: "irdma", SrcVersion: "F4CE"}}}
	if err := guest.Serve(agent, wire.Hello{Version: wire.Version, Release: "7.3.4-fake"}, ready, procNet); err != nil {
		if anew.Load() {
			select {} // until the other thread has started the program anew
		}
		os.Exit(1)
	}
	if scenario == "no-power-off" {
		select {}
	}
	end("guest-shutdown")
}

// fdMonitorConn is where the monitor's connection is after a reset.
const fdMonitorConn = fdInitrd + 1

// fakeMonitor serves one QMP connection and returns a function that reports a
// SHUTDOWN event for the given reason. A reset is the fake's program starting
// anew, with another descriptor for its agent; it sets anew before it says that it
// will, for then the old agent's channel is closed.
func fakeMonitor(scenario string, oldAgent int, anew *atomic.Bool) func(reason string) {
	connected := make(chan *os.File, 1)
	go func() {
		var conn *os.File
		if scenario == "after-reset" {
			conn = os.NewFile(fdMonitorConn, "monitor")
			connected <- conn
		} else {
			fd, _, err := syscall.Accept(fdMonitor)
			if err != nil {
				panic(err)
			}
			conn = os.NewFile(uintptr(fd), "monitor")
			fmt.Fprintln(conn, `{"QMP": {"version": {"qemu": {"micro": 3, "minor": 1, "major": 11}, "package": ""}, "capabilities": ["oob"]}}`)
		}
		agent := -1
		line, oob := make([]byte, 4096), make([]byte, syscall.CmsgSpace(4))
		for {
			// The client sends one command, and waits for its answer.
			n, oobn, _, _, err := syscall.Recvmsg(int(conn.Fd()), line, oob, 0)
			if err != nil || n == 0 {
				return
			}
			if m, _ := syscall.ParseSocketControlMessage(oob[:oobn]); len(m) == 1 {
				fds, err := syscall.ParseUnixRights(&m[0])
				if err != nil {
					panic(err)
				}
				agent = fds[0]
			}
			command := string(line[:n])
			if strings.Contains(command, `"system_reset"`) && scenario == "reset-kills" {
				os.Exit(1)
			}
			if strings.Contains(command, `"chardev-change"`) {
				anew.Store(true)
			}
			fmt.Fprintln(conn, `{"return": {}}`)
			switch {
			case strings.Contains(command, `"quit"`):
				os.Exit(0)
			case strings.Contains(command, `"system_reset"`):
				fmt.Fprintln(conn, `{"event": "RESET", "data": {"guest": false, "reason": "host-qmp-system-reset"}, "timestamp": {"seconds": 1, "microseconds": 2}}`)
			case strings.Contains(command, `"chardev-change"`):
				startAnew(oldAgent, agent, int(conn.Fd()))
			}
			select {
			case connected <- conn:
			default:
			}
		}
	}()
	return func(reason string) {
		conn := <-connected
		fmt.Fprintf(conn, `{"event": "SHUTDOWN", "data": {"guest": true, "reason": "%s"}, "timestamp": {"seconds": 1, "microseconds": 2}}`+"\n", reason)
	}
}

// startAnew replaces this process by a fake QEMU after a reset. The new agent's
// descriptor keeps its number: in the old one's place the old agent, which still
// runs, would write to it.
func startAnew(oldAgent, agent, monitor int) {
	if monitor != fdMonitorConn {
		if agent == fdMonitorConn {
			var err error
			if agent, err = syscall.Dup(agent); err != nil {
				panic(err)
			}
		}
		if err := syscall.Dup3(monitor, fdMonitorConn, 0); err != nil {
			panic(err)
		}
	}
	syscall.CloseOnExec(oldAgent)
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	argv := append([]string{self, "fake-qemu", fmt.Sprintf("after-reset:%d", agent)}, os.Args[3:]...)
	panic(syscall.Exec(self, argv, os.Environ()))
}

// fakeVrnic runs a command that prints its parent, the fake QEMU, and waits for
// its input, which does not come.
func fakeVrnic(init string) {
	r, _, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	c := fakeConfigWith(init, "ok", "sh", "-c", "echo $PPID; exec cat")
	c.Stdin, c.Stdout = r, os.Stdout
	_, err = Run(context.Background(), c)
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// fakeConfig runs a command with the fake QEMU.
func fakeConfig(t *testing.T, scenario string, command ...string) Config {
	t.Helper()
	c := fakeConfigWith(fakeInit(t), scenario, command...)
	c.Logger = testLogger(t)
	return c
}

func fakeConfigWith(init, scenario string, command ...string) Config {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	silence := 30 * time.Second
	switch {
	case scenario == "silent":
		silence = 50 * time.Millisecond
	case strings.HasPrefix(scenario, "silent-once"):
		silence = 3 * time.Second // enough for the second start
	}
	return Config{
		QEMU:    []string{self, "fake-qemu", scenario},
		Kernel:  "bzImage",
		Accel:   "tcg",
		Init:    init,
		Command: command,
		limits: limits{
			silence:  silence,
			powerOff: 5 * time.Second,
			panic:    50 * time.Millisecond,
			settle:   5 * time.Second,

			listen:    30 * time.Second,
			peerGrace: 30 * time.Second,
			peerTerm:  30 * time.Second,
		},
	}
}

// fakeInit makes a static executable of nothing but a header.
func fakeInit(t *testing.T) string {
	t.Helper()
	var h [64]byte
	copy(h[:], elf.ELFMAG)
	h[elf.EI_CLASS], h[elf.EI_DATA], h[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	binary.LittleEndian.PutUint16(h[16:], uint16(elf.ET_EXEC))
	binary.LittleEndian.PutUint16(h[18:], uint16(elf.EM_X86_64))
	binary.LittleEndian.PutUint32(h[20:], uint32(elf.EV_CURRENT))
	binary.LittleEndian.PutUint16(h[52:], uint16(len(h)))
	path := filepath.Join(t.TempDir(), "init")
	if err := os.WriteFile(path, h[:], 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// testLogger logs to the test.
func testLogger(t *testing.T) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: testWriter{t}})
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

// logBuffer is a logger's output, to be searched.
func bufferLogger(w io.Writer) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: &locked{w: w}})
}
