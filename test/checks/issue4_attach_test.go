// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// trafficScript binds the card, as byHandScript does, and then has programs talk
// through it until somebody ends the guest. A port is active before the kernel has
// seen that nobody else has its link-local address (flags 80: permanent, no longer
// tentative); until then nothing resolves it, and no queue pair goes to RTR.
const trafficScript = pingpongListens + `
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
modprobe ice; modprobe irdma; modprobe ib_uverbs
ip link set lo up
for n in /sys/class/net/e*; do ip link set $(basename $n) up; done
n=0; until ibv_devinfo 2>/dev/null | grep -q PORT_ACTIVE || [ $n -ge 200 ]; do n=$((n+1)); sleep 0.1; done
ibv_devinfo | grep state
until grep -q '^fe80.* 20 80 ' /proc/net/if_inet6; do sleep 0.1; done
ibv_rc_pingpong -g 0 -n 100000000 > /tmp/s 2>&1 &
listening
ibv_rc_pingpong -g 0 -n 100000000 localhost > /tmp/c 2>&1 &
until [ $(rdma resource show qp | grep -c 'state RTS.*ibv_rc_pingpong') = 2 ]; do sleep 0.1; done
echo "traf""fic"
`

// usage is what a process holds, the goroutines as it says itself.
type usage struct {
	descriptors, goroutines int
	resident                int // bytes
}

func (s *server) usage(t *testing.T) usage {
	t.Helper()
	dir := filepath.Join("/proc", strconv.Itoa(s.pid))
	fds, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		t.Fatal(err)
	}
	statm, err := os.ReadFile(filepath.Join(dir, "statm"))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(statm))[1])
	if err != nil {
		t.Fatal(err)
	}
	return usage{len(fds), goroutines(t, s.control), pages * os.Getpagesize()}
}

// open is what the process has open, by the names that the kernel gives it.
func (s *server) open(t *testing.T) (names []string) {
	t.Helper()
	links, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(s.pid), "fd", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if name, err := os.Readlink(l); err == nil { // else it has been closed since
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// settled waits until the usage is what it was but for memory, and returns it.
func (s *server) settled(t *testing.T, want usage) usage {
	t.Helper()
	return s.settles(t, func(u usage) bool { return u.descriptors == want.descriptors && u.goroutines == want.goroutines })
}

// within waits until the usage is at most what it was but for memory, and returns it.
func (s *server) within(t *testing.T, most usage) usage {
	t.Helper()
	return s.settles(t, func(u usage) bool { return u.descriptors <= most.descriptors && u.goroutines <= most.goroutines })
}

func (s *server) settles(t *testing.T, good func(usage) bool) usage {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) { // the kernel tells it of a killed client when it can
		if u := s.usage(t); good(u) || time.Now().After(end) {
			return u
		}
	}
}

// live lets a guest go on for a while, or to its end.
func (g *handGuest) live(d time.Duration) {
	over := time.NewTimer(d)
	defer over.Stop()
	for {
		select {
		case _, alive := <-g.line:
			if !alive {
				return
			}
		case <-over.C:
			return
		}
	}
}

// mayGrow is how much memory a process may have gained and still be called flat.
const mayGrow = 16 << 20

// reattach kills QEMU at random moments of its life with the card, and boots a
// new one on the same card each time.
func reattach(t *testing.T, e *env) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 4))
	s := startServer(t, e, 1)
	arguments := s.arguments(t, s.sockets[0])

	// boot starts a guest and lets it reach its traffic.
	boot := func() *handGuest {
		t.Helper()
		g := startByHand(t, e, arguments, trafficScript)
		out, err := g.await("\ntraffic\r\n", 3*time.Minute)
		if err != nil || !strings.Contains(out, active) {
			t.Fatalf("%v\n%s", err, tail(out, 60))
		}
		return g
	}
	begin := time.Now()
	g := boot()
	life := time.Since(begin)
	g.live(10 * time.Second) // what "flat" is measured after
	g.kill()
	before := usage{}
	before = s.settled(t, s.usage(t))

	n := repeat(20)
	for range n {
		// One that dies in the middle of anything, one that has to work.
		moment := time.Duration(rnd.Int64N(int64(life)))
		g := startByHand(t, e, arguments, trafficScript)
		g.live(moment)
		g.kill()
		g = boot()
		g.live(time.Duration(rnd.Int64N(int64(time.Second))))
		g.kill()
	}
	after := s.settled(t, before)
	if after.descriptors != before.descriptors || after.goroutines != before.goroutines || after.resident-before.resident > mayGrow {
		t.Errorf("vrnic serve was at %+v, and is at %+v after %d guests", before, after, 2*n)
	}
	e.part(t, "reattach", "SIGKILL to QEMU", fmt.Sprintf("%d guests killed at a random moment, %d from traffic; %+v before, %+v after", n, n+1, before, after), time.Since(begin))
	if err := s.stop(); err != nil {
		t.Errorf("vrnic serve: %v", err)
	}
	wantQuietCard(t, filepath.Join(e.outDir, "serve.log"))
}

// iommuOn runs programs behind a virtual IOMMU: every address that the driver
// hands to the card is the IOMMU's, mapped and unmapped as the driver goes.
func iommuOn(kernel string) func(*testing.T, *env) {
	return func(t *testing.T, e *env) {
		script := pingpongScript + `
d=$(ls -d /sys/bus/pci/drivers/ice/0*)
echo "group $(cat $d/iommu_group/type) of $(basename $(readlink -f $d/iommu))"
ibv_devinfo
` + "pp -g 1 -c\npp -g 1 -s 1048576 -n 20 -c\npp -g 1 -e\n"
		r := e.guest(t, "", "-k", kernel, "--iommu", "--timeout", "5m", "--", "sh", "-c", script)
		wantDevinfo(t, r)
		r.wantStdout(t, "group DMA of dmar", "passed: -g 1 -c", "passed: -g 1 -s 1048576 -n 20 -c", "passed: -g 1 -e")
		wantCleanLog(t, e.kernelLog())
	}
}

// notShared gives the guest memory that the card cannot see.
func notShared(t *testing.T, e *env) {
	const shared = "memory-backend-memfd,id=mem0,size=1G,share=on"
	for name, object := range map[string]string{
		"memfd": "memory-backend-memfd,id=mem0,size=1G,share=off",
		"ram":   "memory-backend-ram,id=mem0,size=1G",
	} {
		t.Run(name, func(t *testing.T) {
			ce := *e
			ce.outDir = filepath.Join(e.outDir, name)
			if err := os.MkdirAll(ce.outDir, 0o755); err != nil {
				t.Fatal(err)
			}
			s := startServer(t, &ce, 1)
			arguments := s.arguments(t, s.sockets[0])
			if !strings.Contains(arguments, shared) {
				t.Fatalf("no %s in %s", shared, arguments)
			}
			out, err := byHand(t, e, strings.Replace(arguments, shared, object, 1),
				`mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; modprobe ice; dmesg | grep ice; poweroff -f`)
			if err != nil {
				t.Errorf("%v\n%s", err, tail(out, 60))
			}
			if err := s.stop(); err != nil {
				t.Errorf("vrnic serve: %v", err)
			}
			log, err := os.ReadFile(filepath.Join(ce.outDir, "serve.log"))
			if err != nil {
				t.Fatal(err)
			}
			var complaints []string
			for line := range strings.Lines(string(log)) {
				if strings.Contains(line, "[ERROR]") || strings.Contains(line, "[WARN]") {
					complaints = append(complaints, line)
				}
			}
			if len(complaints) != 1 || !strings.Contains(complaints[0], "[ERROR]") || !strings.Contains(complaints[0], "share=on") {
				t.Errorf("want one error that says what to do; vrnic serve said %q\n%s", complaints, tail(out, 40))
			}
		})
	}
}
