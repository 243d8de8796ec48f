// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vrnic/vrnic/guest/launch"
)

func init() {
	for _, k := range worldKernels {
		table = append(table, check{8, "scale-guest-" + k, false,
			"one guest: 1,000 QPs, of scale.py and of 64 processes of ibv_rc_pingpong -e -c; ib_write_bw -q 500; churn.py, three at a time, under ib_write_bw; " + k, scaleGuest(k)})
	}
}

// How many there are at once. The drivers make 1024 at most of what the card
// offers (ctrl.c:irdma_cfg_fpm_val), and use some themselves.
const (
	crowdQPs       = 1000
	crowdProcesses = 64 // each with one of them; one program has the others
	churns         = 3  // programs that come and go with all they have
)

const crowdOfOne = crowdQPs - crowdProcesses

// crowdLibrary has what a shell needs to start many programs.
const crowdLibrary = networkLibrary + `
echo 60 > /proc/sys/kernel/hung_task_timeout_secs
first=20000
many() {
	rm -f /tmp/stop /tmp/rounds /tmp/connected
	python3 scale.py $1 > /tmp/traffic 2>&1 & traffic=$!
	n=0
	until [ -e /tmp/connected ]; do
		n=$((n+1)); [ $n -lt 3000 ] && kill -0 $traffic 2> /dev/null || { echo "FAILED: not connected"; cat /tmp/traffic; return; }
		sleep 0.1
	done
}
# crowd: so many servers, and a client each, all at once
crowd() {
	pids= count=$1
	for i in $(seq $count); do
		ibv_rc_pingpong -g $gid4 -e -c -n $2 -p $((first + i)) > /tmp/s$i 2>&1 & pids="$pids $!"
	done
	n=0
	until [ $(cat /proc/net/tcp /proc/net/tcp6 | grep -ic ': *[0-9A-F]*:4E[0-9A-F][0-9A-F] [0-9A-F:]* 0A ') = $count ]; do
		n=$((n+1)); [ $n -lt 1200 ] || { echo "FAILED: of $count servers not all listen"; cat /tmp/s[0-9]* | sort | uniq -c; return; }
		sleep 0.1
	done
	for i in $(seq $count); do
		ibv_rc_pingpong -g $gid4 -e -c -n $2 -p $((first + i)) $self > /tmp/c$i 2>&1 & pids="$pids $!"
	done
}
together() {
	n=0
	until [ $(rdma resource show qp | grep -c 'state RTS.*ibv_rc_pingpong') = $1 ]; do
		n=$((n+1)); [ $n -lt 600 ] || { echo "FAILED: of $1 queue pairs: $(rdma resource show qp | grep -c 'state RTS.*ibv_rc_pingpong')"; tail -n 1 /tmp/s1 /tmp/c1; return; }
		sleep 0.1
	done
}
crowded() {
	for p in $pids; do wait $p || echo "FAILED: a pingpong ended with $?"; done
	grep -l "^$1 iters in" /tmp/s[0-9]* /tmp/c[0-9]* | wc -l
	grep -h -i 'invalid\|fail\|could' /tmp/s[0-9]* /tmp/c[0-9]*
	rm -f /tmp/s[0-9]* /tmp/c[0-9]*
}
load() {
	ib_write_bw -F -D 900 -x $gid4 > /tmp/server 2>&1 & server=$!
	n=0
	until tcp; do
		n=$((n+1)); [ $n -lt 600 ] || { echo "FAILED: nobody listens"; cat /tmp/server; return; }
		sleep 0.1
	done
	ib_write_bw -F -D 900 -x $gid4 $self > /tmp/client 2>&1 & client=$!
}
unload() {
	kill -0 $client 2> /dev/null || { echo "FAILED: ib_write_bw has ended"; cat /tmp/client /tmp/server; }
	{ kill -9 $client $server; wait $client $server; } 2> /dev/null
}
churn() {
	pids=
	for i in $(seq $1); do python3 churn.py $2 $i > /tmp/churn$i 2>&1 & pids="$pids $!"; done
}
churned() {
	for p in $pids; do wait $p || echo "FAILED: churn.py ended with $?"; done
	cat /tmp/churn[0-9]*
}
`

// scaleGuest has a crowd in one guest.
func scaleGuest(kernel string) func(*testing.T, *env) {
	return func(t *testing.T, e *env) {
		s := startServer(t, e, 1)
		c := withPrograms(t, numbered(guestConfig(t, e, kernel, s.sockets), 1))
		c.MemoryMiB, c.BootTimeout = 2048, 5*time.Minute
		m := newMachine(t, e, s, bootAll(t, []launch.Config{c})[0], crowdLibrary)
		m.names(1, 1)
		idle, kept := holds(t, e, s.control, 0), m.do("rdma resource show")
		for _, part := range []struct {
			name, command string
			run           func(*machine) string
		}{
			{"many", fmt.Sprintf("python3 scale.py %d beside %d × ibv_rc_pingpong -e -c", crowdOfOne/2, crowdProcesses), (*machine).many},
			{"perftest", fmt.Sprintf("ib_write_bw -q %d, both ends", crowdQPs/2), (*machine).manyOfPerftest},
			{"churn", fmt.Sprintf("%d × python3 churn.py beside ib_write_bw", churns), (*machine).churn},
		} {
			t.Run(part.name, func(t *testing.T) {
				m.t = t
				m.do(fmt.Sprintf("echo '%s%s' > /dev/kmsg", logMark, part.name))
				begin := time.Now()
				said := part.run(m)
				// Pages of the host memory cache that queue pairs once had stay the driver's.
				for end := time.Now().Add(time.Minute); ; {
					now := holds(t, e, s.control, 0)
					now.segments, now.pages = idle.segments, idle.pages
					left := m.do("rdma resource show")
					if now == idle && left == kept {
						break
					}
					if time.Now().After(end) {
						t.Errorf("the card holds %+v, at first %+v; the kernel %q, at first %q", now, idle, left, kept)
						break
					}
				}
				e.part(t, part.name, part.command, said, time.Since(begin))
			})
			m.t = t
		}
		m.end()
		wantCleanLog(t, e.kernelLog())
		wantQuietCard(t, filepath.Join(e.outDir, "serve.log"))
	}
}

// many has queue pairs of one program, and of many.
func (m *machine) many() string {
	const each = 1000 // round trips of a pingpong
	m.quiet(fmt.Sprintf("many %d && goes 1", crowdOfOne/2))
	m.quiet(fmt.Sprintf("crowd %d %d && together %d", crowdProcesses/2, each, crowdProcesses))
	peak := holds(m.t, m.e, m.server.control, 0)
	if peak.qps < crowdQPs {
		m.t.Errorf("the card has %d queue pairs, want %d at least", peak.qps, crowdQPs)
	}
	m.quiet("goes 1")
	if got, want := m.ask(fmt.Sprintf("crowded %d", each)), fmt.Sprintln(crowdProcesses); got != want {
		m.t.Errorf("the pingpongs: %q, want %q", got, want)
	}
	m.quiet("goes 1; touch /tmp/stop")
	text := m.do("ended")
	var end struct {
		QueuePairs int `json:"queue_pairs"`
		Rounds     int
		Seconds    float64
	}
	if err := json.Unmarshal([]byte(text), &end); err != nil || end.QueuePairs != crowdOfOne {
		m.t.Errorf("scale.py: %v\n%s", err, text)
	}
	return fmt.Sprintf("%+v at the peak; %d queue pairs connected after %.1f s, %d rounds verified", peak, end.QueuePairs, end.Seconds, end.Rounds)
}

// manyOfPerftest has as many queue pairs, driven by two processes.
func (m *machine) manyOfPerftest() string {
	const n = 50
	command := fmt.Sprintf("ib_write_bw -F -u 18 -s 4096 -q %d -n %d -x $gid4", crowdQPs/2, n)
	m.quiet("serve tcp '" + command + "'")
	for _, end := range []string{m.do("ask '" + command + " $self'"), m.do("served")} {
		if status, out := ended(m.t, end); status != 0 || verdicts.MatchString(out) {
			m.t.Errorf("ib_write_bw: %s", end)
		} else if !strings.Contains(out, fmt.Sprint(" ", crowdQPs/2*n, " ")) {
			m.t.Errorf("ib_write_bw does not say %d: %s", crowdQPs/2*n, end)
		}
	}
	return fmt.Sprintf("%d writes", crowdQPs/2*n)
}

// churn has programs make and end what they have, under load.
func (m *machine) churn() string {
	const lasts = 60 // seconds
	m.quiet(fmt.Sprintf("load; churn %d %d", churns, lasts))
	out := m.ask("churned")
	m.quiet("unload")
	sum := map[string]int{}
	for line := range strings.Lines(out) {
		var did map[string]int
		if err := json.Unmarshal([]byte(line), &did); err != nil {
			m.t.Fatalf("churn.py: %v\n%s", err, out)
		}
		for what, n := range did {
			sum[what] += n
		}
	}
	for _, what := range []string{"cells", "writes", "queue pairs ended", "regions ended", "handles ended", "datagrams"} {
		if sum[what] < 10*churns {
			m.t.Errorf("%d %s, want %d at least", sum[what], what, 10*churns)
		}
	}
	return fmt.Sprint(sum)
}
