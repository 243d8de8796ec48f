// SPDX-License-Identifier: Apache-2.0

package suite

import "time"

// selfCases end in every way a case can end; only patterns "self/…" and "panic/…" select
// them.
func selfCases() []*Case {
	return []*Case{
		{Name: "self/pass", Shows: "a case that passes", Script: "echo works $DEV $NET $ME", Want: []string{"^works irdma"}},
		{Name: "self/fail", Shows: "a case that fails", Script: `echo "not ok 1 what a program prints"; false`},
		{Name: "self/mismatch", Shows: "a case whose output is another one", Script: "echo this", Want: []string{"^that$"}},
		{Name: "self/skip", Shows: "a case that cannot show anything", Script: `skip "because of #1"`},
		{Name: "self/slow", Shows: "a case that takes too long, with a child that does not want to end", Limit: time.Second,
			Script: "(trap '' TERM; sleep 1000) & sleep 1000"},
		{Name: "self/server-stays", Shows: "a server that does not end", Server: "nc -l -p 5009", Script: "true"},
		{Name: "self/server-fails", Shows: "a server that ends at once", Server: "exit 3", Script: "true"},
		{Name: "self/nothing-stays", Shows: "nothing of the ones before still runs",
			Script: `pidof sleep nc && fail "it does"; true`},
		{Name: "self/kernel-warns", Shows: "a kernel that is not well",
			Script: `printf '<4>WARNING: CPU: 0 PID: 1 at the/suite.c:1 itself\n' > /dev/kmsg`},
		{Name: "panic/now", Shows: "a kernel that ends", Script: "echo c > /proc/sysrq-trigger"},
	}
}
