// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vrnic/vrnic/guest/launch"
)

func init() {
	for _, k := range worldKernels {
		table = append(table, check{8, "rough-" + k, false,
			"rmmod irdma, FLR, CORER, link flap, MTU change, SIGKILL of programs and of QEMU under ib_write_bw -b and rping -V, two others with traffic.py all along; three guests, " + k, roughOn(k)})
	}
}

// roughCase is something that happens to one of three guests, the victim, while
// its programs and the peer's talk. Exactly one of victim, peer, ctl, both and
// power says what.
type roughCase struct {
	name   string
	victim string   // shell commands there
	peer   string   // shell commands at the other side
	ctl    []string // from outside, one "vrnic ctl" each
	both   string   // shell commands, there and here at once
	power  bool     // QEMU is killed, and another one started

	lasts bool // connections go on
	loses bool // something has to be sent again
	anew  bool // the verbs device is made anew
}

// What perftest's programs are killed by in the end.
const killPrograms = "kill -9 $bw $ping"

var roughCases = []roughCase{
	{name: "rmmod", victim: "rmmod irdma && modprobe irdma", anew: true},
	{name: "flr", victim: "echo 1 > $P/reset", anew: true},
	{name: "corer", ctl: []string{"reset corer"}, anew: true},
	{name: "link", ctl: []string{"link down", "link up", "link down", "link up"}, lasts: true, loses: true},
	{name: "mtu", victim: "for m in 1500 4200 9000 1500 9000; do ip link set $NET mtu $m || echo FAILED: $m; done", lasts: true},
	{name: "kill-client", victim: killPrograms},
	{name: "kill-server", peer: killPrograms},
	{name: "kill-both", both: killPrograms},
	{name: "qemu", power: true},
}

func (c roughCase) how() string {
	switch {
	case c.power:
		return "SIGKILL to QEMU"
	case c.ctl != nil:
		return "vrnic ctl " + strings.Join(c.ctl, ", ")
	case c.both != "":
		return "at both ends: " + c.both
	case c.peer != "":
		return "at the peer: " + c.peer
	}
	return c.victim
}

// roughLibrary has what the victim's and its peer's shells need: two programs
// each, of which one verifies its data and the other has as much under way as it
// can, both ways.
const roughLibrary = `
echo 30 > /proc/sys/kernel/hung_task_timeout_secs
DEV=$(basename $(ls -d /sys/bus/pci/drivers/ice/0*)) P=/sys/bus/pci/devices/$DEV
ibdev() { ls -diL /sys/class/infiniband/*/ 2> /dev/null; }
LOAD="-d irdma0 -F -b -q 4 -D 900"
listen_all() {
	ib_write_bw $LOAD -x $gid4 > /tmp/bw 2>&1 & bw=$!
	rping -s -V -a $self > /tmp/rping 2>&1 & ping=$!
	n=0
	until tcp && cm; do
		n=$((n+1)); [ $n -lt 600 ] || { echo "FAILED: nobody listens"; cat /tmp/bw /tmp/rping; return; }
		sleep 0.05
	done
}
# counter: older drivers have more before a counter's name
counter() { cat /sys/class/infiniband/*/ports/1/hw_counters/*$1 2> /dev/null || echo 0; }
# moves: both programs have gone on by so much; of rping the client is read from
moves() {
	n=0 reads=$2 w=$(($(counter OutRdmaWrites) + $1)) r=$(($(counter $reads) + $1))
	until [ $(counter OutRdmaWrites) -gt $w ] && [ $(counter $reads) -gt $r ]; do
		n=$((n+1)); alive || { echo "FAILED: a program has ended"; cat /tmp/bw /tmp/rping; return; }
		[ $n -lt 300 ] || { echo "FAILED: no traffic: $(counter OutRdmaWrites) writes, want $w; $(counter $reads) $reads, want $r"; cat /tmp/bw /tmp/rping; return; }
		sleep 0.1
	done
}
alive() { kill -0 $bw 2> /dev/null && kill -0 $ping 2> /dev/null; }
start_all() {
	ib_write_bw $LOAD -x $gid4 $peer > /tmp/bw 2>&1 & bw=$!
	rping -c -V -C 100000000 -a $peer > /tmp/rping 2>&1 & ping=$!
	moves 20 InRdmaReads
}
# dies: a program ends, or is killed after so many seconds, which is told
dies() {
	n=0 when=$(($2 * 10))
	while kill -0 $1 2> /dev/null; do
		n=$((n+1))
		[ $n != $when ] || { echo "killed after $2 s: $3"; kill -9 $1; }
		[ $n -lt $((when + 100)) ] || { echo "FAILED: a killed program does not end: $3"; cat /proc/$1/stack; return; }
		sleep 0.1
	done
	wait $1; echo "$3 ended with $?"
	! grep -i mismatch /tmp/rping || echo "FAILED: rping"
}
dead() { dies $bw $1 ib_write_bw; dies $ping $2 rping; }
up_again() {
	until new=$(ibdev); [ -n "$new" ] && [ "$new" != "$old" ] && ibv_devinfo 2> /dev/null | grep -q PORT_ACTIVE; do
		[ $(cut -d. -f1 /proc/uptime) -lt $1 ] || { echo "FAILED: no PORT_ACTIVE: $(ibv_devinfo 2>&1)"; return; }
		sleep 0.1
	done
}
`

// holdings is how much a card holds for its driver and for programs, by number:
// pages are those that segments of the host memory cache have.
type holdings struct{ qps, cqs, stags, ahs, segments, pages int }

// holds asks a card.
func holds(t *testing.T, e *env, control string, device int) (h holdings) {
	t.Helper()
	ask := func(v any, what string) {
		t.Helper()
		r := e.exec(t, "", e.vrnic, "explain", "--control", control, "--device", strconv.Itoa(device), "--json", what).want(t, 0)
		if err := json.Unmarshal([]byte(r.stdout), v); err != nil {
			t.Fatalf("%v\n%v", err, r)
		}
	}
	var qps, cqs, stags, ahs []struct{}
	ask(&qps, "qp")
	ask(&cqs, "cq")
	ask(&stags, "mr")
	ask(&ahs, "ah")
	var hmc struct {
		SDs []struct {
			Valid bool
			PDs   []struct{ Valid bool }
		}
	}
	ask(&hmc, "hmc")
	for _, s := range hmc.SDs {
		if !s.Valid {
			continue
		}
		h.segments++
		for _, p := range s.PDs {
			if p.Valid {
				h.pages++
			}
		}
	}
	h.qps, h.cqs, h.stags, h.ahs = len(qps), len(cqs), len(stags), len(ahs)
	return h
}

// within says whether nothing is left compared to what there was at first. A
// driver that was loaded again may have asked for fewer pages so far.
func (h holdings) within(first holdings) bool {
	a, b := h, first
	a.segments, a.pages, b.segments, b.pages = 0, 0, 0, 0
	return a == b && h.segments <= first.segments && h.pages <= first.pages
}

// rough is three guests: the victim, its peer, and a witness that writes to the
// peer's memory and reads it back all along.
type rough struct {
	t       *testing.T
	e       *env
	kernel  string
	server  *server
	configs []launch.Config
	guests  [3]*machine
	logs    []string // kernel logs of all guests there were
	idle    [2]holdings
	kept    [2]string // what the kernels say of it
}

const victim, peer, witness = 0, 1, 2

func roughOn(kernel string) func(*testing.T, *env) {
	return func(t *testing.T, e *env) {
		r := &rough{t: t, e: e, kernel: kernel, server: startServer(t, e, 3)}
		for i, name := range []string{"victim", "peer", "witness"} {
			c := numbered(smallGuest(t, e, name, kernel, r.server.sockets[i:i+1]), i+1)
			if i == victim {
				c.CPUs = 2 // that what happens meets a driver at work on both
			} else {
				c = withPrograms(t, c)
			}
			r.configs = append(r.configs, c)
			r.logs = append(r.logs, filepath.Join(c.Artifacts, "kernel.log"))
		}
		for i, g := range bootAll(t, r.configs) {
			r.adopt(i, g)
		}
		r.guests[peer].quiet("awaits $self")
		r.guests[witness].quiet("begin $self $peer6 && goes 5")

		// What programs need once stays: of the host memory cache, too.
		r.round(roughCases[slices.IndexFunc(roughCases, func(c roughCase) bool { return c.name == "kill-both" })])
		for i := range r.idle {
			r.idle[i], r.kept[i] = holds(t, e, r.server.control, i), r.resources(i)
		}
		before, used := r.server.usage(t), r.server.allocated(t)
		for _, c := range roughCases {
			n := repeat(3)
			if c.power {
				n = repeat(2)
			}
			ok := t.Run(c.name, func(t *testing.T) {
				r.on(t)
				begin := time.Now()
				var slowest time.Duration
				killed := 0
				for i := range n {
					for _, g := range r.guests {
						g.do(fmt.Sprintf("echo '%s%s, round %d' > /dev/kmsg", logMark, c.name, i+1))
					}
					took, had := r.round(c)
					slowest, killed = max(slowest, took), killed+had
					if r.clean(); t.Failed() {
						t.Fatalf("round %d of %d", i+1, n)
					}
				}
				took := time.Since(begin)
				e.part(t, c.name, c.how(), fmt.Sprintf("%d × %.1f s, works again after %.1f s at most, %d programs had to be killed", n, took.Seconds()/float64(n), slowest.Seconds(), killed), took)
			})
			r.on(t)
			if !ok {
				break // what follows would tell about this
			}
		}
		r.guests[witness].quiet("goes 5; touch /tmp/stop")
		rounds := 0
		for _, i := range []int{witness, peer} {
			end := r.guests[i].ended()
			if end.Status != "SUCCESS" || end.State != "RTS" || end.Event != "" {
				t.Errorf("the survivors' traffic ends with %+v", end)
			}
			rounds += end.Rounds
		}
		// A guest that has only booted has its card do less than one that has lived.
		after := r.server.within(t, before)
		uses := r.server.allocated(t)
		if after.descriptors > before.descriptors || after.goroutines > before.goroutines || uses-used > mayGrow {
			t.Errorf("vrnic serve was at %+v with %d bytes of its own, and is at %+v with %d", before, used, after, uses)
		}
		e.part(t, "survivors", "traffic.py", fmt.Sprintf("%d rounds written, read back and compared; vrnic serve: %d descriptors, %d goroutines, memory %+d KiB",
			rounds, after.descriptors, after.goroutines, (uses-used)/1024), 0)
		for _, g := range r.guests {
			if err := g.guest.Close(); err != nil {
				t.Errorf("power off: %v", err)
			}
		}
		for _, path := range r.logs {
			wantCleanLog(t, path)
		}
		if err := r.server.stop(); err != nil {
			t.Errorf("vrnic serve: %v", err)
		}
		wantQuietCard(t, filepath.Join(e.outDir, "serve.log"))
	}
}

// allocated is the memory of a process that is not its guests'.
func (s *server) allocated(t *testing.T) (bytes int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "\nRssAnon:")
	if _, err := fmt.Sscanf(rest, "%d kB", &bytes); err != nil {
		t.Fatalf("RssAnon: %v", err)
	}
	return bytes * 1024
}

// on has errors told to a test.
func (r *rough) on(t *testing.T) {
	r.t = t
	for _, g := range r.guests {
		g.t = t
	}
}

// adopt opens the shell of a guest that has booted.
func (r *rough) adopt(i int, g *launch.Machine) {
	r.t.Helper()
	r.guests[i] = newMachine(r.t, r.e, r.server, g, networkLibrary+roughLibrary)
	r.names(i)
}

// names sets the addresses: victim and peer are each other's, the witness's is
// the peer.
func (r *rough) names(i int) {
	r.t.Helper()
	r.guests[i].quiet("carrier $NET")
	r.guests[i].names(i+1, []int{2, 1, 2}[i])
}

// resources is what a kernel says that it holds.
func (r *rough) resources(i int) string {
	r.t.Helper()
	return strings.TrimSpace(r.guests[i].do("rdma resource show | sed 's/^[0-9]*: //'"))
}

// clean wants that both sides hold what they held when they were idle, once
// connections have ended.
func (r *rough) clean() {
	r.t.Helper()
	for i := range r.idle {
		for end := time.Now().Add(time.Minute); ; {
			now, kept := holds(r.t, r.e, r.server.control, i), r.resources(i)
			if now.within(r.idle[i]) && kept == r.kept[i] {
				break
			}
			if time.Now().After(end) {
				r.t.Errorf("card %d holds %+v, before %+v; the kernel %q, before %q", i, now, r.idle[i], kept, r.kept[i])
				return
			}
		}
	}
}

// How long programs may need to see that nobody answers: retries of the card, and
// of the connection manager.
const (
	deadHere  = 5 // where the device went: rdma-core tells polling programs nothing
	deadThere = 60
)

// round has something happen once; it returns how long the victim could not work,
// and how many programs had to be killed that saw nothing of it.
func (r *rough) round(c roughCase) (away time.Duration, killed int) {
	r.t.Helper()
	v, p, w := r.guests[victim], r.guests[peer], r.guests[witness]
	v.do("old=")
	if c.anew {
		v.do("old=$(ibdev)")
	}
	p.quiet("listen_all")
	v.quiet("start_all")
	if r.t.Failed() {
		return 0, 0
	}
	sentAgain := r.sentAgain()
	begin := time.Now()
	switch {
	case c.power:
		v.guest.Kill()
	case c.ctl != nil:
		for _, what := range c.ctl {
			v.ctl(strings.Fields(what)...)
		}
	case c.both != "":
		v.do(c.both)
		p.do(c.both)
	case c.peer != "":
		p.do(c.peer)
	default:
		v.quiet("{ " + c.victim + "; } || echo FAILED: status $?")
	}
	if c.lasts {
		v.quiet("carrier $NET; moves 20 InRdmaReads")
		p.quiet("moves 20 OutRdmaReads")
		away = time.Since(begin)
		if c.loses && r.sentAgain() == sentAgain {
			r.t.Error("nothing was sent again")
		}
		v.do(killPrograms)
		p.do(killPrograms)
	}
	// Those that send see that nobody answers. A server of rping only waits.
	p.told(&killed, fmt.Sprintf("dead %d %d", deadThere, deadHere), "ib_write_bw")
	if c.power {
		away = r.boot()
		v = r.guests[victim]
	} else {
		v.told(&killed, fmt.Sprintf("dead %d %d", deadHere, deadHere), "")
		v.quiet(fmt.Sprintf("up_again $(($(cut -d. -f1 /proc/uptime) + %d))", int(activeWithin.Seconds())))
		if !c.lasts {
			away = time.Since(begin)
		}
		r.names(victim)
	}
	p.quiet("serve cm rping -s -C 20 -V -a $self")
	if out := v.do("ask rping -c -C 20 -V -a $peer"); !strings.HasPrefix(out, "status 0") || verdicts.MatchString(out) {
		r.t.Errorf("rping afterwards: %s", out)
	}
	if out := p.do("served"); !strings.HasPrefix(out, "status 0") || verdicts.MatchString(out) {
		r.t.Errorf("rping afterwards, its server: %s", out)
	}
	w.quiet("goes 3")
	return away, killed
}

// sentAgain counts what victim and peer have sent more than once.
func (r *rough) sentAgain() (n int) {
	r.t.Helper()
	for _, m := range r.guests[:witness] {
		text := strings.TrimSpace(m.do("counter RetransSegs"))
		k, err := strconv.Atoi(text)
		if err != nil {
			r.t.Errorf("RetransSegs: %q", text)
		}
		n += k
	}
	return n
}

// told has commands tell what becomes of programs; one of that name must end by
// itself.
func (m *machine) told(killed *int, script, itself string) {
	m.t.Helper()
	out := m.ask(script)
	*killed += strings.Count(out, "killed after")
	if itself != "" {
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "killed after") && strings.Contains(line, itself) {
				m.t.Errorf("%s did not end by itself: %s\n%s", itself, out, m.do("cat /tmp/bw; rdma resource show qp"))
			}
		}
	}
}

// boot starts a guest in the place of the one that was killed.
func (r *rough) boot() time.Duration {
	r.t.Helper()
	c := r.configs[victim]
	c.Artifacts = r.e.in(r.t, fmt.Sprintf("victim%d", len(r.logs))).outDir
	r.logs = append(r.logs, filepath.Join(c.Artifacts, "kernel.log"))
	begin := time.Now()
	g := bootAll(r.t, []launch.Config{c})[0]
	r.adopt(victim, g)
	return time.Since(begin)
}
