// SPDX-License-Identifier: Apache-2.0

// Package suite is what "vrnic test" runs in guests: named cases, each a few lines of
// shell, or of Python with pyverbs, for the stock programs of the guest.
//
// It has two halves. In each guest runs a runner ([Serve], the vrnic binary again),
// which starts what it is told to, in a process group and within a limit of its own,
// and keeps an eye on the kernel's log. On the host [Run] goes through the cases,
// tells the runners, judges, and writes KTAP while it goes (package ktap). The two
// speak JSON lines over the runner's stdin and stdout. Cases are data that both
// halves have, so only their names are sent.
//
// A case that needs somebody to talk to has two scripts. With two guests the
// server's runs in the second one, else both run in the same.
//
// # Traps
//
//   - A script is given the shell functions of library, in the file of that name, and
//     an environment that [Serve] looks up anew for every script: a case may reload
//     the drivers.
//   - A server's output through a pipe is buffered until it ends: whether it is ready
//     is told by what listens, or by Case.Ready, never by what it prints.
//   - Cases of a group run in their order, on what the former ones left: each has to
//     leave the guest as it found it.
package suite

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// Groups are the groups of cases in the order in which they run.
var groups = []string{"objects", "regions", "verbs", "errors", "cm", "tools"}

// hidden are groups that only patterns which name them select: the suite's own test.
var hidden = []string{"self", "panic"}

// Case is one thing to be shown.
type Case struct {
	Name  string // GROUP/NAME
	Shows string // in one line
	Needs Needs

	Script string // for sh, behind library
	// Server is a second script: it is started first and should end when Script
	// does. Empty: none.
	Server string
	// Ready is a shell condition, true when the server can be talked to. Empty:
	// when something new listens (TCP, UDP, RDMA-CM).
	Ready string
	// ServerStays: it does not end by itself, and is told to.
	ServerStays bool

	Want       []string      // regular expressions that Script's output matches
	WantServer []string      // and Server's
	Limit      time.Duration // of each script; 0: defaultLimit
}

// defaultLimit is generous: an emulated guest on a busy machine is slow.
const defaultLimit = 3 * time.Minute

func (c *Case) limit() time.Duration {
	if c.Limit == 0 {
		return defaultLimit
	}
	return c.Limit
}

// Group is the part of the name that cases of a kind share.
func (c *Case) Group() string {
	group, _, _ := strings.Cut(c.Name, "/")
	return group
}

// Short is the name within the group.
func (c *Case) Short() string {
	_, short, _ := strings.Cut(c.Name, "/")
	return short
}

// Needs is what a case cannot do without. What is missing is the reason for which it
// is skipped; only Pyverbs is for whoever boots the guests.
type Needs struct {
	Guests  int  // 2: a guest on the other side; 0: no matter
	MTU     int  // of the netdevs, at least
	Pyverbs bool // the image of that name
}

// missing says what c lacks; empty: nothing.
func (n Needs) missing(guests, mtu int) string {
	switch {
	case n.Guests > guests:
		return "needs --guests 2"
	case n.MTU > mtu:
		return fmt.Sprintf("needs --mtu %d", n.MTU)
	}
	return ""
}

// Select returns the cases that any of the patterns matches, in their order; all if
// there are none. A pattern is that of path.Match for the whole name; one without a
// slash is the name of a group.
func Select(patterns ...string) ([]*Case, error) {
	all := cases()
	used := make([]bool, len(patterns))
	var out []*Case
	for _, c := range all {
		isHidden := slices.Contains(hidden, c.Group())
		take := len(patterns) == 0 && !isHidden
		for i, p := range patterns {
			group, _, slash := strings.Cut(p, "/")
			if !slash {
				p += "/*"
			}
			ok, err := path.Match(p, c.Name)
			if err != nil {
				return nil, fmt.Errorf("pattern %q: %w", patterns[i], err)
			}
			if ok && (!isHidden || group == c.Group()) {
				take, used[i] = true, true
			}
		}
		if take {
			out = append(out, c)
		}
	}
	if i := slices.Index(used, false); i >= 0 {
		return nil, fmt.Errorf("pattern %q: no case has such a name (the groups are %s; --list lists all)", patterns[i], strings.Join(groups, ", "))
	}
	return out, nil
}

// find returns the case of that name.
func find(name string) (*Case, bool) {
	all := cases()
	i := slices.IndexFunc(all, func(c *Case) bool { return c.Name == name })
	if i < 0 {
		return nil, false
	}
	return all[i], true
}

// cases are all there are.
func cases() []*Case {
	return slices.Concat(objectCases(), regionCases(), verbCases(), errorCases(), cmCases(), toolCases(), selfCases())
}
