// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vrnic/vrnic/guest/launch"
	"github.com/vrnic/vrnic/guest/wire"
	"github.com/vrnic/vrnic/images"
	"github.com/vrnic/vrnic/serve"
)

// machine is a guest on the card of a "vrnic serve" of its own, with a shell.
// Unlike a [session] it outlives a reset of the guest.
type machine struct {
	t      *testing.T
	e      *env
	server *server
	guest  *launch.Machine
	in     io.WriteCloser
	out    *bufio.Reader
	lib    string // defined in every shell
}

// bootMachine boots a guest whose shells have the functions of lib.
func bootMachine(t *testing.T, e *env, kernel, lib string) *machine {
	t.Helper()
	server := startServer(t, e, 1)
	c := guestConfig(t, e, kernel, server.sockets)
	c.Guest.Nets = []wire.Net{{Addresses: []netip.Prefix{netip.MustParsePrefix("192.168.77.1/24")}}}
	guest, err := launch.Boot(t.Context(), c)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	return newMachine(t, e, server, guest, lib)
}

// guestConfig describes a guest with a card of each socket.
func guestConfig(t *testing.T, e *env, kernel string, sockets []string) launch.Config {
	t.Helper()
	dir, err := images.DefaultDir()
	if err != nil {
		t.Fatal(err)
	}
	cache, err := images.Open(images.Options{Dir: dir, Logger: hclog.NewNullLogger()})
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
	return launch.Config{
		QEMU: qemu.Argv, Kernel: k.Image, Initrd: []string{initrd}, Init: e.vrnic,
		Sockets: sockets, Artifacts: e.outDir,
	}
}

// newMachine opens the first shell of a guest that has booted.
func newMachine(t *testing.T, e *env, server *server, guest *launch.Machine, lib string) *machine {
	t.Helper()
	m := &machine{t: t, e: e, server: server, guest: guest, lib: lib}
	t.Cleanup(m.guest.Kill)
	m.shell()
	return m
}

// shell starts a new shell in the guest.
func (m *machine) shell() {
	m.t.Helper()
	stdin, in := io.Pipe()
	out, stdout := io.Pipe()
	p, err := m.guest.Start(launch.Command{Argv: []string{"sh"}, Stdin: stdin, Stdout: stdout})
	if err != nil {
		m.t.Fatalf("%+v", err)
	}
	go func() {
		_, err := p.Wait(m.t.Context(), 0)
		stdout.CloseWithError(fmt.Errorf("the shell has ended: %w", err))
		stdin.Close()
	}()
	m.in, m.out = in, bufio.NewReader(out)
	m.do("exec 2>&1\n" + m.lib)
}

// do runs shell commands in the guest and returns what they print.
func (m *machine) do(script string) string {
	m.t.Helper()
	defer time.AfterFunc(limit, m.guest.Kill).Stop()
	text, err := converse(m.in, m.out, script)
	if err != nil {
		m.t.Fatalf("guest: %v\n%s", err, text)
	}
	return text
}

// reset is the reset button: the guest boots again, with a new shell.
func (m *machine) reset() {
	m.t.Helper()
	if err := m.guest.Reset(m.t.Context()); err != nil {
		m.t.Fatalf("%+v", err)
	}
	m.shell()
}

// ctl acts on the card from outside.
func (m *machine) ctl(args ...string) {
	m.t.Helper()
	m.e.exec(m.t, "", append([]string{m.e.vrnic, "ctl", "--control", m.server.control}, args...)...).want(m.t, 0)
}

// end powers the guest off and stops the server.
func (m *machine) end() {
	m.t.Helper()
	if err := m.guest.Close(); err != nil {
		m.t.Errorf("power off: %v", err)
	}
	if err := m.server.stop(); err != nil {
		m.t.Errorf("vrnic serve: %v", err)
	}
}

// allowedFinding is a finding that stock drivers give reason for.
type allowedFinding struct {
	Finding string `json:"finding"` // regular expression
	Reason  string `json:"reason"`  // the driver's line
}

// allowedFindings tells of a text whether it is a finding of the checked-in list.
func allowedFindings(t *testing.T) func(text string) bool {
	t.Helper()
	list, err := os.ReadFile("allowed-findings.json")
	if err != nil {
		t.Fatal(err)
	}
	var allowed []allowedFinding
	if err := json.Unmarshal(list, &allowed); err != nil {
		t.Fatalf("allowed-findings.json: %v", err)
	}
	return func(text string) bool {
		for _, a := range allowed {
			if a.Reason == "" {
				t.Errorf("allowed finding %q has no reason", a.Finding)
			}
			if regexp.MustCompile(a.Finding).MatchString(text) {
				t.Logf("a listed bug of the driver: %s", text)
				return true
			}
		}
		return false
	}
}

// wantQuietCard checks that a log of "vrnic serve" has nothing above information
// level beyond the checked-in list: no finding about the driver, and no trouble
// of its own. Lines with one of the texts in but are expected.
func wantQuietCard(t *testing.T, path string, but ...string) {
	t.Helper()
	listed := allowedFindings(t)
	known := func(line string) bool {
		return slices.ContainsFunc(but, func(text string) bool { return strings.Contains(line, text) }) || listed(line)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bad := regexp.MustCompile(`\[(WARN|ERROR)\]|finding: (error|warning)`)
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); bad.MatchString(line) && !known(line) {
			t.Errorf("the card says: %s", line)
		}
	}
}

// goroutines asks a serving process.
func goroutines(t *testing.T, control string) int {
	t.Helper()
	r, err := serve.Ask(t.Context(), control, serve.Request{What: "process"})
	if err != nil {
		t.Fatal(err)
	}
	var p serve.Process
	if err := json.Unmarshal(r.Data, &p); err != nil {
		t.Fatalf("%v\n%s", err, r.Data)
	}
	return p.Goroutines
}

// objects are what the card holds for the driver and for programs.
func (m *machine) objects() objects {
	m.t.Helper()
	s := session{t: m.t, e: m.e, control: m.server.control}
	return s.device()
}

// kernelLog is where a machine's kernel log is kept.
func (e *env) kernelLog() string { return filepath.Join(e.outDir, "kernel.log") }
