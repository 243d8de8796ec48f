// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"os"
	"path/filepath"
	"strings"
	"time"
)

// sockets are what the guest may be reached by. The kernel announces none of
// them, so they are looked at again and again.
type sockets struct {
	procNet string          // /proc/net, or a copy of its shape in tests
	rdma    func() []string // identifies the listening RDMA-CM ids; nil: none
}

func guestSockets() sockets { return sockets{procNet: "/proc/net", rdma: listeningCMIDs} }

// listenPoll is how often to look. It costs a look at four short files.
const listenPoll = 50 * time.Millisecond

// awaitNew waits until something listens that is not in before; it reports false
// after the limit, and when ended is closed.
func (s sockets) awaitNew(before map[string]bool, limit time.Duration, ended <-chan struct{}) bool {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(listenPoll)
	defer tick.Stop()
	for {
		for id := range s.listening() {
			if !before[id] {
				return true
			}
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return false
		case <-ended:
			return false
		}
	}
}

// The tables of sockets, and the state of one that waits for whoever comes
// (net/ipv4/tcp_ipv4.c:get_tcp4_sock; net/ipv4/udp.c:udp4_format_sock: a bound
// socket that is not connected shows as TCP_CLOSE).
var socketTables = [...]struct{ name, state string }{
	{"tcp", "0A"}, {"tcp6", "0A"}, {"udp", "07"}, {"udp6", "07"},
}

// rocePort is bound by every software RoCE device, for itself (drivers/infiniband/sw/rxe:
// ROCE_V2_UDP_DPORT, 4791).
const rocePort = ":12B7"

// listening identifies everything that listens.
func (s sockets) listening() map[string]bool {
	all := make(map[string]bool)
	for _, t := range socketTables {
		b, err := os.ReadFile(filepath.Join(s.procNet, t.name))
		if err != nil {
			continue // a kernel without IPv6
		}
		for line := range strings.Lines(string(b)) {
			// slot, local and remote address, state, queues, timer,
			// retransmits, user, timeout, inode
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != t.state || strings.HasPrefix(t.name, "udp") && strings.HasSuffix(f[1], rocePort) {
				continue
			}
			all[t.name+" "+f[1]+" "+f[9]] = true
		}
	}
	if s.rdma != nil {
		for _, id := range s.rdma() {
			all["rdma "+id] = true
		}
	}
	return all
}

// Listeners are what listened in this guest at some time, as the agent sees it. It
// is for programs of ours that run in a guest beside the agent.
type Listeners struct {
	sockets sockets
	before  map[string]bool
}

// ListenersNow looks at all sockets (TCP, UDP, RDMA-CM).
func ListenersNow() Listeners {
	s := guestSockets()
	return Listeners{s, s.listening()}
}

// AwaitNew waits until something listens that did not; it reports false after the
// limit, and when ended is closed.
func (l Listeners) AwaitNew(limit time.Duration, ended <-chan struct{}) bool {
	return l.sockets.awaitNew(l.before, limit, ended)
}
