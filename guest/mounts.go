// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"fmt"
	"os"

	"github.com/u-root/u-root/pkg/mount"
	"golang.org/x/sys/unix"
)

// mountPoint is one row of the guest's mount table.
type mountPoint struct {
	fstype, target, options string
	flags                   uintptr
	optional                bool // a kernel may lack the file system
}

// mountTable is in mount order: parents first.
var mountTable = [...]mountPoint{
	{fstype: "proc", target: "/proc", flags: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	{fstype: "sysfs", target: "/sys", flags: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	{fstype: "devtmpfs", target: "/dev", options: "mode=0755", flags: unix.MS_NOSUID},
	{fstype: "devpts", target: "/dev/pts", options: "mode=0620,gid=5,ptmxmode=0666", flags: unix.MS_NOSUID | unix.MS_NOEXEC},
	{fstype: "tmpfs", target: "/dev/shm", options: "mode=1777", flags: unix.MS_NOSUID | unix.MS_NODEV},
	{fstype: "tmpfs", target: "/run", options: "mode=0755", flags: unix.MS_NOSUID | unix.MS_NODEV},
	{fstype: "tmpfs", target: "/tmp", options: "mode=1777", flags: unix.MS_NOSUID | unix.MS_NODEV},
	{fstype: "cgroup2", target: "/sys/fs/cgroup", flags: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, optional: true},
	{fstype: "debugfs", target: "/sys/kernel/debug", optional: true},
	{fstype: "tracefs", target: "/sys/kernel/tracing", optional: true},
}

// lateMounts need a module that init loads.
var lateMounts = [...]mountPoint{
	{fstype: "configfs", target: "/sys/kernel/config", optional: true},
}

// devLinks are what udev would have made.
var devLinks = [...][2]string{
	{"/proc/self/fd", "/dev/fd"},
	{"/proc/self/fd/0", "/dev/stdin"},
	{"/proc/self/fd/1", "/dev/stdout"},
	{"/proc/self/fd/2", "/dev/stderr"},
}

// mountAll makes the file systems of a running system.
func mountAll() error {
	if err := mountThese(mountTable[:]); err != nil {
		return err
	}
	for _, l := range devLinks {
		if err := os.Symlink(l[0], l[1]); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("device link: %w", err)
		}
	}
	return nil
}

func mountThese(table []mountPoint) error {
	for _, m := range table {
		// Inside sysfs the directory comes with the kernel, or cannot be made.
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			if m.optional {
				continue
			}
			return fmt.Errorf("mount point: %w", err)
		}
		_, err := mount.Mount(m.fstype, m.target, m.fstype, m.options, m.flags)
		if err != nil && !m.optional {
			return fmt.Errorf("mount %s on %s: %w", m.fstype, m.target, err)
		}
	}
	return nil
}
