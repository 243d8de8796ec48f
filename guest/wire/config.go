// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// ConfigPath is where the launcher puts the [Config] in the guest's initramfs.
// It is also the mark by which the vrnic binary knows that it is the guest's
// init and not, say, the first process of a container.
const ConfigPath = "/etc/vrnic/config.json"

// PortName is the name of the virtio-serial port between launcher and agent.
const PortName = "vrnic.agent"

// Config is what the agent must know before the launcher can talk to it.
type Config struct {
	Hostname string `json:"hostname,omitempty"`
	// Hosts are further lines of /etc/hosts.
	Hosts []Host `json:"hosts,omitempty"`
	// Modules are loaded at start, in this order. A module that the kernel has
	// built in is no error; one that fails to load is reported, not fatal.
	Modules []string `json:"modules,omitempty"`
	// ModprobeOptions are lines "MODULE OPTION=VALUE …", good for every
	// modprobe in the guest, not only for the agent's.
	ModprobeOptions []string `json:"modprobe_options,omitempty"`
	// Depmod says that module files were replaced and modules.dep is stale.
	Depmod bool `json:"depmod,omitempty"`
	// Copies are moved from their place in the archive to their destination.
	Copies []Copy `json:"copies,omitempty"`
	// Nets are the settings of our netdevs, by MAC address.
	Nets []Net `json:"nets,omitempty"`
	// DeviceWait bounds the wait for the devices before the first command.
	DeviceWait time.Duration `json:"device_wait"`
}

// Host is a line of /etc/hosts.
type Host struct {
	Address netip.Addr `json:"address"`
	Name    string     `json:"name"`
}

// Net is what the agent sets on an ice netdev when it appears, be it at boot or
// after a rebind.
type Net struct {
	// MAC selects the netdev; empty matches every ice netdev without a Net of its own.
	MAC       string         `json:"mac,omitempty"`
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	MTU       int            `json:"mtu,omitempty"` // 0: leave it
}

// Copy moves a file or directory tree inside the guest.
type Copy struct {
	From string `json:"from"`
	To   string `json:"to"` // ends in a slash, or names a directory: into it
}

// Encode returns c as the agent reads it.
func (c Config) Encode() ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return json.MarshalIndent(c, "", "  ")
}

// DecodeConfig reads and checks a Config.
func DecodeConfig(b []byte) (Config, error) {
	var c Config
	if err := json.Unmarshal(b, &c); err != nil {
		return Config{}, fmt.Errorf("guest configuration: %w", err)
	}
	if err := c.check(); err != nil {
		return Config{}, err
	}
	return c, nil
}

func (c Config) check() error {
	for _, n := range c.Nets {
		if n.MAC != "" {
			if mac, err := net.ParseMAC(n.MAC); err != nil || len(mac) != 6 {
				return fmt.Errorf("guest configuration: %q is not a MAC address", n.MAC)
			}
		}
		for _, a := range n.Addresses {
			if !a.IsValid() {
				return fmt.Errorf("guest configuration: netdev %s: invalid address", n.MAC)
			}
		}
		if n.MTU < 0 || n.MTU > 65535 {
			return fmt.Errorf("guest configuration: netdev %s: MTU %d", n.MAC, n.MTU)
		}
	}
	for _, c := range c.Copies {
		if c.From == "" || c.To == "" {
			return fmt.Errorf("guest configuration: copy %q to %q", c.From, c.To)
		}
	}
	return nil
}
