// SPDX-License-Identifier: Apache-2.0

package suite

import "fmt"

// pingpong is a case of ibv_rc_pingpong, or of another program, with options that both
// sides have.
func pingpong(name, shows, program, options string) *Case {
	return &Case{Name: name, Shows: shows,
		Server: fmt.Sprintf("%s %s", program, options),
		Script: fmt.Sprintf("%s %s $PEER", program, options),
		Want:   []string{`bytes in .* seconds`}, WantServer: []string{`bytes in .* seconds`},
	}
}

func verbCases() []*Case {
	cases := []*Case{
		pingpong("verbs/rc", "ibv_rc_pingpong, IPv4 GID, every byte compared", "ibv_rc_pingpong", "-g $GID -c"),
		pingpong("verbs/rc-ipv6", "ibv_rc_pingpong, IPv6 GID", "ibv_rc_pingpong", "-g $GID6 -c"),
		pingpong("verbs/rc-link-local", "ibv_rc_pingpong, link-local GID", "ibv_rc_pingpong", "-g $GIDLL -c"),
		pingpong("verbs/rc-events", "ibv_rc_pingpong that sleeps until an interrupt tells of a completion", "ibv_rc_pingpong", "-g $GID -c -e -n 300"),
		pingpong("verbs/rc-1MiB", "ibv_rc_pingpong, messages of 1 MiB", "ibv_rc_pingpong", "-g $GID -c -s 1048576 -n 20"),
		pingpong("verbs/rc-1byte", "ibv_rc_pingpong, messages of one byte", "ibv_rc_pingpong", "-g $GID -c -s 1 -n 300"),
		pingpong("verbs/rc-odd", "ibv_rc_pingpong, messages that fill no packet", "ibv_rc_pingpong", "-g $GID -c -s 12345 -n 100"),
	}
	for _, mtu := range []int{256, 512, 1024, 2048, 4096} {
		c := pingpong(fmt.Sprintf("verbs/rc-mtu-%d", mtu), fmt.Sprintf("ibv_rc_pingpong, path MTU %d", mtu),
			"ibv_rc_pingpong", fmt.Sprintf("-g $GID -c -m %d -s 10000 -n 50", mtu))
		if mtu > 1024 {
			c.Needs.MTU = mtu + 128 // headers
		}
		cases = append(cases, c)
	}
	datagrams := func(name, shows, options string) *Case {
		return pingpong("verbs/ud"+name, "ibv_ud_pingpong, "+shows, "ibv_ud_pingpong", options)
	}
	operations := func(name, shows string) *Case {
		return pythonCase("verbs/"+name, shows, "operations.py "+name, "as it should be")
	}
	return append(cases,
		datagrams("", "IPv4 GID, every byte compared", "-g $GID -c -n 300"),
		datagrams("-ipv6", "IPv6 GID", "-g $GID6 -c -n 100"),
		datagrams("-events", "sleeping until interrupts", "-g $GID -c -e -n 100"),
		datagrams("-1byte", "one byte", "-g $GID -c -s 1 -n 100"),
		operations("immediate", "SEND and WRITE with immediate data"),
		operations("inline", "inline data of 0 to 48 bytes"),
		operations("scatter", "lists of six pieces on either side"),
		operations("unsignaled", "fenced WRITEs behind READs, few of them signaled"),
		operations("resize", "a CQ grows and shrinks while messages come"),
		tagged(),
		counted("write", "ib_write_bw", "RdmaWrites"),
		counted("read", "ib_read_bw", "RdmaReads"),
		counted("send", "ib_send_bw", "RdmaSends"),
		packets(),
	)
}

// tagged is a case of two guests that have addresses in a VLAN for the time.
func tagged() *Case {
	const setup = `
		ip link add link $NET name vlan77 type vlan id 77
		trap 'ip link del vlan77' EXIT
		ip addr add 10.77.0.%[1]d/24 dev vlan77
		ip link set vlan77 up
		until_true 'grep -qs ffff:0a4d:000%[1]d /sys/class/infiniband/$DEV/ports/1/gids/*'
		ibv_rc_pingpong -c -g $(grep -ls ffff:0a4d:000%[1]d /sys/class/infiniband/$DEV/ports/1/gids/* | sed 's,.*/,,') %[2]s`
	return &Case{Name: "verbs/rc-vlan", Shows: "ibv_rc_pingpong between addresses in a VLAN", Needs: Needs{Guests: 2},
		Server: fmt.Sprintf(setup, 2, ""), Script: fmt.Sprintf(setup, 1, "$PEER"), Want: []string{`bytes in .* seconds`}}
}

// counted is a case that looks whether 100 messages are counted as such on either side.
func counted(verb, program, counter string) *Case {
	const look = `before=$(counter %[3]s%[2]s)
		%[1]s -F -x $GID -n 100 -s 4000 %[4]s
		same $(($(counter %[3]s%[2]s)-before)) 100 %[3]s%[2]s`
	return &Case{Name: "verbs/counted-" + verb, Shows: "rdma statistic counts 100 messages of " + program + " on either side",
		Server: fmt.Sprintf(look, program, counter, "In", ""),
		Script: fmt.Sprintf(look, program, counter, "Out", "$PEER"),
	}
}

// packets is a case about packets and what makes them: 100 messages of ten packets.
func packets() *Case {
	return &Case{Name: "verbs/counted-packets", Shows: "rdma statistic counts the packets of 100 messages, and none of them twice",
		Server: `before=$(counter RxUDP)
			ib_write_bw -F -x $GID -n 100 -s 10240 -m 1024
			atleast $(($(counter RxUDP)-before)) 1000 RxUDP`,
		Script: `before=$(counter TxUDP); again=$(counter RetransSegs)
			ib_write_bw -F -x $GID -n 100 -s 10240 -m 1024 $PEER
			atleast $(($(counter TxUDP)-before)) 1000 TxUDP
			same $(counter RetransSegs) $again RetransSegs`,
	}
}
