// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// resetCase is one way to reset a card under its drivers. Exactly one of guest,
// ctl and button says how.
type resetCase struct {
	name   string
	guest  string // shell commands
	ctl    string // kind of global reset, from outside
	button bool   // system_reset: the whole guest
	only   []string
}

var resetCases = []resetCase{
	{name: "flr", guest: `echo 1 > $P/reset`},
	{name: "rebind", guest: `echo $DEV > /sys/bus/pci/drivers/ice/unbind; echo $DEV > /sys/bus/pci/drivers/ice/bind`},
	{name: "reload", guest: `rmmod irdma && rmmod ice && modprobe ice && modprobe irdma`},
	{name: "devlink", guest: `devlink dev reload pci/$DEV`, only: []string{"debian-13", "debian-backports"}},
	{name: "ethtool-all", guest: `ethtool --reset $NET all`, only: []string{"debian-backports"}},
	{name: "ethtool-pfr", guest: `ethtool --reset $NET irq dma filter offload`, only: []string{"debian-backports"}},
	{name: "ethtool-corer", guest: `ethtool --reset $NET irq-shared dma-shared filter-shared offload-shared ram-shared`, only: []string{"debian-backports"}},
	{name: "ethtool-globr", guest: `ethtool --reset $NET irq-shared dma-shared filter-shared offload-shared ram-shared mac-shared phy-shared`, only: []string{"debian-backports"}},
	{name: "corer", ctl: "corer"},
	{name: "globr", ctl: "globr"},
	{name: "empr", ctl: "empr"},
	{name: "system_reset", button: true},
}

func (c resetCase) how() string {
	switch {
	case c.button:
		return "QMP system_reset"
	case c.ctl != "":
		return "vrnic ctl reset " + c.ctl
	}
	return c.guest
}

// driverBug is a reset that a stock kernel's own bug forbids under traffic, or
// that leaves a driver that others would not work with.
type driverBug struct {
	Kernels []string `json:"kernels"`
	Cases   []string `json:"cases"`
	Traffic string   `json:"traffic"` // during the reset: "" for pingpong, or "iperf3"
	Instead string   `json:"instead"` // what runs
	Reason  string   `json:"reason"`  // the driver's line or commit
}

// What runs instead is the case itself all the same, with one of these changes;
// any other text names other cases.
const (
	withoutTraffic = "without traffic"                         // no queue pair is active
	boundAnew      = "the driver is bound anew after the case" // what follows meets a fresh one
	pinged         = "a ping from every CPU follows"           // every transmit queue gets something to send
)

// instead tells what runs in the place of a case: "" for the case as it is.
func instead(bugs []driverBug, kernel, name, traffic string) string {
	i := slices.IndexFunc(bugs, func(b driverBug) bool {
		return b.Traffic == traffic && slices.Contains(b.Kernels, kernel) && slices.Contains(b.Cases, name)
	})
	if i < 0 {
		return ""
	}
	return bugs[i].Instead
}

func driverBugs(t *testing.T) []driverBug {
	t.Helper()
	b, err := os.ReadFile("driver-bugs.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []driverBug
	if err := json.Unmarshal(b, &list); err != nil {
		t.Fatalf("driver-bugs.json: %v", err)
	}
	for _, l := range list {
		if l.Reason == "" || l.Instead == "" || len(l.Kernels) == 0 || len(l.Cases) == 0 {
			t.Errorf("driver-bugs.json: %+v", l)
		}
		for _, name := range l.Cases {
			if !slices.ContainsFunc(resetCases, func(c resetCase) bool { return c.name == name }) {
				t.Errorf("driver-bugs.json: there is no case %q", name)
			}
		}
	}
	return list
}

// resetLibrary is what the guest's shell does around a reset. A verbs device
// that was made again is told from the old one by its inode in sysfs.
const resetLibrary = pingpongListens + `
echo 30 > /proc/sys/kernel/hung_task_timeout_secs
DEV=$(basename $(ls -d /sys/bus/pci/drivers/ice/0*)) P=/sys/bus/pci/devices/$DEV NET=$(ls $P/net)
ibdev() { ls -diL /sys/class/infiniband/*/ 2>/dev/null; }
# traffic: two programs, their queue pairs in RTS.
traffic() {
	ibv_rc_pingpong -g 1 -n 1000000 > /tmp/s1 2>&1 & s=$!
	listening || { echo "FAILED: no server: $(cat /tmp/s1)"; return; }
	ibv_rc_pingpong -g 1 -n 1000000 localhost > /tmp/c1 2>&1 & c=$!
	n=0
	until [ $(rdma resource show qp | grep -c 'state RTS.*ibv_rc_pingpong') = 2 ]; do
		n=$((n+1)); [ $n -lt 200 ] || { echo "FAILED: no traffic: $(cat /tmp/s1 /tmp/c1)"; return; }
		sleep 0.05
	done
	sleep $1 # a moment within the traffic, not a wait for anything
}
running() { kill -0 $s 2>/dev/null || kill -0 $c 2>/dev/null; }
# rdma-core has no notice of a reset but the flushed completions: a program
# that has none would poll for ever.
ended() {
	n=0
	while running; do
		n=$((n+1))
		[ $n != 50 ] || { echo "killed after 5 s"; kill -9 $s $c; }
		[ $n -lt 150 ] || { echo "FAILED: a killed program does not end"; return; }
		sleep 0.1
	done
	wait $s; a=$?
	wait $c; echo "ended with $a and $?"
	! grep -q 'bytes in' /tmp/c1 || echo "FAILED: the traffic had ended before"
}
active() {
	until new=$(ibdev); [ -n "$new" ] && [ "$new" != "$old" ] && ibv_devinfo 2>/dev/null | grep -q PORT_ACTIVE; do
		[ $(cut -d. -f1 /proc/uptime) -lt $1 ] || { echo "FAILED: no PORT_ACTIVE: $(ibv_devinfo 2>&1)"; return; }
		sleep 0.1
	done
}
fresh() {
	ibv_rc_pingpong -g 1 -n 100 -c > /tmp/s2 2>&1 & f=$!
	listening || { echo "FAILED: no fresh server: $(cat /tmp/s2)"; return; }
	timeout 30 ibv_rc_pingpong -g 1 -n 100 -c localhost > /tmp/c2 2>&1 && wait $f && return
	kill -9 $f 2>/dev/null; echo "FAILED: fresh pingpong: $(cat /tmp/s2 /tmp/c2)"
}
`

// activeWithin is how soon the port must be active again.
const activeWithin = 20 * time.Second

// resetsOn resets one guest's card in every way, many times, while programs
// talk to each other through it.
func resetsOn(kernel string) func(*testing.T, *env) {
	return func(t *testing.T, e *env) {
		m := bootMachine(t, e, kernel, resetLibrary)
		idle := m.objects()
		bugs := driverBugs(t)
		for _, c := range resetCases {
			if c.only != nil && !slices.Contains(c.only, kernel) {
				continue
			}
			instead := instead(bugs, kernel, c.name, "")
			if !slices.Contains([]string{"", withoutTraffic, boundAnew}, instead) {
				continue
			}
			n := repeat(rounds(kernel))
			ok := t.Run(c.name, func(t *testing.T) {
				m.t = t
				begin, slowest, killed := time.Now(), time.Duration(0), 0
				for i := range n {
					m.do(fmt.Sprintf("echo '%s%s, round %d' > /dev/kmsg", logMark, c.name, i+1))
					took, alive := m.round(c, instead != withoutTraffic, i)
					slowest = max(slowest, took)
					if alive {
						killed++
					}
					if t.Failed() {
						t.Fatalf("round %d of %d", i+1, n)
					}
				}
				took := time.Since(begin)
				e.part(t, c.name, c.how(), fmt.Sprintf("%d × %.1f s, PORT_ACTIVE after %.1f s at most, programs killed in %d rounds",
					n, took.Seconds()/float64(n), slowest.Seconds(), killed), took)
			})
			m.t = t
			if !ok {
				break // what follows would tell about this
			}
			if instead == boundAnew {
				rebind := slices.IndexFunc(resetCases, func(c resetCase) bool { return c.name == "rebind" })
				m.round(resetCases[rebind], false, 0)
			}
		}
		if left := m.objects(); len(left.qps) != len(idle.qps) || left.cqs != idle.cqs || len(left.stags) != len(idle.stags) {
			t.Errorf("the card holds %v, at first %v", left, idle)
		}
		m.end()
		wantCleanLog(t, e.kernelLog())
		wantQuietCard(t, filepath.Join(e.outDir, "serve.log"))
	}
}

// rounds is how often each reset is made: 50 times on the kernel that drivers
// are written for, 20 times on the older ones.
func rounds(kernel string) int {
	if kernel == "debian-backports" {
		return 50
	}
	return 20
}

// round is one reset; it returns how long the port was away, and whether the
// programs had to be killed.
func (m *machine) round(c resetCase, traffic bool, i int) (away time.Duration, killed bool) {
	m.t.Helper()
	ask := func(script string) string {
		m.t.Helper()
		out := m.do(script)
		if strings.Contains(out, "FAILED") {
			m.t.Error(out)
		}
		return out
	}
	ask("old=$(ibdev)")
	if traffic {
		ask(fmt.Sprintf("traffic 0.%d", i%4))
	}
	if m.t.Failed() {
		return 0, false
	}
	begin := time.Now()
	switch {
	case c.button:
		m.reset()
		// The time is the driver's to come up, not the firmware's to boot.
		begin = time.Now()
		m.do("old=")
	case c.ctl != "":
		m.ctl("reset", c.ctl)
	default:
		if ask("{ " + c.guest + "; } || echo FAILED: status $?"); m.t.Failed() {
			return 0, false
		}
	}
	ask(fmt.Sprintf("active $(($(cut -d. -f1 /proc/uptime) + %d))", int(activeWithin.Seconds())))
	away = time.Since(begin)
	if away > activeWithin {
		m.t.Errorf("PORT_ACTIVE again after %v, more than %v", away, activeWithin)
	}
	if traffic && !c.button {
		killed = strings.Contains(ask("ended"), "killed")
	}
	ask("fresh")
	return away, killed
}
