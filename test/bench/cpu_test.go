// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// maxIdle is what an idle card may cost, of a CPU.
const maxIdle = 1.0 // per cent

// ticks is how finely the kernel tells the time of processes (USER_HZ, which is
// part of its interface).
const ticks = 100

// processor is how long a process has run, in seconds.
func processor(t *testing.T, pid int) float64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	// The name, in parentheses, may contain anything.
	f := strings.Fields(string(b)[strings.LastIndexByte(string(b), ')')+1:])
	sum := 0
	for _, s := range f[11:13] { // utime, stime: fields 14 and 15 of all
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("/proc/%d/stat: %v", pid, err)
		}
		sum += n
	}
	return float64(sum) / ticks
}

// idle is what the cards cost while their drivers have nothing to do.
func (p *pair) idle(t *testing.T) []figure {
	t.Helper()
	const interval = 10 * time.Second
	var s samples
	for range rounds {
		before, began := processor(t, p.server.cmd.Process.Pid), time.Now()
		time.Sleep(interval) // this is the time that is measured
		used := processor(t, p.server.cmd.Process.Pid) - before
		s = append(s, 100*used/time.Since(began).Seconds()/float64(len(p.guests)))
	}
	return []figure{{name: "CPU of an idle card", unit: "%", samples: s, bound: bound{atMost: maxIdle}}}
}

// costs is what traffic costs vrnic, of a CPU.
func (p *pair) costs(t *testing.T) (list []figure) {
	t.Helper()
	for _, x := range programs() {
		if x.waits || x.alone || x.size < 4<<10 {
			continue
		}
		x.run(t, p) // how many are enough
		var s samples
		for range rounds {
			before := processor(t, p.server.cmd.Process.Pid)
			o := x.run(t, p)
			used := processor(t, p.server.cmd.Process.Pid) - before
			s = append(s, 100*used/(8e-9*float64(o.count)*float64(x.size)))
		}
		list = append(list, figure{name: "CPU of vrnic per Gbit/s, " + x.name, unit: "%", samples: s})
	}
	return list
}
