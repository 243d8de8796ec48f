// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openTAP attaches to the interface, or makes it if the process may. A new one
// is set up and goes away with the descriptor.
func openTAP(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	req, err := unix.NewIfreq(name)
	if err == nil {
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		if err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
			err = fmt.Errorf("TUNSETIFF %s: %w", name, err)
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	setUp(name)
	return os.NewFile(uintptr(fd), "/dev/net/tun"), nil
}

// setUp sets the interface up where that is allowed. Who made an interface for
// an unprivileged process sets it up as well.
func setUp(name string) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(s)
	req, err := unix.NewIfreq(name)
	if err != nil || unix.IoctlIfreq(s, unix.SIOCGIFFLAGS, req) != nil {
		return
	}
	req.SetUint16(req.Uint16() | unix.IFF_UP)
	_ = unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, req)
}
