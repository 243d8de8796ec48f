// SPDX-License-Identifier: Apache-2.0

package suite

import "fmt"

// perftest is a case of perftest's programs, whose report has a line that begins with
// this message size.
func perftest(name, shows, program, options string, size int) *Case {
	return &Case{Name: "tools/" + name, Shows: program + ": " + shows,
		Server: fmt.Sprintf("%s -F -x $GID %s", program, options),
		Script: fmt.Sprintf("%s -F -x $GID %s $PEER", program, options),
		Want:   []string{fmt.Sprintf(`^ ?%d\s+\d+\s`, size)},
	}
}

func toolCases() (out []*Case) {
	for _, verb := range []string{"write", "read", "send"} {
		bw := "ib_" + verb + "_bw"
		out = append(out,
			perftest(verb+"-bw", "64 KiB", bw, "-n 50", 65536),
			perftest(verb+"-bw-all", "every size from 2 bytes to 8 MiB", bw, "-a -n 5", 8<<20),
			perftest(verb+"-bw-qps", "8 QPs", bw, "-q 8 -n 20", 65536),
			perftest(verb+"-bw-both", "both ways at once", bw, "-b -n 50", 65536),
			perftest(verb+"-lat", "2 bytes", "ib_"+verb+"_lat", "-n 100", 2),
		)
	}
	list := []*Case{
		perftest("write-bw-ipv6", "IPv6 GID", "ib_write_bw", "-n 20", 65536),
		perftest("write-bw-cm", "connected by rdma_cm", "ib_write_bw", "-R -n 20", 65536),
		perftest("read-bw-events", "sleeping until interrupts", "ib_read_bw", "-e -n 20", 65536),
		perftest("send-bw-ud", "datagrams of 1 KiB", "ib_send_bw", "-c UD -s 1024 -n 100", 1024),
		perftest("send-lat-ud", "datagrams of 64 bytes", "ib_send_lat", "-c UD -s 64 -n 50", 64),
		perftest("write-bw-mtu", "path MTU 4096", "ib_write_bw", "-m 4096 -n 20", 65536),
		{Name: "tools/atomic", Shows: "ibv_devinfo: the card has no atomic operations", // ib_atomic_bw listens all the same
			Script: `ibv_devinfo -v`, Want: []string{`atomic_cap:\s+ATOMIC_NONE`}},
	}
	list[0].Server = "ib_write_bw -F -x $GID6 -n 20"
	list[0].Script = list[0].Server + " $PEER"
	list[5].Needs.MTU = 4096 + 128
	return append(out, list...)
}
