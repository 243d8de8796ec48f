// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/vrnic/vrnic/guest/wire"
)

// network gives each ice netdev its settings, once, when it appears: at boot and
// after every rebind, which makes a new netdev with a new index. What the user
// changes afterwards (down, other addresses) is left alone.
type network struct {
	sys  string // /sys, or a copy of its shape in tests
	nets []wire.Net
	log  func(level, format string, args ...any)

	setLink    func(index, mtu int) error
	addAddress func(index int, p netip.Prefix) error

	now    func() time.Time
	since  map[int]time.Time // when it was first seen, by interface index
	done   map[int]bool      // by interface index
	failed map[int]int       // attempts so far
}

// maxAttempts bounds the tries to set up one netdev.
const maxAttempts = 10

// probePatience is how long a netdev is left alone whose card has no auxiliary
// device: RDMA may be switched off.
const probePatience = 2 * time.Second

// probed tells whether the driver is done with a netdev that is there. In 7.3 it
// is not when it registers it: one that is opened before the NAPI contexts are
// there ends the kernel (ice_main.c:ice_load, ice_napi_add;
// ice_base.c:ice_cfg_xps_tx_ring). The auxiliary device, for irdma, comes later.
func (n *network) probed(name string, index int) bool {
	if later, _ := filepath.Glob(filepath.Join(n.sys, "class/net", name, "device/ice.*")); len(later) > 0 {
		return true
	}
	if _, ok := n.since[index]; !ok {
		n.since[index] = n.now()
	}
	return n.now().Sub(n.since[index]) >= probePatience
}

func newNetwork(nets []wire.Net, log func(string, string, ...any)) *network {
	return &network{
		sys: "/sys", nets: nets, log: log,
		setLink: setLink, addAddress: addAddress,
		now: time.Now, since: make(map[int]time.Time),
		done: make(map[int]bool), failed: make(map[int]int),
	}
}

// adopt sets up the ice netdevs that are new. It reports whether one of them
// has to be tried again and when: the driver was in the middle of a reset or, and
// then it is soon, of a probe.
func (n *network) adopt() (again time.Duration) {
	for _, name := range iceNetdevs(n.sys) {
		index, err := strconv.Atoi(readAttr(n.sys, "class/net", name, "ifindex"))
		if err != nil || n.done[index] || n.failed[index] >= maxAttempts {
			continue // gone again, or settled
		}
		if !n.probed(name, index) {
			again = 20 * time.Millisecond
			continue
		}
		mac := readAttr(n.sys, "class/net", name, "address")
		if err := n.configure(index, n.settings(mac)); err != nil {
			n.failed[index]++
			if again == 0 {
				again = time.Second
			}
			n.log("warn", "netdev %s (%s): %v", name, mac, err)
			continue
		}
		n.done[index] = true
		n.log("debug", "netdev %s (%s) is up", name, mac)
	}
	return again
}

// settings returns what to set on the netdev with that MAC address.
func (n *network) settings(mac string) wire.Net {
	var fallback wire.Net
	for _, s := range n.nets {
		if strings.EqualFold(s.MAC, mac) {
			return s
		}
		if s.MAC == "" {
			fallback = s
		}
	}
	return fallback
}

func (n *network) configure(index int, s wire.Net) error {
	if err := n.setLink(index, s.MTU); err != nil {
		return fmt.Errorf("bring up: %w", err)
	}
	var errs []error
	for _, a := range s.Addresses {
		if err := n.addAddress(index, a); err != nil {
			errs = append(errs, fmt.Errorf("add address %s: %w", a, err))
		}
	}
	return errors.Join(errs...)
}

// iceNetdevs names the netdevs whose device is driven by ice.
func iceNetdevs(sys string) []string {
	links, _ := filepath.Glob(filepath.Join(sys, "class/net/*/device/driver"))
	var names []string
	for _, link := range links {
		if driver, err := os.Readlink(link); err == nil && filepath.Base(driver) == "ice" {
			names = append(names, filepath.Base(filepath.Dir(filepath.Dir(link))))
		}
	}
	return names
}

// readAttr reads a sysfs attribute; "" stands for any failure, such as that of
// reading the carrier of a netdev that is down.
func readAttr(path ...string) string {
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
