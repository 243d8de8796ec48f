// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vrnic/vrnic/fabric"
	"github.com/vrnic/vrnic/guest/launch"
	"github.com/vrnic/vrnic/serve"
)

func init() {
	for _, k := range worldKernels {
		table = append(table, check{8, "loss-" + k, false, "the programs of 7/tools, two guests, vrnic ctl impair loss=1%, reorder=1%, corrupt=0.1%, duplicate=1%, and all of them, " + k, lossOn(k)})
	}
	table = append(table,
		check{8, "loss-total", false, "vrnic ctl impair loss=100% under ibv_rc_pingpong, rping and perftest, and before rping", lossTotal},
		check{8, "loss-ud", false, "datagrams.py, vrnic ctl impair loss=5%, and duplicate=5%: received and lost are sent", lossUD},
	)
}

// impairment is what cables do while programs run.
type impairment struct {
	name, spec string
	reliable   bool // for connections; else for datagrams, of which none may be missing
	moves      []string
}

// Counters of trouble that move where cables are bad. A bit that turns over may
// be one of any header: of a length, of a fragment, or one that says congestion,
// which over IPv6 no checksum covers. What is late may come when its QP has gone.
var (
	againCounters = []string{"RetransSegs"}
	lateCounters  = append([]string{"ip4InDiscards", "ip6InDiscards"}, againCounters...)
	wrongCounters = append([]string{
		"ip4InDiscards", "ip4InTruncatedPkts", "ip4InReasmRqd", "ip6InDiscards", "ip6InTruncatedPkts", "ip6InReasmRqd",
		"RxECNMrkd", "cnpHandled", "cnpIgnored", "cnpSent",
	}, againCounters...)
)

var impairments = []impairment{
	{"loss", "loss=1%", true, againCounters},
	{"reorder", "reorder=1%", true, lateCounters},
	{"corrupt", "corrupt=0.1%", true, wrongCounters},
	{"duplicate", "duplicate=1%", true, againCounters},
	{"all", "loss=1%,reorder=1%,corrupt=0.1%,duplicate=1%", true, wrongCounters},
	{"datagrams", "delay=2ms,jitter=1ms,duplicate=1%", false, againCounters},
}

// datagram tells whether a program's messages are datagrams: then it cannot do
// with less than all of them.
func (p tool) datagram() bool {
	return strings.HasPrefix(p.name, "ud") || strings.Contains(p.name, "UD")
}

// lossMessages is how many messages a program makes. Of the last packet lost of a
// burst nothing tells but time, and that of programs with one message at a time is
// always the last.
const lossMessages = 100

// lossOn plays every program with every impairment.
func lossOn(kernel string) func(*testing.T, *env) {
	return func(t *testing.T, e *env) {
		p := bootLossy(t, e, kernel)
		for seed, im := range impairments {
			var list []tool
			for _, x := range tools(lossMessages) {
				if x.datagram() != im.reliable {
					list = append(list, x)
				}
			}
			t.Run(im.name, func(t *testing.T) { p.in(t, e).playAll(im, seed+1, list) })
		}
		p.end()
	}
}

// lossy is two guests whose cables change.
type lossy struct {
	t      *testing.T
	e      *env
	server *server
	sides  [2]player
}

func bootLossy(t *testing.T, e *env, kernel string, change ...func(i int, c *launch.Config)) *lossy {
	t.Helper()
	p := &lossy{t: t, e: e, server: startServer(t, e, 2)}
	var configs []launch.Config
	for i := range 2 {
		c := numbered(smallGuest(t, e, fmt.Sprintf("guest%d", i), kernel, p.server.sockets[i:i+1]), i+1)
		for _, f := range change {
			f(i, &c)
		}
		configs = append(configs, c)
	}
	for i, g := range bootAll(t, configs) {
		p.sides[i] = player{newMachine(t, e.in(t, fmt.Sprintf("guest%d", i)), p.server, g, worldLibrary+programLibrary), cardDevice}
		p.sides[i].names(i+1, 2-i)
	}
	// An answer of ARP has no checksum: one with a wrong bit would be believed. And
	// for a QP the kernel waits only a second for the answer of a neighbour, which is
	// when it asks again.
	for i := range p.sides {
		text := strings.TrimSpace(p.sides[1-i].do("cat /sys/class/net/$NET/address"))
		mac, err := net.ParseMAC(text)
		if err != nil || len(mac) != 6 {
			t.Fatalf("the address of a card: %q, %v", text, err)
		}
		local := netip.AddrFrom16([16]byte{0xfe, 0x80, 8: mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]})
		p.sides[i].quiet("for a in $peer $peer6 " + local.String() + "; do ip neigh replace $a lladdr " + text + " dev $NET nud permanent; done")
	}
	return p
}

// in is the same for a part of a test.
func (p *lossy) in(t *testing.T, e *env) *lossy {
	own := *p
	own.t, own.e = t, e
	for i := range own.sides {
		m := *own.sides[i].machine
		m.t = t
		own.sides[i].machine = &m
	}
	return &own
}

// end powers the guests off and wants that nobody has complained.
func (p *lossy) end() {
	p.t.Helper()
	for _, s := range p.sides {
		if err := s.guest.Close(); err != nil {
			p.t.Errorf("power off: %v", err)
		}
		wantCleanLog(p.t, s.e.kernelLog())
	}
	if err := p.server.stop(); err != nil {
		p.t.Errorf("vrnic serve: %v", err)
	}
	wantQuietCard(p.t, filepath.Join(p.e.outDir, "serve.log"))
}

// impair changes both cables; without a rule they are perfect.
func (p *lossy) impair(specs ...string) {
	p.t.Helper()
	p.e.exec(p.t, "", append([]string{p.e.vrnic, "ctl", "--control", p.server.control, "impair"}, specs...)...).want(p.t, 0)
}

// ports are the switch's.
func (p *lossy) ports() []serve.Port {
	p.t.Helper()
	r, err := serve.Ask(p.t.Context(), p.server.control, serve.Request{What: "ports"})
	if err != nil {
		p.t.Fatal(err)
	}
	var list []serve.Port
	if err := json.Unmarshal(r.Data, &list); err != nil || len(list) != 2 {
		p.t.Fatalf("%d ports, %v", len(list), err)
	}
	return list
}

// fate is what became of all frames sent since the rules were made.
func (p *lossy) fate() (sum fabric.ImpairStats) {
	p.t.Helper()
	for _, port := range p.ports() {
		if x := port.TxImpair; x != nil {
			sum.Frames += x.Frames
			sum.Passed += x.Passed
			sum.Lost += x.Lost
			sum.Duplicated += x.Duplicated
			sum.Corrupted += x.Corrupted
			sum.Reordered += x.Reordered
			sum.Overflow += x.Overflow
			sum.Flushed += x.Flushed
			sum.Held += x.Held
		}
	}
	return sum
}

// playAll runs programs while cables are bad.
func (p *lossy) playAll(im impairment, seed int, list []tool) {
	t := p.t
	t.Helper()
	begin := time.Now()
	dir := filepath.Join(p.e.outDir, im.name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	spec := fmt.Sprintf("%s,seed=%d", im.spec, seed)
	p.impair(spec)
	moved, repeated := tally{}, 0
	for i, x := range list {
		start := time.Now()
		var o [2]outcome
		var bad []string
		for again := 0; again <= patience; again++ {
			o = playUntil(x, p.sides[0], p.sides[1], func(o [2]outcome) bool { return len(x.executed(o, false)) == 0 })
			if bad = x.judgeImpaired(im, o); len(bad) == 0 || !x.leftEarly(o) {
				break
			}
			t.Logf("%s is played again: a side has left before all was acknowledged: %q", x.name, bad)
			repeated++
		}
		text := x.report(o, time.Since(start))
		keep(t, dir, i, x, text)
		for _, s := range bad {
			t.Errorf("%s: %s", x.name, s)
		}
		if len(bad) > 0 {
			t.Log(tail(text, 60))
		}
		for _, s := range o {
			for name, n := range s.counted {
				moved[name] += n
			}
		}
	}
	f := p.fate()
	p.impair()
	r, err := fabric.ParseImpair(spec)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what   string
		n      uint64
		chance float64
	}{{"lost", f.Lost, r.Loss}, {"late", f.Reordered, r.Reorder}, {"damaged", f.Corrupted, r.Corrupt}, {"duplicated", f.Duplicated, r.Duplicate}} {
		if mean := c.chance * float64(f.Frames); float64(c.n) < mean/2 || float64(c.n) > mean*1.5 {
			t.Errorf("%d of %d frames were %s, want about %.0f", c.n, f.Frames, c.what, mean)
		}
	}
	if f.Overflow != 0 {
		t.Errorf("%d frames found no room", f.Overflow)
	}
	if again := moved["RetransSegs"]; r.Loss+r.Reorder+r.Corrupt > 0 && again == 0 {
		t.Error("nothing was sent again")
	}
	p.e.part(t, im.name, "vrnic ctl impair "+spec, fmt.Sprintf("%d programs; of %d frames %d lost, %d late, %d damaged, %d twice; %d packets sent again; %d repetitions",
		len(list), f.Frames, f.Lost, f.Reordered, f.Corrupted, f.Duplicated, moved["RetransSegs"], repeated), time.Since(begin))
}

// judgeImpaired is judge where cables are bad: programs say the same, each message
// is executed once, and no counter tells of trouble of another kind. Of datagrams
// some come twice.
func (p tool) judgeImpaired(im impairment, o [2]outcome) []string {
	bad := p.said(o)
	if im.reliable {
		bad = append(bad, p.executed(o, false)...)
	}
	for i, x := range o {
		counters := slices.DeleteFunc(slices.Clone(x.device.errors), func(name string) bool { return slices.Contains(im.moves, name) })
		if !im.reliable {
			// Who has counted enough messages leaves, and more may come for it.
			counters = slices.DeleteFunc(counters, func(name string) bool { return strings.HasSuffix(name, "InDiscards") })
		}
		for _, s := range x.counted.trouble(counters) {
			bad = append(bad, fmt.Sprintf("the %s: %s", sideNames[i], s))
		}
	}
	if !im.reliable {
		for i, want := range [2]messages{p.back, p.there} {
			if n := o[i].counted["InRdmaSends"]; n < want.sends {
				bad = append(bad, fmt.Sprintf("the %s received %d messages, want %d", sideNames[i], n, want.sends))
			}
		}
	}
	return bad
}

// unanswered tells that one side of a pingpong says that its last message was not
// acknowledged, and the other that it has had everything. It has left, and who has
// gone does not repeat an acknowledgement that was lost on the way. So it is with
// every device: pingpong has no farewell.
func (p tool) unanswered(o [2]outcome) bool {
	const failure = "Failed status transport retry counter exceeded (12) for wr_id 2"
	done := regexp.MustCompile(`(?m)^\d+ iters in `)
	for i, x := range o {
		if y := o[1-i]; x.status != 0 && strings.Contains(x.output, failure) {
			return strings.Contains(p.name, "pingpong") && y.status == 0 && done.MatchString(y.output)
		}
	}
	return false
}

// leftEarly is unanswered where cards have counted that all messages have come.
func (p tool) leftEarly(o [2]outcome) bool { return p.unanswered(o) && len(p.executed(o, false)) == 0 }

// datagramLibrary has what shells need that run datagrams.py.
const datagramLibrary = `
cd /root/guest
# room: a receiver, by now with room for so many datagrams
room() {
	rm -f /tmp/stop /tmp/got
	python3 datagrams.py receive $self $1 > /tmp/got 2>&1 & receiver=$!
	n=0
	until grep -q qpn /tmp/got; do
		n=$((n+1)); [ $n -lt 600 ] && kill -0 $receiver 2> /dev/null || { echo "FAILED: no receiver"; break; }
		sleep 0.05
	done
	head -n 1 /tmp/got
}
got() { touch /tmp/stop; wait $receiver; tail -n 1 /tmp/got; }
`

// lossUD counts datagrams that nobody repeats: those that came and those that the
// impairment lost are all that were sent.
func lossUD(t *testing.T, e *env) {
	p := bootLossy(t, e, "debian-backports", func(_ int, c *launch.Config) { *c = withPrograms(t, *c) })
	for i := range p.sides {
		p.sides[i].do(datagramLibrary)
	}
	for seed, spec := range []string{"loss=5%", "loss=50%", "loss=5%,duplicate=5%", "loss=5%,duplicate=5%,reorder=5%,delay=1ms,jitter=1ms"} {
		t.Run(spec, func(t *testing.T) { p.in(t, e).datagrams(fmt.Sprintf("%s,seed=%d", spec, seed+1)) })
	}
	p.end()
}

// decoded is JSON from a guest.
func decoded[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("the guest says %q: %v", text, err)
	}
	return v
}

func (p *lossy) datagrams(spec string) {
	const n = 1500
	t := p.t
	begin := time.Now()
	a, b := p.sides[0], p.sides[1]
	// Frames of others would be among the lost: then once more.
	for again := 0; ; again++ {
		before := [2]tally{a.statistics(), b.statistics()}
		receiver := decoded[struct{ QPN int }](t, b.do(fmt.Sprintf("room %d", 2*n)))
		p.impair(spec)
		sent := decoded[struct{ Sent int }](t, a.do(fmt.Sprintf("python3 datagrams.py send $self $peer %d %d", receiver.QPN, n)))
		for end := time.Now().Add(5 * time.Second); p.fate().Held > 0 && time.Now().Before(end); {
		}
		f := p.fate()
		p.impair()
		got := decoded[struct{ Came, Different, Bad int }](t, b.do("got"))
		if others := int(f.Frames) - n; others != 0 && again < patience {
			t.Logf("%d frames of others; once more", others)
			continue
		}
		counted := [2]tally{a.statistics().minus(before[0]), b.statistics().minus(before[1])}
		lost, twice := int(f.Lost), int(f.Duplicated)
		for _, c := range []struct {
			what      string
			got, want int
		}{
			{"datagrams sent, as the program says", sent.Sent, n},
			{"frames that came to the impairment", int(f.Frames), n},
			{"received and lost, less what came twice", got.Came + lost - twice, n},
			{"different ones received, and lost", got.Different + lost, n},
			{"datagrams that nobody sent", got.Bad, 0},
			{"OutRdmaSends of the sender", counted[0]["OutRdmaSends"], n},
			{"InRdmaSends of the receiver", counted[1]["InRdmaSends"], got.Came},
			{"RxUDP of the receiver", counted[1]["RxUDP"], got.Came},
		} {
			if c.got != c.want {
				t.Errorf("%s: %d, want %d", c.what, c.got, c.want)
			}
		}
		if lost == 0 || strings.Contains(spec, "duplicate") && twice == 0 {
			t.Errorf("%d lost, %d twice", lost, twice)
		}
		p.e.part(t, "datagrams", "vrnic ctl impair "+spec, fmt.Sprintf("%d sent, %d lost, %d came twice, %d received", n, lost, twice, got.Came), time.Since(begin))
		return
	}
}

// endless are programs that go on until something goes wrong. Both sides of the
// first have something to send, of which the peer says nothing; of the others
// there may be only one that notices.
var endless = []tool{
	{name: "write_bw -b", server: "ib_write_bw -F -b -D 900 -x $gid4", client: "ib_write_bw -F -b -D 900 -x $gid4 $peer", wants: `Failed status 12`},
	{name: "read_bw", server: "ib_read_bw -F -D 900 -x $gid4", client: "ib_read_bw -F -D 900 -x $gid4 $peer", wants: `Failed status 12`},
	{name: "send_bw", server: "ib_send_bw -F -D 900 -x $gid4", client: "ib_send_bw -F -D 900 -x $gid4 $peer", wants: `Failed status 12`},
	{name: "rc_pingpong", server: "ibv_rc_pingpong -g $gid4 -n 100000000", client: "ibv_rc_pingpong -g $gid4 -n 100000000 $peer", wants: `transport retry counter exceeded \(12\)`},
	{name: "rc_pingpong events", server: "ibv_rc_pingpong -e -g $gid4 -n 100000000", client: "ibv_rc_pingpong -e -g $gid4 -n 100000000 $peer", wants: `transport retry counter exceeded \(12\)`},
	{name: "rping", cm: true, server: "rping -s -V -a $self", client: "rping -c -V -a $peer", wants: `cq completion failed|completion.*12|DISCONNECT`},
}

// totalLibrary has what shells need whose programs come to nothing.
const totalLibrary = `
# pursue: a client, in the background
pursue() { timeout 600 sh -c "exec $*" > /tmp/client 2>&1 & client=$!; }
# farewell: how a program ends, within so many tenths of a second or by a signal
farewell() {
	n=0
	until over $1; do
		n=$((n+1)); [ $n -lt $2 ] || { kill $1; break; }
		sleep 0.1
	done
	wait $1 2> /dev/null
	echo "status $?"
	cat $3
}
`

// Bounds of what has no answer.
const (
	// eight attempts of 500 ms each, and what a busy machine adds
	silenceBound = 30 * time.Second
	// 16 requests of the connection manager, 4.3 s apart (cma.c:CMA_MAX_CM_RETRIES,
	// CMA_CM_RESPONSE_TIMEOUT)
	strangerBound = 2 * time.Minute
)

// lossTotal has cables that carry nothing any more, and wants that programs are
// told so in time, that nothing is left of them, and that all works again after.
func lossTotal(t *testing.T, e *env) {
	p := bootLossy(t, e, "debian-backports")
	for _, s := range p.sides {
		s.do(totalLibrary)
	}
	good := chosen(t, tools(lossMessages), "rc_pingpong checked", "rping", "write_bw")
	playAll(t, e, "before", good, p.sides[0], p.sides[1])
	before := p.left()
	for _, x := range endless {
		t.Run(x.name, func(t *testing.T) {
			p := p.in(t, e)
			p.silence(x)
			p.wantLeft(before)
		})
	}
	t.Run("stranger", func(t *testing.T) { p.in(t, e).stranger() })
	playAll(t, e, "after", good, p.sides[0], p.sides[1])
	p.wantLeft(before)
	p.end()
}

// wantLeft wants that as much is there as before, as soon as kernels have cleaned
// up after programs.
func (p *lossy) wantLeft(before string) {
	p.t.Helper()
	after := p.left()
	for end := time.Now().Add(20 * time.Second); after != before && time.Now().Before(end); {
		after = p.left()
	}
	if after != before {
		p.t.Errorf("left behind: %q, before %q", after, before)
	}
}

// left is what kernels hold, and the first card.
func (p *lossy) left() string {
	p.t.Helper()
	var all []string
	for _, s := range p.sides {
		all = append(all, strings.TrimSpace(s.do("rdma resource show $IB")))
	}
	return strings.Join(append(all, p.sides[0].objects().String()), "; ")
}

// silence cuts both cables while a program runs.
func (p *lossy) silence(x tool) {
	t := p.t
	begin := time.Now()
	client, server := p.sides[0], p.sides[1]
	listens := "tcp"
	if x.cm {
		listens = "cm"
	}
	first := client.statistics()
	server.quiet("serve " + listens + " '" + x.server + "'")
	client.quiet("pursue '" + x.client + "'")
	for end := time.Now().Add(time.Minute); client.statistics().minus(first)["TxUDP"] < 300; {
		if time.Now().After(end) {
			t.Fatalf("no traffic: %s", client.do("cat /tmp/client"))
		}
	}
	p.impair("loss=100%")
	cut := time.Now()
	// One of the two waits for the other's messages, perhaps, and asks nothing.
	for end := cut.Add(silenceBound); ; {
		if p.sides[0].do("over $client && echo yes") != "" || p.sides[1].do("over $server && echo yes") != "" {
			break
		}
		if time.Now().After(end) {
			t.Errorf("neither side has ended %v after the cut", silenceBound)
			break
		}
	}
	took := time.Since(cut)
	p.impair()
	// What is said now comes: the rest ends soon, or has to be ended.
	said := [2]string{client.do("farewell $client 100 /tmp/client"), server.do("farewell $server 100 /tmp/server")}
	for i, text := range said {
		if err := os.WriteFile(filepath.Join(p.e.outDir, strings.ReplaceAll(x.name, " ", "_")+"-"+sideNames[i]+".txt"), []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
	if !regexp.MustCompile(x.wants).MatchString(said[0] + said[1]) {
		t.Errorf("nobody says %q:\n%s\n%s", x.wants, said[0], said[1])
	}
	p.e.part(t, x.name, x.client, fmt.Sprintf("a side has ended %.1f s after the cut", took.Seconds()), time.Since(begin))
}

// stranger asks for a connection where nobody is heard.
func (p *lossy) stranger() {
	t := p.t
	begin := time.Now()
	p.sides[1].quiet("serve cm 'rping -s -C 1 -a $self'")
	p.impair("loss=100%")
	status, text := ended(t, p.sides[0].do("timeout 300 rping -c -C 1 -a $peer > /tmp/client 2>&1; echo status $?; cat /tmp/client"))
	took := time.Since(begin)
	p.impair()
	p.sides[1].quiet("kill $server; wait $server 2> /dev/null; true")
	if status == 0 || took > strangerBound || !strings.Contains(text, "UNREACHABLE") && !strings.Contains(text, "connect error") {
		t.Errorf("after %v: status %d: %s", took, status, text)
	}
	p.e.part(t, "stranger", "rping -c", fmt.Sprintf("it has given up after %.0f s", took.Seconds()), took)
}

// TestJudgeImpaired has one thing at a time that is wrong, or is not.
func TestJudgeImpaired(t *testing.T) {
	p := chosen(t, tools(100), "rc_pingpong checked")[0]
	good := func() (o [2]outcome) {
		for i := range o {
			c := tally{"OutRdmaSends": 100, "InRdmaSends": 100, "OutRdmaWrites": 0, "InRdmaWrites": 0, "OutRdmaReads": 0, "InRdmaReads": 0, "TxUDP": 520, "RxUDP": 510}
			for _, name := range cardDevice.errors {
				c[name] = 0
			}
			c["RetransSegs"] = 20
			o[i] = outcome{device: cardDevice, output: "100 iters in 0.10 seconds\n", counted: c}
		}
		return o
	}
	loss, corrupt := impairments[0], impairments[2]
	if bad := p.judgeImpaired(loss, good()); len(bad) > 0 {
		t.Errorf("nothing is wrong: %q", bad)
	}
	gone := func(o *[2]outcome) {
		o[1].status, o[1].output = 1, "Failed status transport retry counter exceeded (12) for wr_id 2\n"
	}
	for what, c := range map[string]struct {
		im    impairment
		spoil func(o *[2]outcome)
		bad   bool
		early bool
	}{
		"a packet discarded":      {loss, func(o *[2]outcome) { o[0].counted["ip4InDiscards"]++ }, true, false},
		"one with a wrong ICRC":   {corrupt, func(o *[2]outcome) { o[0].counted["ip4InDiscards"]++ }, false, false},
		"no route":                {corrupt, func(o *[2]outcome) { o[0].counted["ip4OutNoRoutes"]++ }, true, false},
		"a message twice":         {loss, func(o *[2]outcome) { o[1].counted["InRdmaSends"]++ }, true, false},
		"data":                    {loss, func(o *[2]outcome) { o[1].output += "invalid data in page 0\n" }, true, false},
		"left early":              {loss, gone, true, true},
		"a message has not come":  {loss, func(o *[2]outcome) { gone(o); o[0].counted["InRdmaSends"]-- }, true, false},
		"the other has not ended": {loss, func(o *[2]outcome) { gone(o); o[0].output = "" }, true, false},
	} {
		o := good()
		c.spoil(&o)
		if bad := p.judgeImpaired(c.im, o); len(bad) > 0 != c.bad || p.leftEarly(o) != c.early {
			t.Errorf("%s: %q, left early: %v", what, bad, p.leftEarly(o))
		}
	}
}
