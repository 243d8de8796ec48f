// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vrnic/vrnic/guest/launch"
	"github.com/vrnic/vrnic/guest/wire"
)

func init() {
	table = append(table,
		check{5, "resets-iperf3-debian-12", false, "FLR, CORER, GLOBR, rmmod under iperf3, debian-12", resetsUnderIperf("debian-12")},
		check{5, "resets-iperf3-debian-13", false, "FLR, CORER, GLOBR, rmmod under iperf3, debian-13", resetsUnderIperf("debian-13")},
		check{5, "resets-iperf3-debian-backports", false, "FLR, CORER, GLOBR, rmmod under iperf3, debian-backports", resetsUnderIperf("debian-backports")},
	)
}

// guestAt describes the guest with card i of the server and that address.
func guestAt(t *testing.T, e *env, server *server, name string, i int, kernel, address string) launch.Config {
	t.Helper()
	c := smallGuest(t, e, name, kernel, server.sockets[i:i+1])
	c.BootTimeout = 5 * time.Minute // of a busy machine
	c.Guest.Nets = []wire.Net{{Addresses: []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr(address), 24)}}}
	return c
}

// iperfLibrary runs one iperf3 between two guests; both ends report every
// interval as a line.
const iperfLibrary = `
serve_iperf() {
	iperf3 -s -1 --json-stream --forceflush -i 0.5 > /tmp/iperf 2>&1 & i=$!
	n=0
	until cat /proc/net/tcp /proc/net/tcp6 | grep -q ':1451 [0-9A-F:]* 0A '; do
		n=$((n+1)); [ $n -lt 400 ] || { echo "FAILED: no iperf3 server: $(cat /tmp/iperf)"; return; }
		sleep 0.05
	done
}
run_iperf() { iperf3 --json-stream --forceflush -i 0.5 "$@" > /tmp/iperf 2>&1 & i=$!; }
intervals() { grep -c '"event":"interval"' /tmp/iperf; }
after() {
	n=0
	until [ $(intervals) -ge $1 ]; do
		n=$((n+1)); [ $n -lt 400 ] || { echo "FAILED: no traffic: $(tail -n 3 /tmp/iperf)"; return; }
		sleep 0.05
	done
}
# An iperf3 that has reported everything and closed its connections sometimes
# waits for a thread of its own for ever.
end_iperf() {
	n=0
	while kill -0 $i 2>/dev/null; do
		n=$((n+1)); [ $n -lt 600 ] || { echo "FAILED: iperf3 does not end: $(tail -n 3 /tmp/iperf)"; kill -9 $i; return; }
		[ $n -lt 20 ] || ! grep -q '"event":"end"' /tmp/iperf || { kill -9 $i; wait $i; return; }
		sleep 0.1
	done
	wait $i || echo "FAILED: iperf3 ended with $?: $(tail -n 3 /tmp/iperf)"
}
# A packet's transmit queue is the CPU's own or, as after a reset, chosen by a
# hash of what one ping has and another has not.
ping_from_all() {
	for cpu in $(seq 0 $(($(nproc) - 1))) $(seq 0 $(($(nproc) - 1))) $(seq 0 $(($(nproc) - 1))) $(seq 0 $(($(nproc) - 1))); do
		taskset $((1 << cpu)) ping -c 1 -W 5 $1 > /tmp/ping || echo "FAILED: $(cat /tmp/ping)"
	done
}
`

// interval is one line of an iperf3's report: of what its end has received.
type interval struct {
	Start, End float64 // seconds
	Bytes      uint64
	Sender     bool // of what it has sent
}

// intervals reads the report of one end.
func intervals(report string) (list []interval, err error) {
	for line := range strings.Lines(report) {
		var e struct {
			Event string
			Data  json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return nil, fmt.Errorf("%w: %.200s", err, line)
		}
		if e.Event != "interval" {
			continue
		}
		var sums struct {
			Sum     interval
			Reverse interval `json:"sum_bidir_reverse"`
		}
		if err := json.Unmarshal(e.Data, &sums); err != nil {
			return nil, fmt.Errorf("%w: %.200s", err, line)
		}
		if sums.Sum.Sender {
			sums.Sum = sums.Reverse
		}
		list = append(list, sums.Sum)
	}
	if n := len(list) - 1; n > 0 && list[n].length() < list[0].length()/2 {
		list = list[:n] // the rest of a server's time, after the client's end
	}
	return list, nil
}

// outage is for how long nothing came after the first n intervals: the longest
// such time. Traffic has not resumed if hardly anything came after it.
func outage(list []interval, n int) (seconds float64, err error) {
	const enough = 3 // intervals
	if n > len(list) || n > 0 && !slices.ContainsFunc(list[:n], interval.some) {
		return 0, fmt.Errorf("no traffic before: %+v", list)
	}
	from, left := -1, 0
	for i, v := range list[n:] {
		switch {
		case v.some():
			from = -1
			left++
			continue
		case from < 0:
			from = n + i
		}
		if gap := v.End - list[from].Start; gap > seconds {
			seconds, left = gap, 0
		}
	}
	if left < enough {
		return seconds, fmt.Errorf("traffic does not resume: %d intervals with traffic after a gap of %.1f s: %+v", left, seconds, list)
	}
	return seconds, nil
}

func (i interval) some() bool      { return i.Bytes > 0 }
func (i interval) length() float64 { return i.End - i.Start }

// underIperf are the resets of issue 4 that are made under iperf3.
var underIperf = []string{"flr", "corer", "globr", "reload"}

// resumesWithin is how long traffic may stand still, the peers' waits between
// their attempts included.
const resumesWithin = 20 // seconds

// How long an iperf3 runs: TCP tries again only after as long as it has waited.
// One with new connections has nothing to wait for.
const lasts, lastsAnew = 30, 5 // seconds

// resetsUnderIperf resets the card of one of two guests while TCP runs both ways
// between them. The connections go on, but for a driver that is loaded again:
// then the netdev is another one, with the address again, and new ones work.
func resetsUnderIperf(kernel string) func(*testing.T, *env) {
	return func(t *testing.T, e *env) {
		const at, to = "192.168.77.1", "192.168.77.2"
		server := startServer(t, e, 2)
		configs := []launch.Config{guestAt(t, e, server, "guest", 0, kernel, at), guestAt(t, e, server, "peer", 1, kernel, to)}
		configs[0].CPUs = 2 // that a reset meets a driver at work on both
		guests := bootAll(t, configs)
		bugs := driverBugs(t)
		m := newMachine(t, e, server, guests[0], resetLibrary+iperfLibrary)
		peer := newMachine(t, e, server, guests[1], iperfLibrary)
		for _, name := range underIperf {
			c := resetCases[slices.IndexFunc(resetCases, func(c resetCase) bool { return c.name == name })]
			n, nudge := repeat(3), instead(bugs, kernel, name, "iperf3") == pinged
			ok := t.Run(name, func(t *testing.T) {
				m.t, peer.t = t, t
				begin, worst := time.Now(), 0.0
				for i := range n {
					m.do(fmt.Sprintf("echo '%s%s, round %d' > /dev/kmsg", logMark, name, i+1))
					worst = max(worst, m.underIperf(c, peer, to, nudge))
					if t.Failed() {
						t.Fatalf("round %d of %d", i+1, n)
					}
				}
				how := c.how()
				if nudge {
					how += "; " + pinged
				}
				e.part(t, name, how, fmt.Sprintf("%d rounds, nothing came for %.1f s at most", n, worst), time.Since(begin))
			})
			m.t, peer.t = t, t
			if !ok {
				break // what follows would tell about this
			}
		}
		for i, g := range guests {
			if err := g.Close(); err != nil {
				t.Errorf("power off: %v", err)
			}
			wantCleanLog(t, filepath.Join(configs[i].Artifacts, "kernel.log"))
		}
		if err := server.stop(); err != nil {
			t.Errorf("vrnic serve: %v", err)
		}
		wantQuietCard(t, filepath.Join(e.outDir, "serve.log"))
	}
}

// ask is do for commands that may report a failure.
func (m *machine) ask(script string) string {
	m.t.Helper()
	out := m.do(script)
	if strings.Contains(out, "FAILED") {
		m.t.Error(out)
	}
	return out
}

// underIperf is one reset, with a ping from every CPU after it or without. It
// returns for how long nothing came.
func (m *machine) underIperf(c resetCase, peer *machine, to string, nudge bool) (seconds float64) {
	m.t.Helper()
	m.ask("old=$(ibdev)")
	if peer.ask("serve_iperf"); m.t.Failed() {
		return 0
	}
	m.ask(fmt.Sprintf("run_iperf -t %d --bidir -c %s; after 3", lasts, to))
	ends := []*machine{m, peer}
	before := make([]int, len(ends))
	for i, end := range ends {
		n, err := strconv.Atoi(strings.TrimSpace(end.do("intervals")))
		if err != nil {
			m.t.Fatal(err)
		}
		before[i] = n
	}
	if c.ctl != "" {
		m.ctl("reset", c.ctl)
	} else {
		m.ask("{ " + c.guest + "; } || echo FAILED: status $?")
	}
	m.ask(fmt.Sprintf("active $(($(cut -d. -f1 /proc/uptime) + %d))", int(activeWithin.Seconds())))
	if nudge {
		m.ask("ping_from_all " + to)
	}
	if c.name == "reload" {
		for _, end := range ends {
			end.do("kill -9 $i; wait $i")
		}
		if peer.ask("serve_iperf"); m.t.Failed() {
			return 0
		}
		m.ask(fmt.Sprintf("run_iperf -t %d --bidir -c %s", lastsAnew, to))
		clear(before)
	}
	for i, end := range ends {
		end.ask("end_iperf")
		list, err := intervals(end.do("cat /tmp/iperf"))
		var gap float64
		if err == nil {
			gap, err = outage(list, before[i])
		}
		if err == nil && gap > resumesWithin {
			err = fmt.Errorf("nothing came for %.1f s: %+v", gap, list)
		}
		if err != nil {
			m.t.Errorf("%s: %v", []string{"guest", "peer"}[i], err)
		}
		seconds = max(seconds, gap)
	}
	return seconds
}

// TestOutage: what is measured of a report.
func TestOutage(t *testing.T) {
	line := func(event string, start float64, sent, got int) string {
		return fmt.Sprintf(`{"event":"%s","data":{"sum":{"start":%v,"end":%v,"bytes":%d,"sender":true},"sum_bidir_reverse":{"start":%v,"end":%v,"bytes":%d,"sender":false}}}`+"\n",
			event, start, start+1, sent, start, start+1, got)
	}
	report := func(got ...int) (text string) {
		for i, n := range got {
			text += line("interval", float64(i), 1, n)
		}
		return text + line("end", 0, 1, 1)
	}
	for name, tc := range map[string]struct {
		got     []int
		before  int
		seconds float64
		resumes bool
	}{
		"no gap":            {[]int{5, 5, 5, 5}, 1, 0, true},
		"a gap":             {[]int{5, 5, 0, 0, 5, 5, 5}, 2, 2, true},
		"the longest":       {[]int{5, 0, 5, 0, 0, 0, 5, 5, 5}, 1, 3, true},
		"never again":       {[]int{5, 5, 5, 5, 0, 0}, 1, 2, false},
		"hardly":            {[]int{5, 5, 0, 5, 5}, 2, 1, false},
		"nothing before":    {[]int{0, 5, 5, 5}, 1, 0, false},
		"all that came":     {[]int{0, 5, 5, 5}, 0, 1, true},
		"no interval after": {[]int{5, 5}, 2, 0, false},
	} {
		list, err := intervals(report(tc.got...))
		if err != nil || len(list) != len(tc.got) {
			t.Fatalf("%s: %d intervals, %v", name, len(list), err)
		}
		if seconds, err := outage(list, tc.before); seconds != tc.seconds || (err == nil) != tc.resumes {
			t.Errorf("%s: %.1f s, %v", name, seconds, err)
		}
	}
	rest := report(5, 5, 5, 5) + `{"event":"interval","data":{"sum":{"start":4,"end":4.03,"bytes":0,"sender":false}}}` + "\n"
	if list, err := intervals(rest); err != nil || len(list) != 4 {
		t.Errorf("with a rest: %+v, %v", list, err)
	}
	if _, err := intervals("iperf3: error - unable to connect\n"); err == nil {
		t.Error("an error was taken for a report")
	}
}
