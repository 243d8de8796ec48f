// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vrnic/vrnic/guest/launch"
)

// program is one of perftest's, or rping.
type program struct {
	name   string
	verb   string         // write, read or send; empty: rping
	size   int            // bytes
	waits  bool           // its figure is a time, not a rate
	alone  bool           // in one guest, not two
	bound  bound          // of vrnic's figure over rxe's
	counts map[string]int // by pair: how many messages to send next time
}

// programs are those that are compared.
func programs() (list []*program) {
	promised := map[int]float64{64: minTiny, 4 << 10: minPage, 64 << 10: minLarge, 1 << 20: minLarge}
	verbs := []string{"write", "read", "send"}
	for _, verb := range verbs {
		for _, size := range []int{64, 4 << 10, 64 << 10, 1 << 20} {
			list = append(list, &program{name: fmt.Sprintf("ib_%s_bw, %s", verb, sizeText(size)), verb: verb, size: size, bound: bound{atLeast: promised[size]}})
		}
	}
	for _, verb := range verbs {
		list = append(list, &program{name: fmt.Sprintf("ib_%s_lat, 64 B", verb), verb: verb, size: 64, waits: true, bound: bound{atMost: maxWait}})
	}
	list = append(list, &program{name: "rping", size: 64, waits: true, bound: bound{atMost: maxRping}})
	for _, verb := range verbs {
		list = append(list, &program{name: fmt.Sprintf("ib_%s_bw, 64 KiB, one guest", verb), verb: verb, size: 64 << 10, alone: true, bound: bound{atLeast: minAlone}})
	}
	for _, p := range list {
		p.counts = map[string]int{}
	}
	return list
}

func sizeText(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// compare measures the program in both pairs, in turns.
func (p *program) compare(t *testing.T, pairs []*pair, mtu string) []figure {
	t.Helper()
	s := inTurns(t, pairs, func(t *testing.T, at *pair) float64 { return p.run(t, at).figure })
	name, unit := p.name+", MTU "+mtu, "MiB/s"
	if p.waits {
		unit = "µs"
	}
	return append(perPair(name, unit, pairs, s),
		figure{name: name + ", vrnic / rxe", unit: "ratio", samples: s[vrnicPair].over(s[rxePair]), bound: p.bound})
}

// runFor is how long a program is to run, without its beginning and end.
const runFor = 1.0 // seconds

// outcome is what a program told.
type outcome struct {
	figure  float64
	count   int
	seconds float64 // from the first message to the last
}

// rdmaDevice sets shell variables: the device, and the GID index of its IPv4 address.
const rdmaDevice = `
ib=$(ls /sys/class/infiniband)
gid=$(grep -ls 0000:0000:0000:0000:0000:ffff:c0a8:4d /sys/class/infiniband/$ib/ports/1/gids/* | sed 's,.*/,,' | sort -n | tail -n 1)
`

// run measures once.
func (p *program) run(t *testing.T, at *pair) outcome {
	t.Helper()
	client, server, peer := at.guests[0], at.guests[1], address(1).Addr().String()
	if p.alone {
		server, peer = client, address(0).Addr().String()
	}
	n := p.counts[at.name]
	if n == 0 {
		if n = max(20, min(500, 2<<20/p.size)); p.waits {
			n = 100
		}
	}
	asServer, asClient := fmt.Sprintf("rping -s -C %d", n), fmt.Sprintf("rping -c -C %d -a %s", n, peer)
	if p.verb != "" {
		asServer = fmt.Sprintf("ib_%s_bw -F -N -x $gid -s %d -n %d", p.verb, p.size, n)
		if p.waits {
			asServer = fmt.Sprintf("ib_%s_lat -F -x $gid -s %d -n %d", p.verb, p.size, n)
		}
		asClient = asServer + " " + peer
	}
	said := new(bytes.Buffer)
	s, err := server.Start(launch.Command{Argv: []string{"sh", "-ec", rdmaDevice + "exec " + asServer}, Stdout: said, Stderr: said, AwaitListen: time.Minute})
	if err != nil {
		t.Fatalf("%s on %s: %v", p.name, at.name, err)
	}
	<-s.Listening()
	text := inGuest(t, client, "sh", "-ec", rdmaDevice+"read begin rest < /proc/uptime\n"+asClient+"\nread end rest < /proc/uptime; echo; echo took $begin $end")
	if r, err := s.Wait(t.Context(), guestLimit); err != nil || r.Status != 0 {
		t.Fatalf("the server of %s on %s: %+v, %v\n%s", p.name, at.name, r, err, said)
	}
	o := p.parse(t, text, n)
	t.Logf("%s on %s: %d in %.2f s: %s", p.name, at.name, n, o.seconds, number(o.figure))
	p.counts[at.name] = max(20, min(200_000, int(float64(n)*runFor/max(o.seconds, 0.005))))
	return o
}

var tookLine = regexp.MustCompile(`(?m)^took ([0-9.]+) ([0-9.]+)$`)

func (p *program) parse(t *testing.T, text string, n int) outcome {
	t.Helper()
	value := func(s string) float64 {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Fatalf("%s: %v\n%s", p.name, err, text)
		}
		return v
	}
	if p.verb == "" {
		m := tookLine.FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("%s:\n%s", p.name, text)
		}
		seconds := value(m[2]) - value(m[1])
		return outcome{seconds / float64(n) * 1e6, n, seconds}
	}
	m := regexp.MustCompile(fmt.Sprintf(`(?m)^ *%d +%d +(.*)$`, p.size, n)).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("%s:\n%s", p.name, text)
	}
	f := strings.Fields(m[1])
	if p.waits { // min, max, typical, average
		rounds := 2.0
		if p.verb == "read" {
			rounds = 1
		}
		return outcome{value(f[2]), n, value(f[3]) * rounds * float64(n) / 1e6}
	}
	rate := value(f[1]) // peak, average
	if rate == 0 {
		t.Fatalf("%s: a rate of nothing\n%s", p.name, text)
	}
	return outcome{rate, n, float64(p.size) * float64(n) / (rate * (1 << 20))}
}
