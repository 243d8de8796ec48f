// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// openPty returns a pseudo terminal of the given size: the user's side, and the
// side a program gets.
func openPty(t *testing.T, rows, cols uint16) (user, program *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { user.Close() })
	if err := unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetUint32(int(user.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	setWindow(t, program, rows, cols)
	return user, program
}

func setWindow(t *testing.T, f *os.File, rows, cols uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(f.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols}); err != nil {
		t.Fatal(err)
	}
}

func localFlags(t *testing.T, f *os.File) uint32 {
	t.Helper()
	tio, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return tio.Lflag
}

// TestShell drives a shell on a terminal as a user does: size, line editing,
// Ctrl-C for what runs in the guest, a resize, and the end of it.
func TestShell(t *testing.T) {
	user, program := openPty(t, 33, 101)
	before := localFlags(t, program)
	c := fakeConfig(t, "ok", "sh", "-c", `
		test -t 0 && test -t 1 && test -t 2 && echo tty
		stty size
		trap 'echo; echo interrupted' INT
		echo ready
		read line
		echo "got <$line>"
		until [ "$(stty size)" = "50 80" ]; do sleep 0.01; done
		echo resized
		cat
		echo end of input`)
	c.TTY, c.Stdin, c.Stdout = true, program, program
	ended := make(chan error, 1)
	go func() {
		result, err := Run(t.Context(), c)
		if err == nil && result.Status != 0 {
			err = fmt.Errorf("status %d", result.Status)
		}
		program.Close()
		ended <- err
	}()
	lines := bufio.NewScanner(user)
	expect := func(want string) {
		t.Helper()
		for lines.Scan() {
			if strings.TrimRight(lines.Text(), "\r") == want {
				return
			}
		}
		t.Fatalf("the terminal ended before %q: %v", want, lines.Err())
	}
	send := func(s string) {
		t.Helper()
		if _, err := user.WriteString(s); err != nil {
			t.Fatal(err)
		}
	}
	expect("tty")
	expect("33 101")
	expect("ready")
	if got := localFlags(t, user); got&(unix.ECHO|unix.ICANON|unix.ISIG) != 0 {
		t.Errorf("the terminal is not raw: local flags %#x", got)
	}
	send("hellp\x7fo\r") // the guest's terminal edits the line
	expect("got <hello>")
	send("\x03")
	expect("interrupted")
	setWindow(t, user, 50, 80)
	// It is not our controlling terminal: nobody else sends us the signal.
	if err := unix.Kill(os.Getpid(), unix.SIGWINCH); err != nil {
		t.Fatal(err)
	}
	expect("resized")
	send("\x04")
	expect("end of input")
	if err := <-ended; err != nil {
		t.Fatalf("%+v", err)
	}
	if after := localFlags(t, user); after != before {
		t.Errorf("local flags %#x before, %#x after", before, after)
	}
}

// TestShellEscape: three times Ctrl-] ends a guest that does not answer.
func TestShellEscape(t *testing.T) {
	user, program := openPty(t, 24, 80)
	before := localFlags(t, program)
	c := fakeConfig(t, "ok", "sh", "-c", "stty raw -echo; echo ready; exec cat >/dev/null")
	c.TTY, c.Stdin, c.Stdout = true, program, program
	go func() {
		if line, _ := bufio.NewReader(user).ReadString('\n'); strings.HasPrefix(line, "ready") {
			_, _ = user.WriteString("\x1d\x1dx\x1d\x1d\x1d")
		}
	}()
	_, err := Run(t.Context(), c)
	var e *MachineError
	if !errors.As(err, &e) || e.Why != "ended from the keyboard" {
		t.Errorf("got %+v", err)
	}
	if after := localFlags(t, user); after != before {
		t.Errorf("local flags %#x before, %#x after", before, after)
	}
}

// TestTerminalRestored: also when the context ends.
func TestTerminalRestored(t *testing.T) {
	user, program := openPty(t, 24, 80)
	before := localFlags(t, program)
	c := fakeConfig(t, "ok", "cat")
	ctx, cancel := context.WithCancel(t.Context())
	c.TTY, c.Stdin = true, program
	c.Stdout = writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil })
	if _, err := user.WriteString("x"); err != nil { // echoed by the guest's terminal
		t.Fatal(err)
	}
	if _, err := Run(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if after := localFlags(t, user); after != before {
		t.Errorf("local flags %#x before, %#x after", before, after)
	}
}

// TestTerminalWithoutTerminal: a command may have one though we have none.
func TestTerminalWithoutTerminal(t *testing.T) {
	c := fakeConfig(t, "ok", "stty", "size")
	var out bytes.Buffer
	c.TTY, c.Stdout = true, &out
	if _, err := Run(t.Context(), c); err != nil {
		t.Fatalf("%+v", err)
	}
	if out.String() != "24 80\r\n" {
		t.Errorf("got %q", out.String())
	}
}
