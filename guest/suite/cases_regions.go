// SPDX-License-Identifier: Apache-2.0

package suite

import "fmt"

// pythonCase is a case of one of the suite's Python programs, whose two sides say end.
// They find each other, whoever is first.
func pythonCase(name, shows, program, end string) *Case {
	return &Case{Name: name, Shows: shows, Needs: Needs{Pyverbs: true},
		Server: fmt.Sprintf("python3 $LIB/%s", program),
		Ready:  "true",
		Script: fmt.Sprintf("python3 $LIB/%s $PEER", program),
		Want:   []string{"^" + end + "$"}, WantServer: []string{"^" + end + "$"},
	}
}

func regionCases() []*Case {
	region := func(kind, shows string) *Case {
		return pythonCase("regions/"+kind, "WRITE and READ of "+shows+", every byte compared", "regions.py "+kind, "the memories are equal")
	}
	huge := region("huge", "a region of 2 MiB pages")
	const reserve = `echo 8 > /proc/sys/vm/nr_hugepages; [ $(cat /proc/sys/vm/nr_hugepages) -ge 8 ] || skip "no huge pages"
	`
	huge.Server, huge.Script = reserve+huge.Server, reserve+huge.Script
	return []*Case{
		{Name: "regions/listed", Shows: "rdma resource lists a program's regions with their lengths",
			Script: `
				ibv_rc_pingpong -g $GID -s 1048576 > /dev/null 2>&1 & held=$!
				until_true 'rdma resource show qp | grep -q "comm ibv_rc_pingpong"'
				rdma resource show mr
				kill $held`,
			Want: []string{`mrlen 1048576 .*comm ibv_rc_pingpong`}},
		region("page", "one page"),
		region("list", "a region of 256 pages that lie apart, by a list of them"),
		region("long-list", "a region of 12288 pages that lie apart, by a list of lists"),
		region("shared", "a region of shared memory"),
		huge,
		pythonCase("regions/many", "a hundred regions at once, each with a key of its own, all gone afterwards", "operations.py many", "as it should be"),
		{Name: "regions/gone", Shows: "of all the regions before nothing is left",
			Script: `until_true '[ "$(count mr)" = "0 " ]'`},
	}
}
