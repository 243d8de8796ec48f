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
	return cases
}
