// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vrnic/vrnic/guest/launch"
)

var soakTime = flag.Duration("soak", 15*time.Minute, "how long 8/soak goes on")

func init() {
	table = append(table, check{8, "soak", false, "15 minutes of soak.py, programs in turn and TCP; two guests, one with --iommu; --impair loss=1%,reorder=1%,corrupt=0.1%,duplicate=1%", soak})
}

// soakLibrary has what shells need that soak.
const soakLibrary = `
cd /root/guest
rm -f /tmp/stop /tmp/soaked
soaked() { cat /tmp/soaked 2> /dev/null || echo 0; }
begin() { python3 soak.py "$@" > /tmp/soak 2>&1 & soak=$!; }
awaits() {
	begin $self
	n=0
	until cat /proc/net/tcp6 | grep -q ':4855 [0-9A-F:]* 0A '; do
		n=$((n+1)); [ $n -lt 600 ] && kill -0 $soak 2> /dev/null || { echo "FAILED: nobody waits"; cat /tmp/soak; return; }
		sleep 0.1
	done
}
lives() { ! over $soak || { echo "FAILED: soak.py has ended"; cat /tmp/soak; }; }
dried() { wait $soak || echo "FAILED: $?"; cat /tmp/soak; }
`

// soakEnd is what soak.py says at its end.
type soakEnd struct{ Sent, Received, Read, Datagrams, Came, Different int }

// Bounds of what may come and go.
const (
	soakGrowth  = 8 << 20 // bytes
	soakSlack   = 4       // goroutines: questions that are being answered, a message's
	soakWarming = time.Minute
)

// soakPrograms are those that are played in turn beside soak.py.
var soakPrograms = []string{
	"rc_pingpong checked", "rping", "write_bw -b", "rc_pingpong MTU 4096 IPv6", "send_bw", "ucmatose", "read_bw -q 8",
	"rc_pingpong IPv6 events", "rping 6", "write_bw -q 8", "send_lat", "read_bw -b",
}

// soak is a long time of everything at once.
func soak(t *testing.T, e *env) {
	const impairment = "loss=1%,reorder=1%,corrupt=0.1%,duplicate=1%,seed=15"
	p := bootLossy(t, e, "debian-backports", func(i int, c *launch.Config) {
		*c = withPrograms(t, *c)
		c.IOMMU = i == 1
	})
	for _, s := range p.sides {
		s.do(soakLibrary)
	}
	a, b := p.sides[0], p.sides[1]
	list := chosen(t, tools(50), soakPrograms...)
	playAll(t, e, "before", list[:2], a, b)
	objects, idle, open := p.left(), p.server.usage(t), p.server.open(t)

	p.impair(impairment)
	b.quiet("awaits")
	a.quiet("begin $self $peer6")
	begin := time.Now()
	var seen []soakSample
	played, repeated, moved := 0, 0, 0.0
	for time.Since(begin) < *soakTime && !t.Failed() {
		i := played % len(list)
		repeated += p.soakProgram(list[i], i)
		played++
		if i == len(list)-1 {
			transfer(a.machine, b.machine, "192.168.77.2")
			transfer(b.machine, a.machine, "192.168.77.1")
			moved += 2 * 16 << 20
		}
		seen = append(seen, p.sample(time.Since(begin)))
		a.quiet("lives")
		b.quiet("lives")
	}
	writeSamples(t, filepath.Join(e.outDir, "usage.txt"), seen)

	a.quiet("touch /tmp/stop")
	ends := [2]soakEnd{decoded[soakEnd](t, a.do("dried")), decoded[soakEnd](t, b.do("dried"))}
	took := time.Since(begin)
	f := p.fate()
	p.impair()
	for i, x := range ends {
		y := ends[1-i]
		if x.Sent != y.Received || x.Sent == 0 || x.Read == 0 {
			t.Errorf("%d messages sent, %d received, %d read", x.Sent, y.Received, x.Read)
		}
		// Datagrams are lost, by chance or for their checksum, and there are programs
		// that have much to send: but most come.
		if y.Different > x.Datagrams || float64(y.Different) < 0.9*float64(x.Datagrams) {
			t.Errorf("%d datagrams sent, %d different ones received", x.Datagrams, y.Different)
		}
	}
	if f.Overflow != 0 || f.Lost == 0 || f.Reordered == 0 || f.Corrupted == 0 || f.Duplicated == 0 {
		t.Errorf("impairment: %+v", f)
	}
	growth := soakMemory(seen)
	if growth > soakGrowth {
		t.Errorf("memory has grown by %d KiB, want %d at most", growth>>10, soakGrowth>>10)
	}
	most := 0
	for _, s := range seen {
		most = max(most, s.goroutines)
		if s.descriptors > idle.descriptors+soakSlack {
			t.Errorf("%d descriptors after %v, %d before", s.descriptors, s.at.Round(time.Second), idle.descriptors)
			break
		}
	}
	if most > idle.goroutines+soakSlack {
		t.Errorf("%d goroutines, %d before", most, idle.goroutines)
	}
	p.wantLeft(objects)
	// The first time that a guest takes memory from the card while it is in use,
	// somebody is hired to wait for the end of that, for as long as the guest lives.
	// A card's fine timer, which holds a descriptor and somebody who reads it, is
	// made for the first interrupt that is held back.
	allowed := idle
	allowed.goroutines += 2 * len(p.sides)
	allowed.descriptors += len(p.sides)
	if now := p.server.within(t, allowed); now.descriptors > allowed.descriptors || now.goroutines > allowed.goroutines {
		t.Errorf("in the end %d descriptors and %d goroutines, before %d and %d\nbefore: %q\nnow:    %q",
			now.descriptors, now.goroutines, idle.descriptors, idle.goroutines, open, p.server.open(t))
	}
	playAll(t, e, "after", list[:2], a, b)
	p.end()
	e.part(t, "soak", "soak.py", fmt.Sprintf("%v: %d messages, %d reads, %d of %d datagrams; %d programs (%d once more), %.0f MiB of TCP; of %d frames %d lost, %d late, %d damaged, %d twice; memory %+d KiB, goroutines at most %d, idle %d",
		took.Round(time.Second), ends[0].Received+ends[1].Received, ends[0].Read+ends[1].Read, ends[0].Different+ends[1].Different, ends[0].Datagrams+ends[1].Datagrams,
		played, repeated, moved/(1<<20), f.Frames, f.Lost, f.Reordered, f.Corrupted, f.Duplicated, growth>>10, most, idle.goroutines), took)
}

// soakProgram plays a program beside the rest, whose messages are counted with its
// own. It returns how often it had to be repeated.
func (p *lossy) soakProgram(x tool, i int) (again int) {
	p.t.Helper()
	start := time.Now()
	for ; ; again++ {
		o := playUntil(x, p.sides[0], p.sides[1], func([2]outcome) bool { return true })
		bad := x.said(o)
		if len(bad) > 0 && x.unanswered(o) && again < patience {
			continue
		}
		for _, s := range bad {
			p.t.Errorf("%s: %s", x.name, s)
		}
		text := x.report(o, time.Since(start))
		if len(bad) > 0 {
			p.t.Log(tail(text, 60))
		}
		keep(p.t, p.e.outDir, i, x, text)
		return again
	}
}

// soakSample is what the serving process holds at a time.
type soakSample struct {
	usage
	at time.Duration
	// own is the memory in bytes that is not the guests': that of them which the
	// cards have touched counts as the process's, too.
	own int
}

func (p *lossy) sample(at time.Duration) soakSample {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.server.pid))
	if err != nil {
		p.t.Fatal(err)
	}
	s := soakSample{usage: p.server.usage(p.t), at: at}
	for _, name := range []string{"RssAnon", "RssFile"} {
		m := regexp.MustCompile(`(?m)^` + name + `:\s+(\d+) kB$`).FindSubmatch(text)
		if m == nil {
			p.t.Fatalf("no %s in\n%s", name, text)
		}
		n, err := strconv.Atoi(string(m[1]))
		if err != nil {
			p.t.Fatal(err)
		}
		s.own += n << 10
	}
	return s
}

// soakMemory is by how much memory has grown from the first half to the second of
// the time after the warm-up: by the least of each. What a queue on the wire and
// garbage take for a moment comes and goes; what is lost stays.
func soakMemory(seen []soakSample) int {
	if len(seen) == 0 {
		return 0
	}
	end := seen[len(seen)-1].at
	warm := min(soakWarming, end/4)
	var halves [2][]int
	for _, s := range seen {
		switch {
		case s.at < warm:
		case s.at < (warm+end)/2:
			halves[0] = append(halves[0], s.own)
		default:
			halves[1] = append(halves[1], s.own)
		}
	}
	if len(halves[0]) == 0 || len(halves[1]) == 0 {
		return 0
	}
	return slices.Min(halves[1]) - slices.Min(halves[0])
}

func writeSamples(t *testing.T, path string, seen []soakSample) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintln(&b, "seconds  own KiB  resident KiB  descriptors  goroutines")
	for _, s := range seen {
		fmt.Fprintf(&b, "%7.0f  %7d  %12d  %11d  %10d\n", s.at.Seconds(), s.own>>10, s.resident>>10, s.descriptors, s.goroutines)
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Error(err)
	}
}

// TestSoakMemory: what grows is found, and the garbage of a moment is not.
func TestSoakMemory(t *testing.T) {
	var flat, grows []soakSample
	for i := range 300 {
		s := soakSample{at: time.Duration(i) * 3 * time.Second, own: 40<<20 + i%40*(4<<20)} // a queue fills and is emptied
		flat = append(flat, s)
		s.own += i * (1 << 17)
		grows = append(grows, s)
	}
	if g := soakMemory(flat); g > soakGrowth {
		t.Errorf("flat: %d", g)
	}
	if g := soakMemory(grows); g <= soakGrowth {
		t.Errorf("grows by 128 KiB in 3 s: %d", g)
	}
}
