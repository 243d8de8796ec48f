// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func init() {
	table = append(table,
		check{3, "pingpong-debian-12", true, "ibv_rc_pingpong against itself, 6 ways, debian-12", pingpongOn("debian-12")},
		check{3, "pingpong-debian-13", true, "ibv_rc_pingpong against itself, 6 ways, debian-13", pingpongOn("debian-13")},
		check{3, "pingpong-debian-backports", true, "ibv_rc_pingpong against itself, 6 ways, debian-backports", pingpongOn("debian-backports")},
		check{3, "objects", true, "rdma resource show = vrnic explain; none left after exit", sameObjects},
		check{3, "explain-mr", true, "vrnic explain mr STAG ADDR --bytes N = /proc/PID/mem", sameBytes},
		check{3, "mini-driver", false, "go test -race ./devmodel/mr ./guest/minidriver (full counts)", miniDriver},
		check{3, "bench", false, "make bench", bench},
	)
}

// pingpongListens waits until a server of ibv_rc_pingpong takes clients.
const pingpongListens = `
listening() {
	n=0
	until cat /proc/net/tcp /proc/net/tcp6 | grep -q ':4853 [0-9A-F:]* 0A '; do
		n=$((n+1)); [ $n -lt 400 ] || return 1; sleep 0.05
	done
}
`

// pingpongScript runs a server in the background and a client against it, for
// each line of options.
const pingpongScript = pingpongListens + `
fail() { echo "FAILED: $*"; cat /tmp/server /tmp/client 2>/dev/null; exit 1; }
pp() {
	ibv_rc_pingpong "$@" > /tmp/server 2>&1 & s=$!
	listening || fail "no server: $*"
	ibv_rc_pingpong "$@" localhost > /tmp/client 2>&1 || fail "client: $*"
	wait $s || fail "server: $*"
	echo "passed: $*"
}
`

var pingpongs = []string{"-g 1", "-g 1 -c", "-g 1 -s 1048576 -n 50 -c", "-g 1 -e", "-g 1 -r 64", "-g 0 -c"}

func pingpongOn(kernel string) func(*testing.T, *env) {
	return func(t *testing.T, e *env) {
		script := pingpongScript
		for _, p := range pingpongs {
			script += "pp " + p + "\n"
		}
		r := e.guest(t, "", "-k", kernel, "--timeout", "4m", "--", "sh", "-c", script).want(t, 0)
		for _, p := range pingpongs {
			r.wantStdout(t, "passed: "+p)
		}
		if strings.Contains(r.stderr, "finding") {
			t.Errorf("a stock driver broke a rule\n%v", r)
		}
		wantCleanLog(t, filepath.Join(e.outDir, "kernel.log"))
	}
}

// session is a guest whose shell takes commands one by one.
type session struct {
	t       *testing.T
	e       *env
	control string
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	errs    bytes.Buffer // what vrnic and the guest said on stderr; complete after end
}

// startSession boots a guest with more arguments for "vrnic run".
func startSession(t *testing.T, e *env, args ...string) *session {
	t.Helper()
	s := &session{t: t, e: e, control: filepath.Join(t.TempDir(), "control")}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	args = append([]string{"run", "--artifacts", e.outDir, "--control", s.control}, args...)
	s.cmd = exec.CommandContext(ctx, e.vrnic, append(args, "--", "sh")...)
	s.cmd.Stderr = io.MultiWriter(os.Stderr, &s.errs)
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.out = bufio.NewReader(out)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.do("true") // the guest is up
	return s
}

// do runs shell commands in the guest and returns what they print.
func (s *session) do(script string) string {
	s.t.Helper()
	text, err := converse(s.in, s.out, script)
	if err != nil {
		s.t.Fatalf("guest: %v\n%s", err, text)
	}
	return text
}

// converse has a shell run commands and returns what they print.
func converse(in io.Writer, out *bufio.Reader, script string) (string, error) {
	const mark = "=done="
	if _, err := fmt.Fprintf(in, "%s\necho %s\n", script, mark); err != nil {
		return "", err
	}
	var b strings.Builder
	for {
		line, err := out.ReadString('\n')
		if text, last := strings.CutSuffix(line, mark+"\n"); last {
			b.WriteString(text)
			return b.String(), nil
		}
		b.WriteString(line)
		if err != nil {
			return b.String(), err
		}
	}
}

// explain asks the device and decodes the answer into v.
func (s *session) explain(v any, args ...string) {
	s.t.Helper()
	r := s.e.exec(s.t, "", append([]string{s.e.vrnic, "explain", "--control", s.control, "--json"}, args...)...).want(s.t, 0)
	if err := json.Unmarshal([]byte(r.stdout), v); err != nil {
		s.t.Fatalf("%v\n%v", err, r)
	}
}

func (s *session) end() {
	s.t.Helper()
	s.in.Close()
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("the guest's shell ended with %v", err)
	}
}

// objects are what both sides can name: queue pairs by number, regions by
// STag, completion queues by count (the kernel numbers them its own way).
type objects struct {
	qps, stags []uint32
	cqs        int
}

func (o objects) String() string {
	return fmt.Sprintf("QPs %v, STags %#x, %d CQs", o.qps, o.stags, o.cqs)
}

func (o objects) equal(p objects) bool {
	return slices.Equal(o.qps, p.qps) && slices.Equal(o.stags, p.stags) && o.cqs == p.cqs
}

func (s *session) device() (o objects) {
	s.t.Helper()
	var qps, cqs []struct{ ID uint32 }
	s.explain(&qps, "qp")
	for _, q := range qps {
		o.qps = append(o.qps, q.ID)
	}
	s.explain(&cqs, "cq")
	for _, c := range cqs {
		if c.ID != 0 { // the control QP's own
			o.cqs++
		}
	}
	var mrs []struct {
		STag uint32 `json:"stag"`
	}
	s.explain(&mrs, "mr")
	for _, m := range mrs {
		o.stags = append(o.stags, m.STag)
	}
	slices.Sort(o.qps)
	slices.Sort(o.stags)
	return o
}

func numbers(t *testing.T, text, pattern string, base int) (out []uint32) {
	t.Helper()
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		v, err := strconv.ParseUint(m[1], base, 32)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, uint32(v))
	}
	slices.Sort(out)
	return out
}

// kernel asks the kernel. Memory that a program registers for its queues has
// no STag and is shown with key 0.
func (s *session) kernel() objects {
	s.t.Helper()
	return objects{
		qps:   numbers(s.t, s.do("rdma resource show qp"), `lqpn (\d+)`, 10),
		stags: numbers(s.t, s.do("rdma resource show mr"), `lkey 0x([1-9a-f][0-9a-f]*)`, 16),
		cqs:   len(numbers(s.t, s.do("rdma resource show cq"), `cqn (\d+)`, 10)),
	}
}

// waitingServer starts ibv_rc_pingpong without a client: its objects exist and
// its buffer holds a pattern.
const waitingServer = pingpongListens + `
ibv_rc_pingpong -g 1 -c > /tmp/server 2>&1 & s=$!
listening || cat /tmp/server`

func sameObjects(t *testing.T, e *env) {
	s := startSession(t, e)
	before := s.device()
	if k := s.kernel(); !before.equal(k) {
		t.Errorf("idle: device has %v, kernel %v", before, k)
	}
	s.do(waitingServer)
	during := s.device()
	if k := s.kernel(); !during.equal(k) {
		t.Errorf("with a program: device has %v, kernel %v", during, k)
	}
	if len(during.qps) != len(before.qps)+1 || len(during.stags) != len(before.stags)+1 || during.cqs != before.cqs+1 {
		t.Errorf("a program with one QP, CQ and MR made %v out of %v", during, before)
	}
	// A PD reaches the device with what uses it; the kernel numbers PDs its own
	// way. Both must say that QP and MR share one, and no other QP has it.
	pds := map[string][]uint32{}
	for _, kind := range []string{"qp", "mr"} {
		pds[kind] = numbers(t, s.do(`rdma resource show `+kind+` | grep "pid $s " | grep -v 'lkey 0x0 '`), `pdn (\d+)`, 10)
	}
	if len(pds["qp"]) != 1 || !slices.Equal(pds["qp"], pds["mr"]) {
		t.Errorf("the kernel shows PDs %v", pds)
	}
	var qps, mrs []struct{ PD uint32 }
	s.explain(&qps, "qp")
	s.explain(&mrs, "mr")
	if len(mrs) != 1 || len(qps) != 2 || qps[1].PD != mrs[0].PD || qps[0].PD == mrs[0].PD {
		t.Errorf("the device has QPs in PDs %v, MRs in %v", qps, mrs)
	}
	s.do("kill $s; wait $s")
	if after := s.device(); !after.equal(before) {
		t.Errorf("after exit the device has %v, want %v", after, before)
	}
	s.end()
}

// sameBytes compares guest memory as the device reaches it by an STag with the
// program's own view, before and after the program's memory changes.
func sameBytes(t *testing.T, e *env) {
	s := startSession(t, e)
	s.do(waitingServer)
	show := s.do(`rdma resource show mr | grep "pid $s "`)
	m := regexp.MustCompile(`lkey (0x[1-9a-f][0-9a-f]*).*mrlen (\d+)`).FindStringSubmatch(show)
	if m == nil {
		t.Fatalf("rdma resource show mr: %q", show)
	}
	stag := m[1]
	n, err := strconv.Atoi(m[2])
	if err != nil {
		t.Fatal(err)
	}
	n = min(n, 4096)
	var regions []struct {
		Start   uint64 `json:"start"`
		VABased bool   `json:"va_based"`
	}
	s.explain(&regions, "mr", stag)
	if len(regions) != 1 || !regions[0].VABased {
		t.Fatalf("the device has %+v for STag %s", regions, stag)
	}
	iova := fmt.Sprintf("%#x", regions[0].Start)
	own := func() string { return s.programBytes(regions[0].Start, n) }
	device := func() (string, uint64) {
		var w struct {
			Bytes  string
			Pieces []struct{ Address uint64 }
		}
		s.explain(&w, "mr", stag, iova, "--bytes", strconv.Itoa(n))
		if len(w.Pieces) == 0 {
			t.Fatal("the walk leads nowhere")
		}
		return w.Bytes, w.Pieces[0].Address
	}
	first := own()
	got, physical := device()
	if len(first) != 2*n || got != first {
		t.Errorf("STag %s address %s: the device reads %.64s…, the program %.64s…", stag, iova, got, first)
	}
	s.do(fmt.Sprintf(`printf 'written by the program' | dd of=/proc/$s/mem bs=1 seek=$((%s)) conv=notrunc 2>/dev/null`, iova))
	changed := own()
	if changed == first {
		t.Fatal("the program's memory did not change")
	}
	again, _ := device()
	if again != changed {
		t.Errorf("after a write the device reads %.64s…, the program %.64s…", again, changed)
	}
	// The kernel's own translation of the page must agree.
	if want := s.physical(regions[0].Start); physical&^4095 != want {
		t.Errorf("the walk leads to guest physical %#x, the kernel says %#x", physical, want)
	}
	s.do("kill $s; wait $s")
	s.end()
}

// programBytes reads memory of the program $s as the program sees it, as
// hexadecimal digits.
func (s *session) programBytes(address uint64, n int) string {
	s.t.Helper()
	return strings.Join(strings.Fields(s.do(fmt.Sprintf(`dd if=/proc/$s/mem bs=1 skip=$((%#x)) count=%d 2>/dev/null | od -An -v -tx1`, address, n))), "")
}

// physical is where the kernel says that a page of the program $s lies.
func (s *session) physical(address uint64) uint64 {
	s.t.Helper()
	pfn := strings.Fields(s.do(fmt.Sprintf(`dd if=/proc/$s/pagemap bs=8 skip=$((%#x / 4096)) count=1 2>/dev/null | od -An -tu8`, address)))
	if len(pfn) != 1 {
		s.t.Fatalf("pagemap: %q", pfn)
	}
	entry, err := strconv.ParseUint(pfn[0], 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return entry & (1<<55 - 1) << 12
}

func miniDriver(t *testing.T, e *env) {
	e.exec(t, "", "go", "test", "-count=1", "-race", "./devmodel/mr", "./devmodel/roce", "./devmodel/qp", "./devmodel/engine", "./devmodel/grace", "./devmodel/event").want(t, 0)
	e.exec(t, "", "go", "test", "-count=1", "-race", "-timeout", "11m", "./guest/minidriver", "-full").want(t, 0)
}

func bench(t *testing.T, e *env) {
	e.exec(t, "", "make", "bench").want(t, 0)
}
