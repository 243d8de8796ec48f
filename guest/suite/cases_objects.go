// SPDX-License-Identifier: Apache-2.0

package suite

func objectCases() []*Case {
	return []*Case{
		{Name: "objects/device", Shows: "ibv_devinfo: the port is active, its limits are those of an E810",
			Script: `ibv_devinfo -v -d $DEV`,
			Want:   []string{`hca_id:\s+irdma`, `vendor_id:\s+0x8086`, `vendor_part_id:\s+5522`, `state:\s+PORT_ACTIVE`, `link_layer:\s+Ethernet`, `max_sge:\s+13$`, `RoCE v2`}},
		{Name: "objects/link", Shows: "rdma link: active, and on the card's netdev",
			Script: `rdma link show $DEV/1`, Want: []string{`state ACTIVE physical_state LINK_UP netdev \S+`}},
		{Name: "objects/gids", Shows: "the GID table follows the netdev's addresses",
			Script: `
				gids() { cat /sys/class/infiniband/$DEV/ports/1/gids/* 2>/dev/null | grep -c "$1" || true; }
				[ -n "$GID" ] && [ -n "$GID6" ] && [ -n "$GIDLL" ] || fail "GIDs of $ME, $ME6 and link-local: '$GID' '$GID6' '$GIDLL'"
				ip addr add 10.77.0.9/24 dev $NET
				until_true '[ $(gids 0a4d:0009) = 1 ]'
				ip addr del 10.77.0.9/24 dev $NET
				until_true '[ $(gids 0a4d:0009) = 0 ]'`},
		{Name: "objects/idle", Shows: "without programs there is only what the kernel uses itself",
			Script: `
				same "$(count ctx mr cm_id)" "0 0 0 " "contexts, regions, cm_ids"
				rdma resource show qp | grep -q "$DEV/1 lqpn 1 type GSI state RTS"`},
		{Name: "objects/lifetime", Shows: "what a program makes is there while it runs, and no longer",
			Script: `
				before=$(count pd mr cq qp ctx)
				set -- $before; want="$(($3+1)) $(($4+1)) $(($5+1)) "
				ibv_rc_pingpong -g $GID > /tmp/held 2>&1 & held=$!
				until_true 'rdma resource show qp | grep -q "comm ibv_rc_pingpong"'
				same "$(count cq qp ctx)" "$want" "CQs, QPs, contexts"
				pd=$1; mr=$2; set -- $(count pd mr)
				[ $1 -gt $pd ] && [ $2 -gt $mr ] || fail "PDs and MRs: $pd $mr, then $1 $2"
				kill $held; wait $held || true
				until_true '[ "$(count pd mr cq qp ctx)" = "'"$before"'" ]'`},
		{Name: "objects/killed", Shows: "a program that is killed leaves nothing behind",
			Script: `
				before=$(count pd cq qp mr ctx)
				for i in 1 2 3 4; do ibv_rc_pingpong -g $GID -p 1900$i > /dev/null 2>&1 & done
				until_true '[ "$(rdma resource show qp | grep -c "comm ibv_rc_pingpong")" = 4 ]'
				kill -9 $(pidof ibv_rc_pingpong)
				until_true '[ "$(count pd cq qp mr ctx)" = "'"$before"'" ]'`},
		{Name: "objects/turnover", Shows: "forty programs, four at a time, get and give back what they need",
			Script: `
				before=$(count pd cq qp mr ctx)
				for i in $(seq 10); do
					for j in 1 2 3 4; do ibv_rc_pingpong -g $GID -p 1900$j > /dev/null 2>&1 & done
					until_true '[ "$(rdma resource show qp | grep -c "comm ibv_rc_pingpong")" = 4 ]'
					kill $(pidof ibv_rc_pingpong); wait
				done
				same "$(count pd cq qp mr ctx)" "$before" "PDs, CQs, QPs, MRs, contexts"`},
		{Name: "objects/counters", Shows: "rdma statistic: every counter of the port is read without error",
			Script: `
				rdma statistic show link $DEV/1 > /tmp/counters
				atleast $(wc -w < /tmp/counters) 80 "words"
				has InRdmaWrites /tmp/counters && has cnpHandled /tmp/counters
				for c in /sys/class/infiniband/$DEV/ports/1/hw_counters/*; do cat $c > /dev/null; done`},
		{Name: "objects/mtu", Shows: "the port's active MTU follows the netdev's",
			Script: `
				active() { ibv_devinfo -d $DEV | sed -n 's/.*active_mtu:[[:space:]]*\([0-9]*\).*/\1/p'; }
				mtu=$(cat /sys/class/net/$NET/mtu)
				ip link set $NET mtu 9000; until_true '[ "$(active)" = 4096 ]'
				ip link set $NET mtu 1500; until_true '[ "$(active)" = 1024 ]'
				ip link set $NET mtu $mtu`},
		{Name: "objects/reload", Shows: "irdma unloads and loads again, with the same device and GIDs",
			Script: `
				gid=$(cat /sys/class/infiniband/$DEV/ports/1/gids/$GID)
				modprobe -r irdma
				[ ! -e /sys/class/infiniband/$DEV ] || fail "$DEV is still there"
				modprobe irdma
				until_true 'ibv_devinfo -d '$DEV' 2>/dev/null | grep -q PORT_ACTIVE'
				until_true 'grep -q $gid /sys/class/infiniband/$DEV/ports/1/gids/* 2>/dev/null'`},
		{Name: "objects/rebind", Shows: "ice gives the card up and takes it again: netdev and RDMA device come back",
			Script: `
				echo $PCI > /sys/bus/pci/drivers/ice/unbind
				[ ! -e /sys/class/infiniband/$DEV ] || fail "$DEV is still there"
				echo $PCI > /sys/bus/pci/drivers/ice/bind
				until_true 'ibv_devinfo 2>/dev/null | grep -q PORT_ACTIVE'
				until_true 'cat /sys/class/infiniband/*/ports/1/gids/* 2>/dev/null | grep -q ffff:c0a8'`},
	}
}
