// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vrnic/vrnic/guest/launch"
)

func init() {
	table = append(table,
		check{5, "device-add", false, "QMP device_add in ten fresh guests, ping; …/remove and …/rescan under ping", deviceAdd},
	)
}

// plugLibrary waits for a card that comes with an address, and takes it out and
// in again while somebody pings.
const plugLibrary = `
card() { ls -d /sys/bus/pci/drivers/ice/0* 2>/dev/null; }
came() {
	n=0
	until [ -n "$(card)" ] && ip -4 -o address | grep -q " $1/24 " && [ "$(cat $(card)/net/*/carrier 2>/dev/null)" = 1 ] && ibv_devinfo 2>/dev/null | grep -q PORT_ACTIVE; do
		n=$((n+1)); [ $n -lt 300 ] || { echo "FAILED: no card: $(card) $(ip address 2>&1) $(ibv_devinfo 2>&1)"; return; }
		sleep 0.1
	done
}
pings() {
	ping -i 0.05 $1 > /tmp/ping 2>&1 & p=$!
	n=0
	until grep -q 'icmp_seq=3 ' /tmp/ping; do
		n=$((n+1)); [ $n -lt 400 ] || { echo "FAILED: no ping: $(cat /tmp/ping)"; return; }
		sleep 0.05
	done
}
replug() {
	pings $1
	echo 1 > $(readlink -f $(card))/remove
	[ -z "$(card)" ] && [ -z "$(ls /sys/class/infiniband)" ] || echo "FAILED: still there: $(card) $(ls /sys/class/infiniband)"
	echo 1 > /sys/bus/pci/rescan
	kill $p; wait $p
}
`

// deviceAdd plugs a card into guests that were booted without one, two at a time,
// and talks to a guest that is there all along. Every other one has its card
// removed and found again under traffic; QEMU itself cannot take a card out.
func deviceAdd(t *testing.T, e *env) {
	const (
		n      = 10
		atOnce = 2
		host   = "192.168.77.1"
	)
	server := startServer(t, e, 1+atOnce)
	first := guestAt(t, e, server, "host", 0, "debian-backports", host)
	station := newMachine(t, e, server, bootAll(t, []launch.Config{first})[0], plugLibrary)
	station.ask("came " + host)
	for i := 0; i < n && !t.Failed(); i += atOnce {
		var configs []launch.Config
		for j := range atOnce {
			k := worldKernels[(i+j)%len(worldKernels)]
			c := guestAt(t, e, server, fmt.Sprintf("guest%d", i+j), 1+j, k, address(i+j))
			c.Sockets, c.Ports = nil, 1
			configs = append(configs, c)
		}
		guests := bootAll(t, configs)
		for j, g := range guests {
			m := newMachine(t, e, server, g, plugLibrary)
			m.quiet("card; ls /sys/class/infiniband 2>/dev/null")
			begin := time.Now()
			if err := g.Plug(0, server.sockets[1+j]); err != nil {
				t.Fatal(err)
			}
			m.ask("came " + address(i+j))
			took := time.Since(begin)
			m.reaches(host)
			station.reaches(address(i + j))
			what := "ping"
			if j == 0 {
				what = "ping, removed and found again, ping"
				m.ask("replug " + host)
				m.ask("came " + address(i+j))
				m.reaches(host)
				station.reaches(address(i + j))
			}
			e.part(t, filepath.Base(configs[j].Artifacts), "QMP device_add", fmt.Sprintf("%s, address after %.1f s, %s", strings.TrimSpace(m.do("uname -r")), took.Seconds(), what), took)
		}
		for j, g := range guests {
			if err := g.Close(); err != nil {
				t.Errorf("power off: %v", err)
			}
			wantCleanLog(t, filepath.Join(configs[j].Artifacts, "kernel.log"))
		}
	}
	if err := station.guest.Close(); err != nil {
		t.Errorf("power off: %v", err)
	}
	wantCleanLog(t, filepath.Join(first.Artifacts, "kernel.log"))
	if err := server.stop(); err != nil {
		t.Errorf("vrnic serve: %v", err)
	}
	wantQuietCard(t, filepath.Join(e.outDir, "serve.log"))
}

// address is that of the i-th guest with a card that was plugged in.
func address(i int) string { return fmt.Sprintf("192.168.77.%d", 10+i) }

// reaches exchanges echoes without a loss, however late: without a deadline ping
// waits for the last one no longer than twice the longest of those before.
func (m *machine) reaches(address string) {
	m.t.Helper()
	const n = 20
	out := m.do(fmt.Sprintf("ping -c %d -w 30 -i 0.05 %s", n, address))
	for seq := range n {
		if !strings.Contains(out, fmt.Sprintf("icmp_seq=%d ", seq+1)) {
			m.t.Errorf("ping %s: no answer to %d: %s", address, seq+1, out)
			return
		}
	}
}
