// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// messages are what one side of a program asks of the other.
type messages struct{ sends, writes, reads int }

func (m messages) plus(o messages) messages {
	return messages{m.sends + o.sends, m.writes + o.writes, m.reads + o.reads}
}

func (m messages) all() int { return m.sends + m.writes + m.reads }

// tool is a server and a client of it, how they are started and what they
// send. In their arguments are $self and $peer, addresses of the own and of the
// other side, and $self6 and $peer6; $gid4, $gid6 and $gid0 are the indices of
// GIDs: of IPv4, of IPv6, and the link-local one.
type tool struct {
	name           string
	server, client string
	cm             bool   // connections are the connection manager's; else by TCP
	wants          string // regular expression, in what the client prints

	there messages // of the client
	back  messages // of the server
	bytes int      // of all of them; 0: not looked at
}

// connected is how many messages of QP 1 may come on top of a program's own: the
// connection manager's requests, replies and their repetitions.
const connected = 40

// verdicts are what programs print, with status 0 as well, after something went
// wrong: with pingpong's -c and rping's -V what came was not what was sent.
var verdicts = regexp.MustCompile(`(?i)invalid data|mismatch|failed|error|couldn't|unable|unexpected`)

// allSizes is how many messages perftest's -a makes of each: from 2 bytes to 8 MiB.
const allSizes = 23

// tools is the list of what users come for: n messages each, of the largest
// fewer.
func tools(n int) (list []tool) {
	few := max(5, n/20)
	pingpong := func(name, args string, size, n int) {
		run := fmt.Sprintf("ibv_%s -n %d %s", strings.Fields(name)[0], n, args)
		if size == 0 { // its own
			size = map[byte]int{'r': 4096, 'u': 1024}[name[0]]
		} else {
			run += fmt.Sprintf(" -s %d", size)
		}
		list = append(list, tool{
			name: name, server: run, client: run + " $peer", wants: fmt.Sprintf(`(?m)^%d iters in `, n),
			there: messages{sends: n}, back: messages{sends: n}, bytes: 2 * n * size,
		})
	}
	pingpong("rc_pingpong", "-g $gid4", 0, n)
	pingpong("rc_pingpong checked", "-g $gid4 -c", 0, n)
	pingpong("rc_pingpong 1MiB", "-g $gid4 -c", 1<<20, few)
	pingpong("rc_pingpong events", "-g $gid4 -e", 0, n)
	pingpong("rc_pingpong IPv6", "-g $gid6 -c", 0, n)
	pingpong("rc_pingpong IPv6 events", "-g $gid6 -c -e", 0, few)
	pingpong("rc_pingpong link-local", "-g $gid0 -c", 0, few)
	for _, mtu := range []int{256, 512, 1024, 2048, 4096} {
		pingpong(fmt.Sprintf("rc_pingpong MTU %d", mtu), fmt.Sprintf("-g $gid4 -m %d -c", mtu), 9999, few)
		pingpong(fmt.Sprintf("rc_pingpong MTU %d IPv6", mtu), fmt.Sprintf("-g $gid6 -m %d -c", mtu), 20000, few)
	}
	pingpong("ud_pingpong", "-g $gid4 -c", 0, n)
	pingpong("ud_pingpong IPv6", "-g $gid6 -c", 1024, few)

	const pings = 100
	rounds := messages{sends: 2 * pings}
	for _, v := range []string{"", "6"} {
		list = append(list, tool{
			name: strings.TrimSpace("rping " + v), cm: true, wants: ``,
			server: fmt.Sprintf("rping -s -C %d -V -a $self%s", pings, v), client: fmt.Sprintf("rping -c -C %d -V -a $peer%s", pings, v),
			there: rounds, back: rounds.plus(messages{writes: pings, reads: pings}),
		})
	}
	for _, name := range []string{"ucmatose", "udaddy"} {
		ten := messages{sends: 10}
		list = append(list, tool{
			name: name, cm: true, server: name, client: name + " -s $peer", wants: `return status 0`, there: ten, back: ten,
		})
	}

	const size = 65536
	perftest := func(name, args string, n, bytes int, there, back messages) {
		// -u: a second until a packet is sent again, which is more than an emulated
		// peer takes. -r: as many receives as messages, so that none has to wait.
		run := strings.TrimSpace(fmt.Sprintf("ib_%s -F -u 18 -n %d %s", name, n, args))
		if strings.HasPrefix(name, "send") {
			run += fmt.Sprintf(" -r %d", n)
		}
		list = append(list, tool{
			name: strings.TrimSpace(name + " " + args), server: run + " -x $gid4", client: run + " -x $gid4 $peer",
			wants: fmt.Sprintf(`(?m)^ ?%d\s+%d\s`, bytes, n), there: there, back: back,
			bytes: (there.all() + back.all()) * bytes,
		})
	}
	one := map[string]messages{"write": {writes: 1}, "read": {reads: 1}, "send": {sends: 1}}
	for _, verb := range []string{"write", "read", "send"} {
		times := func(n int) messages {
			m := one[verb]
			return messages{n * m.sends, n * m.writes, n * m.reads}
		}
		bw, few := verb+"_bw", max(5, n/100)
		perftest(bw, "", n, size, times(n), messages{})
		perftest(bw, "-a", few, 8<<20, times(allSizes*few), messages{})
		list[len(list)-1].bytes = few * (16<<20 - 2)
		perftest(bw, "-q 8", few, size, times(8*few), messages{})
		list[len(list)-1].wants = fmt.Sprintf(`(?m)^ ?%d\s+%d\s`, size, 8*few)
		perftest(bw, "-b", n, size, times(n), times(n))
	}
	perftest("write_lat", "", n, 2, messages{writes: n}, messages{writes: n})
	perftest("read_lat", "", n, 2, messages{reads: n}, messages{})
	perftest("send_lat", "", n, 2, messages{sends: n}, messages{sends: n})
	perftest("send_bw", "-c UD -s 1024", n, 1024, messages{sends: n}, messages{})
	return list
}

// chosen are the programs of these names.
func chosen(t *testing.T, list []tool, names ...string) (out []tool) {
	t.Helper()
	for _, name := range names {
		i := slices.IndexFunc(list, func(p tool) bool { return p.name == name })
		if i < 0 {
			t.Fatalf("there is no program %q", name)
		}
		out = append(out, list[i])
	}
	return out
}

// programLibrary has what shells need that run programs.
const programLibrary = `
IB=$(ls /sys/class/infiniband | head -n 1)
# gid: the index of a GID, once it is there
gid() {
	n=0
	until g=$(grep -ls $1 /sys/class/infiniband/$IB/ports/1/gids/* | sed 's,.*/,,' | sort -n | head -n 1); [ -n "$g" ]; do
		n=$((n+1)); [ $n -lt 200 ] || { echo "FAILED: no GID $1" >&2; return; }
		sleep 0.05
	done
	echo $g
}
tcp() { cat /proc/net/tcp /proc/net/tcp6 2> /dev/null | grep -q ':4853 [0-9A-F:]* 0A '; }
cm() { rdma resource show cm_id | grep -q LISTEN; }
# serve: a server, by now listening in the way named first
serve() {
	listens=$1; shift
	timeout 150 sh -c "exec $*" > /tmp/server 2>&1 & server=$!
	n=0
	until $listens; do
		n=$((n+1)); [ $n -lt 600 ] && kill -0 $server 2> /dev/null || { echo "FAILED: nobody listens"; return; }
		sleep 0.05
	done
}
# over: whether a process has ended, be it that nobody has waited for it yet
over() { case $(cat /proc/$1/stat 2> /dev/null) in "" | *") Z "*) true ;; *) false ;; esac; }
served() { wait $server; echo "status $?"; cat /tmp/server; }
ask() { timeout 120 sh -c "exec $*" > /tmp/client 2>&1; echo "status $?"; cat /tmp/client; }
`

// names sets a shell's addresses. last is the last byte of its guest's own and
// of the other's.
func (m *machine) names(last, peer int) {
	m.t.Helper()
	m.quiet(fmt.Sprintf(`
		export self=192.168.77.%[1]d self6=fd77::%[1]x peer=192.168.77.%[2]d peer6=fd77::%[2]x
		export gid4=$(gid 0000:0000:0000:0000:0000:ffff:c0a8:4d%02[1]x) gid6=$(gid fd77:0000:0000:0000:0000:0000:0000:%04[1]x) gid0=0`, last, peer))
}

// tally is what a guest's device has counted, by name as it is in the newest
// kernel.
type tally map[string]int

// older are the names of counters in kernels before.
var older = strings.NewReplacer("iwIn", "In", "iwOut", "Out", "iwRdma", "Rdma", "tcpRetransSegs", "RetransSegs")

// statistics asks the device, as users do.
func (m *machine) statistics() tally {
	m.t.Helper()
	text := m.do("rdma statistic show link $IB/1")
	f := strings.Fields(older.Replace(text))
	if len(f) < 4 || f[0] != "link" {
		m.t.Fatalf("rdma statistic: %q", text)
	}
	c := tally{}
	for i := 2; i+1 < len(f); i += 2 {
		n, err := strconv.Atoi(f[i+1])
		if err != nil {
			m.t.Fatalf("rdma statistic: counter %s: %v", f[i], err)
		}
		c[f[i]] = n
	}
	return c
}

func (c tally) minus(o tally) tally {
	d := tally{}
	for name, n := range c {
		d[name] = n - o[name]
	}
	return d
}

// moved is a text of what is not 0.
func (c tally) moved() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if c[name] != 0 {
			out = append(out, fmt.Sprintf("%s %d", name, c[name]))
		}
	}
	return strings.Join(out, ", ")
}

// trouble says which of the counters named moved.
func (c tally) trouble(names []string) (bad []string) {
	for _, name := range names {
		if n, ok := c[name]; !ok {
			bad = append(bad, "there is no counter "+name)
		} else if n != 0 {
			bad = append(bad, fmt.Sprintf("%s counted %d", name, n))
		}
	}
	return bad
}

// deviceKind tells what the RDMA device of a guest is, and which its counters are.
type deviceKind struct {
	name           string
	sent, received string   // counters of packets
	errors         []string // counters that stay 0 where nothing is lost
	messages       bool     // it counts messages by their kind
}

var (
	cardDevice = deviceKind{
		name: "the card", sent: "TxUDP", received: "RxUDP", messages: true,
		errors: []string{
			"ip4InDiscards", "ip4InTruncatedPkts", "ip4InReasmRqd", "ip4OutNoRoutes", "ip4OutSegRqd",
			"ip6InDiscards", "ip6InTruncatedPkts", "ip6InReasmRqd", "ip6OutNoRoutes", "ip6OutSegRqd",
			"RetransSegs", "rxVlanErrors", "RxECNMrkd", "cnpHandled", "cnpIgnored", "cnpSent",
		},
	}
	// rxeDevice counts (drivers/infiniband/sw/rxe) what passed its check of the ICRC
	// as rcvd_pkts (rxe_recv.c:rxe_rcv). All others are of trouble but ack_deferred
	// (an answer that waits for its task), rdma_sends and rdma_recvs.
	rxeDevice = deviceKind{
		name: "rxe", sent: "sent_pkts", received: "rcvd_pkts",
		errors: []string{
			"duplicate_request", "out_of_seq_request", "rcvd_rnr_err", "send_rnr_err", "rcvd_seq_err",
			"retry_exceeded_err", "retry_rnr_exceeded_err", "completer_retry_err", "send_err", "link_downed",
		},
	}
)

// player is one side of programs: a shell, and the device of its guest.
type player struct {
	*machine
	device deviceKind
}

// outcome is what became of one side of a program.
type outcome struct {
	device  deviceKind
	status  int
	output  string
	counted tally // meanwhile
}

// ended takes apart what serve and ask leave.
func ended(t *testing.T, text string) (status int, output string) {
	t.Helper()
	first, rest, _ := strings.Cut(text, "\n")
	if _, err := fmt.Sscanf(first, "status %d", &status); err != nil {
		t.Fatalf("the shell says %q", text)
	}
	return status, rest
}

// play runs a program. The outcomes are the client's and the server's; for a
// guest that talks to itself both count the same. The last packets may be under
// way after the programs' end.
func play(p tool, client, server player) [2]outcome {
	client.t.Helper()
	return playUntil(p, client, server, func(o [2]outcome) bool { return len(packets(o)) == 0 })
}

// playUntil runs a program, and counts until all is there, or 3 s.
func playUntil(p tool, client, server player, all func([2]outcome) bool) [2]outcome {
	client.t.Helper()
	sides := [2]player{client, server}
	var before [2]tally
	for i, s := range sides {
		before[i] = s.statistics()
	}
	listens := "tcp"
	if p.cm {
		listens = "cm"
	}
	server.quiet("serve " + listens + " '" + p.server + "'")
	answer := client.do("ask '" + p.client + "'")
	texts := [2]string{answer, server.do("served")}
	var out [2]outcome
	for i, s := range sides {
		out[i].device = s.device
		out[i].status, out[i].output = ended(s.t, texts[i])
	}
	for end := time.Now().Add(3 * time.Second); ; {
		for i, s := range sides {
			out[i].counted = s.statistics().minus(before[i])
		}
		if all(out) || time.Now().After(end) {
			return out
		}
	}
}

// packets says what was sent and not received.
func packets(o [2]outcome) (bad []string) {
	for i := range o {
		from, to := o[i], o[1-i]
		if sent, received := from.counted[from.device.sent], to.counted[to.device.received]; sent != received {
			bad = append(bad, fmt.Sprintf("%s sent %d packets, %s received %d", from.device.name, sent, to.device.name, received))
		}
	}
	return bad
}

// sideNames are those of outcomes.
var sideNames = [2]string{"client", "server"}

// judge says everything that is not as it should be. alone: one device has
// talked to itself.
func (p tool) judge(o [2]outcome, alone bool) (bad []string) {
	bad = append(p.said(o), packets(o)...)
	for i, x := range o {
		for _, s := range x.counted.trouble(x.device.errors) {
			bad = append(bad, fmt.Sprintf("%s of the %s: %s", x.device.name, sideNames[i], s))
		}
		if x.device.messages {
			bad = append(bad, p.weigh(x, alone)...)
		}
	}
	return append(bad, p.executed(o, alone)...)
}

// said says what is wrong with what the programs say.
func (p tool) said(o [2]outcome) (bad []string) {
	for i, x := range o {
		if x.status != 0 {
			bad = append(bad, fmt.Sprintf("the %s's status is %d", sideNames[i], x.status))
		}
		if m := verdicts.FindString(x.output); m != "" {
			bad = append(bad, fmt.Sprintf("the %s says %q", sideNames[i], m))
		}
	}
	if !regexp.MustCompile(p.wants).MatchString(o[0].output) {
		bad = append(bad, fmt.Sprintf("the client does not say %q", p.wants))
	}
	if o[0].counted[o[0].device.sent] == 0 {
		bad = append(bad, o[0].device.name+" sent nothing")
	}
	return bad
}

// executed says which messages cards counted too often, or too seldom.
func (p tool) executed(o [2]outcome, alone bool) (bad []string) {
	out, in := [2]messages{p.there, p.back}, [2]messages{p.back, p.there}
	if alone {
		both := p.there.plus(p.back)
		out, in = [2]messages{both, both}, [2]messages{both, both}
	}
	for i, x := range o {
		if !x.device.messages {
			continue
		}
		for _, c := range []struct {
			name string
			want int
		}{
			{"OutRdmaSends", out[i].sends}, {"OutRdmaWrites", out[i].writes}, {"OutRdmaReads", out[i].reads},
			{"InRdmaSends", in[i].sends}, {"InRdmaWrites", in[i].writes}, {"InRdmaReads", in[i].reads},
		} {
			more := 0
			if p.cm && strings.HasSuffix(c.name, "Sends") {
				more = connected
			}
			if n := x.counted[c.name]; n < c.want || n > c.want+more {
				bad = append(bad, fmt.Sprintf("%s of the %s: %s moved by %d, want %d (and %d at most of QP 1)", x.device.name, sideNames[i], c.name, n, c.want, more))
			}
		}
	}
	return bad
}

// weigh says whether a card counted as many bytes as the messages have, with
// headers. Of IP, UDP and BTH there is one each, and the ICRC; of others at most 20
// bytes more, for IPv6 20 as well, and up to 3 behind the payload.
func (p tool) weigh(x outcome, alone bool) (bad []string) {
	sum := func(names ...string) (n int) {
		for _, name := range names {
			n += x.counted[name]
		}
		return n
	}
	octets, packets := sum("ip4OutOctets", "ip6OutOctets"), sum("ip4OutPkts", "ip6OutPkts")
	if n := x.counted[x.device.sent]; packets != n {
		bad = append(bad, fmt.Sprintf("packets out: %d of IP, %d of UDP", packets, n))
	}
	in := sum("ip4InPkts", "ip6InPkts")
	if n := x.counted[x.device.received]; in != n {
		bad = append(bad, fmt.Sprintf("packets in: %d of IP, %d of UDP", in, n))
	}
	switch received := sum("ip4InOctets", "ip6InOctets"); {
	case !alone:
		octets, packets = octets+received, packets+in
	case octets != received:
		bad = append(bad, fmt.Sprintf("%d octets out, %d in", octets, received))
	}
	const least, most = 20 + 8 + 12 + 4, 20 + 20 + 8 + 12 + 20 + 3 + 4
	if least, most := p.bytes+least*packets, p.bytes+most*packets; p.bytes > 0 && (octets < least || octets > most) {
		bad = append(bad, fmt.Sprintf("%d octets of IP for %d bytes in %d packets, want %d to %d", octets, p.bytes, packets, least, most))
	}
	return bad
}

// late tells that a timer of rxe ran out although nothing was lost: pingpong asks
// for answers within 67 ms, for which a busy machine may have no time. What comes
// of it is not the card's doing: all that either side sent has come, some twice.
func late(o [2]outcome) bool {
	timeouts := 0
	for _, x := range o {
		timeouts += x.counted["completer_retry_err"]
	}
	return timeouts > 0 && len(packets(o)) == 0 && o[0].status == 0 && o[1].status == 0
}

// patience is how often a program is played again after answers were late.
const patience = 5

// playAll runs programs one after the other, and judges them. What they print
// and count stays in a folder.
func playAll(t *testing.T, e *env, what string, list []tool, client, server player) {
	t.Helper()
	begin := time.Now()
	dir := filepath.Join(e.outDir, what)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	sent, repeated := 0, 0
	for i, p := range list {
		start := time.Now()
		o := play(p, client, server)
		bad := p.judge(o, client.guest == server.guest)
		for again := 1; len(bad) > 0 && again <= patience && late(o); again++ {
			t.Logf("%s: %s is played again: %q", what, p.name, bad)
			repeated++
			o = play(p, client, server)
			bad = p.judge(o, client.guest == server.guest)
		}
		text := p.report(o, time.Since(start))
		keep(t, dir, i, p, text)
		for _, s := range bad {
			t.Errorf("%s: %s: %s", what, p.name, s)
		}
		if len(bad) > 0 {
			t.Log(tail(text, 60))
		}
		sent += o[0].counted[o[0].device.sent]
		if client.guest != server.guest {
			sent += o[1].counted[o[1].device.sent]
		}
	}
	e.part(t, what, "programs of "+filepath.Base(e.outDir), fmt.Sprintf("%d programs, %d packets, %d repetitions", len(list), sent, repeated), time.Since(begin))
}

// report is all that is known of a program that was played.
func (p tool) report(o [2]outcome, took time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %.1f s\n", p.name, took.Seconds())
	for k, side := range []string{"client: " + p.client, "server: " + p.server} {
		fmt.Fprintf(&b, "--- %s\nstatus %d, %s counted %s\n%s", side, o[k].status, o[k].device.name, o[k].counted.moved(), o[k].output)
	}
	return b.String()
}

// keep leaves the report of the i-th program of a list in a folder.
func keep(t *testing.T, dir string, i int, p tool, text string) {
	t.Helper()
	name := fmt.Sprintf("%02d-%s.txt", i+1, strings.Join(strings.Fields(p.name), "_"))
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Error(err)
	}
}

// TestJudge has one thing wrong at a time.
func TestJudge(t *testing.T) {
	p := chosen(t, tools(1000), "rc_pingpong checked")[0]
	good := func() [2]outcome {
		card := func() tally {
			c := tally{
				"OutRdmaSends": 1000, "InRdmaSends": 1000, "OutRdmaWrites": 0, "InRdmaWrites": 0, "OutRdmaReads": 0, "InRdmaReads": 0,
				"TxUDP": 5000, "RxUDP": 5000, "ip4OutPkts": 5000, "ip4InPkts": 5000,
				"ip4OutOctets": 4000*(1024+44) + 1000*48, "ip4InOctets": 4000*(1024+44) + 1000*48,
			}
			for _, name := range cardDevice.errors {
				c[name] = 0
			}
			return c
		}
		rxe := tally{"sent_pkts": 5000, "rcvd_pkts": 5000}
		for _, name := range rxeDevice.errors {
			rxe[name] = 0
		}
		return [2]outcome{
			{device: cardDevice, output: "8192000 bytes in 0.10 seconds\n1000 iters in 0.10 seconds\n", counted: card()},
			{device: rxeDevice, output: "1000 iters in 0.10 seconds\n", counted: rxe},
		}
	}
	if bad := p.judge(good(), false); len(bad) > 0 {
		t.Errorf("nothing is wrong: %q", bad)
	}
	for what, spoil := range map[string]func(o *[2]outcome){
		"status":        func(o *[2]outcome) { o[1].status = 1 },
		"data":          func(o *[2]outcome) { o[1].output += "invalid data in page 0\n" },
		"not finished":  func(o *[2]outcome) { o[0].output = "" },
		"lost there":    func(o *[2]outcome) { o[1].counted["rcvd_pkts"]-- },
		"lost here":     func(o *[2]outcome) { o[1].counted["sent_pkts"]++ },
		"duplicate":     func(o *[2]outcome) { o[1].counted["duplicate_request"]++ },
		"retransmitted": func(o *[2]outcome) { o[0].counted["RetransSegs"]++ },
		"a message":     func(o *[2]outcome) { o[0].counted["InRdmaSends"]-- },
		"another one":   func(o *[2]outcome) { o[0].counted["OutRdmaReads"]++ },
		"bytes":         func(o *[2]outcome) { o[0].counted["ip4OutOctets"] -= 1 << 20 },
		"IP":            func(o *[2]outcome) { o[0].counted["ip6InPkts"]++ },
		"no counter":    func(o *[2]outcome) { delete(o[1].counted, "send_err") },
	} {
		o := good()
		if spoil(&o); len(p.judge(o, false)) == 0 {
			t.Errorf("%s: nothing is found wrong", what)
		}
	}
}
