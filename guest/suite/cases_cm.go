// SPDX-License-Identifier: Apache-2.0

package suite

// cm is a case of a program of librdmacm's, whose server listens with the connection
// manager.
func cm(name, shows, server, client string, want ...string) *Case {
	return &Case{Name: "cm/" + name, Shows: shows, Server: server, Script: client, Want: want}
}

// ends is what programs of librdmacm's examples say at the end.
const ends = `return status 0`

func cmCases() []*Case {
	// To an IPv4 group: the kernel lets nobody join those of IPv6 on RoCEv2
	// (drivers/infiniband/core/cma.c:cma_iboe_join_multicast).
	multicast := cm("multicast", "mckey: datagrams to an IPv4 group", "mckey -m 239.1.2.3 -b $ME -C 5", "mckey -m 239.1.2.3 -b $ME -C 5 -s", ends)
	// It does not listen. Once its QP is there it joins at once.
	multicast.Ready = `rdma resource show qp | grep -q 'comm mckey' && sleep 1.5`
	multicast.WantServer = []string{`receiving data transfers`, ends}
	rping := func(name, shows, options string) *Case {
		c := cm(name, shows, "rping -s -V "+options, "rping -c -V "+options)
		c.WantServer = []string{`server DISCONNECT EVENT`}
		return c
	}
	rstream := cm("rstream", "rsockets: rstream, both ways", "rstream", "rstream -s $PEER -S 65536 -C 10", `64k`)
	rstream.ServerStays = true
	ucmatose := cm("ucmatose", "ucmatose: 8 connections at once, with disconnects", "ucmatose -c 8", "ucmatose -c 8 -s $PEER", `data transfers complete`, ends)
	ucmatose.WantServer = []string{`^disconnected`, ends}
	return []*Case{
		rping("rping", "rping: SEND, READ and WRITE over rdma_cm, data compared", "-C 20 -a $PEER"),
		rping("rping-ipv6", "rping over IPv6", "-C 10 -a $PEER6"),
		rping("rping-large", "rping with messages of 60000 bytes", "-C 10 -S 60000 -a $PEER"),
		ucmatose,
		cm("ucmatose-ipv6", "ucmatose over IPv6", "ucmatose -f ipv6 -b $PEER6", "ucmatose -f ipv6 -s $PEER6", ends),
		cm("udaddy", "udaddy: datagrams both ways, addresses resolved by rdma_cm", "udaddy", "udaddy -s $PEER", `data transfers complete`, ends),
		cm("udaddy-many", "udaddy: 4 QPs, messages of 1000 bytes", "udaddy -c 4 -S 1000", "udaddy -c 4 -S 1000 -s $PEER", `data transfers complete`, ends),
		cm("rdma-client", "rdma_client and rdma_server: rdma_getaddrinfo and one message each way", "rdma_server", "rdma_client -s $PEER", `rdma_client: end 0`),
		multicast,
		cm("refused", "a connection to a port on which nobody listens is rejected", "ucmatose", `
			ucmatose -s $PEER -p 7999 > /tmp/refused 2>&1 && fail "it succeeded"
			has 'REJECTED' /tmp/refused
			ucmatose -s $PEER`, ends),
		rstream,
		{Name: "cm/gone", Shows: "of all the connections before nothing is left",
			Script: `until_true '[ "$(count cm_id ctx mr)" = "0 0 0 " ]'`},
	}
}
