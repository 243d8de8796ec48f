// SPDX-License-Identifier: Apache-2.0

package suite

// library is before every script. The environment has
//
//	DEV, NET, PCI  the card's RDMA device, netdev and PCI address
//	ME, ME6        the guest's own addresses
//	PEER, PEER6    the addresses that Server's guest has
//	GID, GID6      the indexes of ME and ME6 in DEV's GID table, GIDLL that of the link-local one
//	LIB            a directory with the Python modules of the suite
const library = `
set -eu
fail() { echo "FAILED: $*"; exit 1; }
skip() { echo "SKIP: $*"; exit 77; }
same() { [ "$1" = "$2" ] || fail "$3: $1, want $2"; }
atleast() { [ "$1" -ge "$2" ] || fail "$3: $1, want at least $2"; }
has() { grep -q "$1" "$2" || { cat "$2"; fail "no $1"; }; }
# counter NAME: of the port, with the names of 6.1, too (verbs.c:irdma_hw_stat_descs)
counter() {
	for name in $1 iw$1 tcp$1; do
		[ ! -e /sys/class/infiniband/$DEV/ports/1/hw_counters/$name ] || { cat /sys/class/infiniband/$DEV/ports/1/hw_counters/$name; return; }
	done
	fail "no counter $1"
}
# count KIND...: how many objects of these kinds the RDMA core knows on the card
count() {
	rdma resource show > /tmp/count
	for kind; do sed -n "s/^[0-9]*: $DEV: .*\b$kind \([0-9]*\).*/\1/p" /tmp/count; done | tr '\n' ' '
}
until_true() {
	n=0
	until eval "$1"; do
		n=$((n+1)); [ $n -lt ${2:-1000} ] || fail "does not become true: $1"
		sleep 0.05
	done
}
`

// skipped is the status by which a script says that it cannot show anything here; its
// last line, after skipMark, says why.
const (
	skipped  = 77
	skipMark = "SKIP: "
)
