// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// listen is shell text that makes a TCP socket listen, as far as the agent's
// double can see.
const listen = `echo '0: 00000000:4951 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 77' >tcp.new; mv tcp.new tcp; `

// forever is shell text that ends by signals, and with its guest.
const forever = `while kill -0 $PPID; do sleep 0.02; done 2>/dev/null`

// word is shell text that waits for the file word.
const word = `until [ -e word ] || ! kill -0 $PPID; do sleep 0.02; done 2>/dev/null; `

// fakePair is two guests, the peer's command being shell text that runs in a
// directory that both share; so does the first's.
func fakePair(t *testing.T, first, second string) (c, peer Config) {
	t.Helper()
	dir := t.TempDir()
	c = fakeConfig(t, "ok", "sh", "-c", "cd "+dir+"; "+first)
	peer = fakeConfig(t, "net:"+dir, "sh", "-c", "cd "+dir+"; "+second)
	c.Name, peer.Name = "one", "two"
	return c, peer
}

func TestPairStatus(t *testing.T) {
	for _, tc := range []struct {
		name, first, second string
		limits              func(*limits)
		want                int
		stdout, peer        string
	}{
		{
			name:  "starts when the peer listens",
			first: "cat word", second: "sleep 0.1; echo listening >word; " + listen + "echo up; trap 'exit 0' TERM; " + forever,
			limits: func(l *limits) { l.peerGrace = 50 * time.Millisecond },
			stdout: "listening\n", peer: "up\n",
		},
		{
			name:  "starts when the peer has ended",
			first: "cat word", second: "sleep 0.1; echo ended >word", stdout: "ended\n",
		},
		{
			name:  "starts when the peer has not listened in time",
			first: "echo go >word", second: word + "cat word",
			limits: func(l *limits) { l.listen = 50 * time.Millisecond },
			peer:   "go\n",
		},
		{name: "the first's status", first: "exit 3", second: "exit 5", want: 3},
		{name: "the peer's status", first: "true", second: "exit 5", want: 5},
		{
			name: "what the peer does in its time counts", want: 5,
			first: "echo bye >word", second: listen + word + "exit 5",
		},
		{
			name: "a peer that was told to end has not failed", first: "true",
			second: listen + "trap 'echo told; exit 9' TERM; " + forever,
			limits: func(l *limits) { l.peerGrace = 50 * time.Millisecond },
			peer:   "told\n",
		},
		{
			name: "a peer that does not obey is killed", first: "true",
			second: "trap '' TERM; " + listen + forever,
			limits: func(l *limits) { l.peerGrace, l.peerTerm = 50*time.Millisecond, 50*time.Millisecond },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, peer := fakePair(t, tc.first, tc.second)
			if tc.limits != nil {
				tc.limits(&peer.limits)
			}
			var stdout, stderr bytes.Buffer
			c.Stdout, peer.Stdout, peer.Stderr = &stdout, &stderr, &stderr
			got, err := RunPair(t.Context(), c, peer)
			if err != nil {
				t.Fatalf("%+v", err)
			}
			if diff := cmp.Diff(Result{Status: tc.want}, got); diff != "" {
				t.Error(diff)
			}
			if stdout.String() != tc.stdout || stderr.String() != tc.peer {
				t.Errorf("output %q, want %q; the peer's %q, want %q", &stdout, tc.stdout, &stderr, tc.peer)
			}
		})
	}
}

func TestPairWithoutPeerCommand(t *testing.T) {
	c, peer := fakePair(t, "exit 4", "")
	peer.Command = nil
	if got, err := RunPair(t.Context(), c, peer); err != nil || got.Status != 4 {
		t.Errorf("%+v %+v, want status 4", got, err)
	}
}

// Whichever guest fails, and whenever, the reason is told with its name.
func TestPairMachineFails(t *testing.T) {
	const panics = "kill -USR1 $PPID; " + forever
	for _, tc := range []struct {
		name, first, second string
		change              func(c, peer *Config)
		want                string
	}{
		{name: "the first panics", first: panics, second: listen + forever, want: "guest one: Kernel panic - not syncing: sysrq triggered crash"},
		{name: "the peer panics", first: forever, second: listen + "sleep 0.1; " + panics, want: "guest two: Kernel panic - not syncing: sysrq triggered crash"},
		{name: "the peer panics before it listens", first: "true", second: panics, want: "guest two: Kernel panic - not syncing: sysrq triggered crash"},
		{
			name: "the peer panics after the first's command", first: "touch word",
			second: listen + word + panics, want: "guest two: Kernel panic - not syncing: sysrq triggered crash",
		},
		{
			name: "the peer does not boot", first: "true", second: "true",
			change: func(_, peer *Config) { peer.QEMU[2] = "bad-argument" },
			want:   "guest two: QEMU ended: exit status 1: qemu: -device frobnicator: no such device",
		},
		{
			name: "the first does not boot", first: "true", second: "true",
			change: func(c, peer *Config) { c.QEMU[2], peer.QEMU[2] = "bad-argument", "chatty" },
			want:   "guest one: QEMU ended: exit status 1: qemu: -device frobnicator: no such device",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, peer := fakePair(t, tc.first, tc.second)
			if tc.change != nil {
				tc.change(&c, &peer)
			}
			_, err := RunPair(t.Context(), c, peer)
			var e *MachineError
			if !errors.As(err, &e) {
				t.Fatalf("got %+v, want a MachineError", err)
			}
			if e.Error() != tc.want {
				t.Errorf("%q, want %q", e, tc.want)
			}
		})
	}
}

// A command that failed keeps its status whatever becomes of the peer after it.
func TestPairPeerPanicsAfterFailure(t *testing.T) {
	c, peer := fakePair(t, "touch word; exit 6", listen+word+"kill -USR1 $PPID; "+forever)
	if got, err := RunPair(t.Context(), c, peer); err != nil || got.Status != 6 {
		t.Errorf("%+v %+v, want status 6", got, err)
	}
}

func TestPairTimeout(t *testing.T) {
	c, peer := fakePair(t, forever, "echo before; "+listen+forever)
	var out bytes.Buffer
	c.Timeout, peer.Stdout = 200*time.Millisecond, &out
	if _, err := RunPair(t.Context(), c, peer); !errors.Is(err, ErrTimeout) {
		t.Errorf("got %+v, want ErrTimeout", err)
	}
	if out.String() != "before\n" {
		t.Errorf("the peer's output: %q", &out)
	}
}

// The end of the context ends both, at whatever point.
func TestPairCancel(t *testing.T) {
	cause := errors.New("Ctrl-C")
	for _, tc := range []struct{ name, first, second string }{
		{"while the peer is waited for", "true", "echo now; " + forever},
		{"while both run", "echo now; " + forever, listen + forever},
		{"in the peer's time", "touch word", listen + word + "echo now; " + forever},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			now := writerFunc(func(p []byte) (int, error) { cancel(cause); return len(p), nil })
			c, peer := fakePair(t, tc.first, tc.second)
			c.Stdout, peer.Stdout = now, now
			if _, err := RunPair(ctx, c, peer); !errors.Is(err, cause) {
				t.Errorf("got %v, want the cause", err)
			}
		})
	}
}

func TestPairNothingLeft(t *testing.T) {
	tmp := t.TempDir()
	run := func(first, second string) {
		c, peer := fakePair(t, first, second)
		c.Timeout, peer.limits.peerGrace, peer.limits.peerTerm = 300*time.Millisecond, 10*time.Millisecond, 10*time.Millisecond
		_, _ = RunPair(t.Context(), c, peer)
	}
	run("true", "true")
	t.Setenv("TMPDIR", tmp)
	descriptors, goroutines := countDescriptors(t), runtime.NumGoroutine()
	run("true", "exit 1")
	run(forever, listen+forever)
	run("true", "trap '' TERM; "+listen+forever)
	run("true", "kill -9 $PPID; "+forever)
	run("kill -USR1 $PPID; "+forever, listen+forever)
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
	if left, err := filepath.Glob(filepath.Join(tmp, "vrnic-*")); err != nil || len(left) != 0 {
		t.Errorf("temporary files: %v %v", left, err)
	}
}

func TestPrefixedLines(t *testing.T) {
	long := strings.Repeat("x", maxPrefixedLine)
	for _, tc := range []struct {
		name  string
		write []string
		want  []string
	}{
		{"lines", []string{"a\nb\n"}, []string{"> a\n", "> b\n"}},
		{"pieces", []string{"a", "b", "\n", "c"}, []string{"> ab\n", "> c\n"}},
		{"empty lines", []string{"\n\n"}, []string{"> \n", "> \n"}},
		{"bytes", []string{"\xff\x00\r\n"}, []string{"> \xff\x00\r\n"}},
		{"nothing", []string{""}, nil},
		{"too long", []string{long, "y\n"}, []string{"> " + long[:len(long)-2] + "\n", "> xxy\n"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			l := NewPrefixedLines(writerFunc(func(p []byte) (int, error) {
				got = append(got, string(p))
				return len(p), nil
			}), "> ", "\n")
			for _, s := range tc.write {
				if n, err := l.Write([]byte(s)); n != len(s) || err != nil {
					t.Fatalf("%d, %v", n, err)
				}
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	l := NewPrefixedLines(failingWriter{}, "> ", "\n")
	if _, err := fmt.Fprintln(l, "x"); err == nil {
		t.Error("no error from a writer that fails")
	}
}
