// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

var table = []check{
	{2, "make-run-first", false, "make run (empty cache)", makeRunFirst},
	{2, "make-run-offline", false, "make run (no network, < 20 s)", makeRunOffline},
	{2, "bind-debian-12", true, "vrnic run -k debian-12 -- ibv_devinfo", bindOn("debian-12")},
	{2, "bind-debian-13", true, "vrnic run -k debian-13 -- ibv_devinfo", bindOn("debian-13")},
	{2, "bind-debian-backports", true, "vrnic run -k debian-backports -- ibv_devinfo", bindOn("debian-backports")},
	{2, "reload-debian-12", false, "5 × rmmod irdma ice, modprobe", reloadOn("debian-12")},
	{2, "reload-debian-13", false, "5 × rmmod irdma ice, modprobe", reloadOn("debian-13")},
	{2, "reload-debian-backports", false, "5 × rmmod irdma ice, modprobe", reloadOn("debian-backports")},
	{2, "status-1", true, "vrnic run -- false", statusOf(1, "false")},
	{2, "status-7", true, "vrnic run -- sh -c 'exit 7'", statusOf(7, "sh", "-c", "exit 7")},
	{2, "status-137", true, "vrnic run -- sh -c 'kill -9 $$'", statusOf(137, "sh", "-c", "kill -9 $$")},
	{2, "status-panic", true, "vrnic run -- sh -c 'echo c > /proc/sysrq-trigger'", panicStatus},
	{2, "status-timeout", true, "vrnic run --timeout 5s -- sleep 60", timeoutStatus},
	{2, "stdin", true, "echo hi | vrnic run -- cat", stdinForwarded},
	{2, "nothing-left", true, "vrnic run -- sleep 60, SIGINT", nothingLeft},
	{2, "serve-by-hand", true, "vrnic serve, QEMU from the printed arguments, twice at once", serveByHand},
	{2, "explain", true, "vrnic explain hmc; regs PFHMC_PDINV", explainWhileRunning},
}

const active = "PORT_ACTIVE (4)"

func wantDevinfo(t *testing.T, r run) {
	t.Helper()
	r.want(t, 0).wantStdout(t, active)
	if strings.Contains(r.stderr, "finding") {
		t.Errorf("a stock driver broke a rule\n%v", r)
	}
	if !regexp.MustCompile(`link_layer:\s+Ethernet`).MatchString(r.stdout) {
		t.Fatalf("link layer is not Ethernet\n%v", r)
	}
}

// cleanClone makes a clean clone of the checkout's commit.
func cleanClone(t *testing.T, e *env) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "vrnic")
	e.exec(t, "", "git", "clone", "-q", e.root, dir).want(t, 0)
	return dir
}

// inDir runs a command elsewhere, with a cache of its own.
func inDir(t *testing.T, e *env, dir, cache string, args ...string) run {
	t.Helper()
	return e.exec(t, "", append([]string{"env", "-C", dir, "XDG_CACHE_HOME=" + cache}, args...)...)
}

func makeRunFirst(t *testing.T, e *env) {
	dir := cleanClone(t, e)
	wantDevinfo(t, inDir(t, e, dir, filepath.Join(t.TempDir(), "cache"), "make", "run"))
}

// makeRunOffline cuts the network off by a network namespace of its own.
func makeRunOffline(t *testing.T, e *env) {
	dir := cleanClone(t, e)
	cache := filepath.Join(t.TempDir(), "cache")
	inDir(t, e, dir, cache, "make", "run").want(t, 0)
	r := inDir(t, e, dir, cache, "unshare", "--map-root-user", "--net", "make", "run")
	wantDevinfo(t, r)
	if r.took > 20*time.Second {
		t.Fatalf("the second run took %v", r.took)
	}
}

func bindOn(kernel string) func(*testing.T, *env) {
	return func(t *testing.T, e *env) {
		wantDevinfo(t, e.guest(t, "", "-k", kernel, "--", "ibv_devinfo"))
		wantCleanLog(t, filepath.Join(e.outDir, "kernel.log"))
	}
}

// allowedLine is a line of the kernel log that looks like trouble and is none.
type allowedLine struct {
	Line   string `json:"line"` // regular expression
	Reason string `json:"reason"`
}

var trouble = regexp.MustCompile(`(?i)safe mode|warning|\bBUG\b|call trace|\bfail|time[d ]?-?out|\berror|unsupported|hung task|unable to|denied|invalid`)

// logMark begins what a check writes to the kernel log to say what it does.
const logMark = "check: "

// wantCleanLog checks that the log has no line about trouble from our drivers,
// nor any kernel warning, beyond the checked-in list, and lines that what was done
// gives reason for.
func wantCleanLog(t *testing.T, path string, but ...allowedLine) {
	t.Helper()
	b, err := os.ReadFile("allowed-log-lines.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []allowedLine
	if err := json.Unmarshal(b, &list); err != nil {
		t.Fatalf("allowed-log-lines.json: %v", err)
	}
	var allowed []*regexp.Regexp
	for _, l := range append(list, but...) {
		if l.Reason == "" {
			t.Errorf("allowed line %q has no reason", l.Line)
		}
		allowed = append(allowed, regexp.MustCompile(l.Line))
	}
	log, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	drivers, during := 0, ""
lines:
	for line := range strings.Lines(string(log)) {
		line = strings.TrimSpace(line)
		if _, what, ok := strings.Cut(line, "] "+logMark); ok {
			during = " (" + what + ")"
			continue
		}
		ours := strings.Contains(line, "ice") || strings.Contains(line, "irdma") || strings.Contains(line, "infiniband")
		if ours {
			drivers++
		}
		anywhere := strings.Contains(line, "WARNING:") || strings.Contains(line, "BUG:") || strings.Contains(line, "Call Trace") || strings.Contains(line, "Oops") || strings.Contains(line, "blocked for more than") || strings.Contains(line, "possible circular locking")
		if !anywhere && !(ours && trouble.MatchString(line)) {
			continue
		}
		for _, a := range allowed {
			if a.MatchString(line) {
				continue lines
			}
		}
		t.Errorf("kernel log%s: %s", during, line)
	}
	if drivers == 0 {
		t.Errorf("%s has no line of the drivers: it is not the kernel log", path)
	}
}

const reloadScript = `for i in 1 2 3 4 5; do rmmod irdma ice && modprobe ice && modprobe irdma || exit 1; n=0; until ibv_devinfo 2>/dev/null | grep -q PORT_ACTIVE; do n=$((n+1)); [ $n -lt 60 ] || exit 1; sleep 0.25; done; done`

func reloadOn(kernel string) func(*testing.T, *env) {
	return func(t *testing.T, e *env) {
		e.guest(t, "", "-k", kernel, "--", "sh", "-c", reloadScript).want(t, 0)
		wantCleanLog(t, filepath.Join(e.outDir, "kernel.log"))
	}
}

func statusOf(status int, cmd ...string) func(*testing.T, *env) {
	return func(t *testing.T, e *env) {
		e.guest(t, "", append([]string{"--"}, cmd...)...).want(t, status)
	}
}

func panicStatus(t *testing.T, e *env) {
	r := e.guest(t, "", "--", "sh", "-c", "echo c > /proc/sysrq-trigger").want(t, 125)
	if !strings.Contains(r.stderr, "Kernel panic") {
		t.Fatalf("the console's last lines are not on stderr\n%v", r)
	}
}

func timeoutStatus(t *testing.T, e *env) {
	e.guest(t, "", "--timeout", "5s", "--", "sleep", "60").want(t, 124)
}

func stdinForwarded(t *testing.T, e *env) {
	if r := e.guest(t, "hi\n", "--", "cat").want(t, 0); r.stdout != "hi\n" {
		t.Fatalf("stdout %q, want \"hi\\n\"", r.stdout)
	}
}

// leftovers lists our processes and temporary files.
func leftovers(t *testing.T, tmp string) []string {
	t.Helper()
	var left []string
	names, err := os.ReadDir(tmp)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		left = append(left, filepath.Join(tmp, n.Name()))
	}
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		if b, err := os.ReadFile(p); err == nil && strings.Contains(string(b), tmp) && strings.Contains(string(b), "qemu") {
			left = append(left, strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return left
}

// nothingLeft interrupts a run while CMD runs, and checks that the temporary
// folder is empty and no QEMU that used it lives.
func nothingLeft(t *testing.T, e *env) {
	tmp := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "env", "TMPDIR="+tmp, e.vrnic, "run", "--", "sh", "-c", "echo started; sleep 60")
	cmd.Dir = e.root
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "started\n" {
		t.Fatalf("stdout %q, %v", line, err)
	}
	if len(leftovers(t, tmp)) == 0 {
		t.Fatal("nothing is there while the guest runs: this check looks in the wrong place")
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	if cmd.ProcessState.ExitCode() == 0 {
		t.Errorf("an interrupted run ended with status 0")
	}
	if left := leftovers(t, tmp); len(left) > 0 {
		t.Errorf("left behind (%v): %q", err, left)
	}
}

// server is a running "vrnic serve".
type server struct {
	sockets []string
	control string
	pid     int
	attach  string // what it printed on stderr
	stop    func() error
}

// startServer serves n cards, with further arguments.
func startServer(t *testing.T, e *env, n int, more ...string) *server {
	t.Helper()
	dir := t.TempDir()
	s := &server{control: filepath.Join(dir, "control")}
	args := append([]string{"serve", "--control", s.control}, more...)
	for i := range n {
		s.sockets = append(s.sockets, filepath.Join(dir, fmt.Sprintf("card%d", i)))
		args = append(args, "--socket", s.sockets[i])
	}
	cmd := exec.CommandContext(t.Context(), e.vrnic, args...)
	stderr, err := os.Create(filepath.Join(e.outDir, "serve.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("vrnic serve said %q, %v", line, err)
	}
	b, err := os.ReadFile(stderr.Name())
	if err != nil {
		t.Fatal(err)
	}
	s.attach, s.pid = string(b), cmd.Process.Pid
	s.stop = func() error {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		return cmd.Wait()
	}
	return s
}

// arguments finds the line printed for a socket.
func (s *server) arguments(t *testing.T, socket string) string {
	t.Helper()
	for line := range strings.Lines(s.attach) {
		if strings.Contains(line, "-device") && strings.Contains(line, socket) {
			return strings.TrimSpace(line)
		}
	}
	t.Fatalf("vrnic serve printed no arguments for %s:\n%s", socket, s.attach)
	return ""
}

// byHand boots a guest as a user would and returns what it printed.
func byHand(t *testing.T, e *env, arguments, script string) (string, error) {
	g := startByHand(t, e, arguments, script)
	out, err := g.await("", limit)
	if err != nil {
		g.kill()
		return out, err
	}
	return out, g.cmd.Wait()
}

// handGuest is a guest that was booted as a user would: QEMU, kernel and
// initramfs from the cache, the arguments as printed, a shell on the serial
// line.
type handGuest struct {
	cmd  *exec.Cmd
	line <-chan []byte // what it prints; closed when it has ended
	seen strings.Builder
}

// startByHand starts a guest that will run a script.
func startByHand(t *testing.T, e *env, arguments, script string) *handGuest {
	t.Helper()
	path := func(name string) string {
		return strings.TrimSpace(e.exec(t, "", e.vrnic, "image", "path", name).want(t, 0).stdout)
	}
	cmd := exec.Command("sh", "-c", fmt.Sprintf(`exec %s -nodefaults -display none -no-reboot -serial stdio -smp 2 -kernel %s -initrd %s `+
		`-append 'console=ttyS0 quiet no_timer_check rdinit=/bin/sh panic=-1' %s`,
		path("qemu"), path("debian-backports"), path("initramfs-debian-backports"), arguments))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	script = strings.ReplaceAll(script, "\t", " ") // which a shell on a terminal completes
	line := make(chan []byte)
	g := &handGuest{cmd: cmd, line: line}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	go func() {
		defer close(line)
		// The shell's prompt says that the serial line is listened to.
		const prompt = "# "
		var last []byte
		asked := false
		for buf := make([]byte, 4096); ; {
			n, err := out.Read(buf)
			if !asked {
				if last = append(last, buf[:n]...); bytes.Contains(last, []byte(prompt)) {
					asked = true
					fmt.Fprintf(in, "%s\n", script)
				}
			}
			if n > 0 {
				line <- bytes.Clone(buf[:n])
			}
			if err != nil {
				return
			}
		}
	}()
	return g
}

// await reads what the guest prints until it has printed a text, or, with none,
// until it ends. All that it has printed so far is the result.
func (g *handGuest) await(text string, patience time.Duration) (string, error) {
	over := time.NewTimer(patience)
	defer over.Stop()
	for text == "" || !strings.Contains(g.seen.String(), text) {
		select {
		case b, alive := <-g.line:
			if !alive && text == "" {
				return g.seen.String(), nil
			}
			if !alive {
				return g.seen.String(), fmt.Errorf("the guest ended before it printed %q", text)
			}
			g.seen.Write(b)
		case <-over.C:
			return g.seen.String(), fmt.Errorf("nothing new from the guest within %v", patience)
		}
	}
	return g.seen.String(), nil
}

// kill is SIGKILL to QEMU, and waits until it is gone.
func (g *handGuest) kill() {
	_ = g.cmd.Process.Kill()
	for range g.line {
	}
	_ = g.cmd.Wait()
}

const byHandScript = `mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; ` +
	`modprobe ice; modprobe irdma; modprobe ib_uverbs; for n in /sys/class/net/e*; do ip link set $(basename $n) up; done; ` +
	`n=0; until ibv_devinfo 2>/dev/null | grep -q PORT_ACTIVE || [ $n -ge 60 ]; do n=$((n+1)); sleep 0.5; done; ibv_devinfo; poweroff -f`

func serveByHand(t *testing.T, e *env) {
	s := startServer(t, e, 2)
	type booted struct {
		out string
		err error
	}
	done := make(chan booted)
	for _, socket := range s.sockets {
		arguments := s.arguments(t, socket)
		go func() {
			out, err := byHand(t, e, arguments, byHandScript)
			done <- booted{out, err}
		}()
	}
	for range s.sockets {
		if b := <-done; b.err != nil || !strings.Contains(b.out, active) {
			t.Errorf("%v\n%s", b.err, tail(b.out, 60))
		}
	}
	if err := s.stop(); err != nil {
		t.Errorf("vrnic serve ended with %v after SIGTERM, want status 0", err)
	}
	for _, p := range append(s.sockets, s.control) {
		if _, err := os.Lstat(p); err == nil {
			t.Errorf("%s is still there", p)
		}
	}
}

// explainWhileRunning compares what the device says with what the driver
// says: segments, their type and addresses.
func explainWhileRunning(t *testing.T, e *env) {
	control := filepath.Join(t.TempDir(), "control")
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, e.vrnic, "run", "--control", control, "--", "sh", "-c", "echo up; cat")
	cmd.Stderr = os.Stderr
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
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "up\n" {
		t.Fatalf("stdout %q, %v", line, err)
	}
	text := e.exec(t, "", e.vrnic, "explain", "--control", control, "hmc").want(t, 0).wantStdout(t, "SD", "TYPE", "VALID", "ADDRESS", "direct")
	var data struct {
		SDs []struct {
			Index   uint32
			Type    string
			Valid   bool
			Address uint64
		} `json:"sds"`
	}
	r := e.exec(t, "", e.vrnic, "explain", "--control", control, "--json", "hmc").want(t, 0)
	if err := json.Unmarshal([]byte(r.stdout), &data); err != nil {
		t.Fatalf("%v\n%s", err, r.stdout)
	}
	if len(data.SDs) < 3 {
		t.Errorf("%d segment descriptors; the static objects alone take 3\n%v", len(data.SDs), text)
	}
	for _, sd := range data.SDs {
		if !sd.Valid || sd.Address == 0 || sd.Address%4096 != 0 || sd.Type != "direct" && sd.Type != "paged" {
			t.Errorf("segment descriptor %+v", sd)
		}
	}
	e.exec(t, "", e.vrnic, "explain", "--control", control, "regs", "PFHMC_PDINV").want(t, 0).wantStdout(t, "PFHMC_PDINV", "0x520300")
	e.exec(t, "", e.vrnic, "explain", "--control", control, "regs", "PFPE_CCQPSTATUS").want(t, 0).wantStdout(t, "0x00000001")
	if r := e.exec(t, "", e.vrnic, "explain", "--control", control, "regs", "NO_SUCH").want(t, 1); !strings.Contains(r.stderr, "no such register") {
		t.Errorf("stderr %q", r.stderr)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("the guest ended with %v", err)
	}
}
