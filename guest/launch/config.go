// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/vrnic/vrnic/guest/wire"
	"github.com/vrnic/vrnic/images"
)

// Defaults of the zero values in [Config].
const (
	DefaultCPUs        = 2
	DefaultMemoryMiB   = 1024
	DefaultBootTimeout = 2 * time.Minute
	DefaultDeviceWait  = 10 * time.Second
)

// DefaultModules are the drivers under test and what user space reaches them
// through.
func DefaultModules() []string {
	return []string{"ice", "irdma", "ib_uverbs", "rdma_ucm", "ib_umad"}
}

// Config describes a guest and, for [Run] and [RunPair], its command.
type Config struct {
	Name string // of the guest in messages, where there are several

	QEMU    []string // program and the arguments it always needs
	Kernel  string   // bzImage
	Initrd  []string // cpio archives, concatenated in this order
	Append  string   // further kernel command line
	Sockets []string // vfio-user sockets, one device each, in this order
	Ports   int      // root ports, at least one per socket; see Machine.Plug

	CPUs      int
	MemoryMiB int
	Accel     string   // auto (default), kvm or tcg
	IOMMU     bool     // put the devices behind an IOMMU (VT-d) that the guest uses, strictly
	GDB       bool     // QEMU's gdb stub on tcp:127.0.0.1:1234; no time limits while booting
	QEMUArgs  []string // further QEMU arguments, after ours

	// Guest is the agent's configuration. Modules nil stands for
	// [DefaultModules], DeviceWait zero for [DefaultDeviceWait].
	Guest wire.Config
	// Files are put into the initramfs as they are.
	Files []images.OverlayFile
	// Copies are files and trees of the host for the user in the guest.
	Copies []Copy
	// Init is the static executable that becomes the guest's init: the vrnic
	// binary. Empty: this process's own executable.
	Init string

	BootTimeout time.Duration // until the guest can run commands

	Command []string      // for Run and RunPair
	Env     []string      // K=V
	Timeout time.Duration // from the command's start; 0: none
	TTY     bool          // give the command a terminal; Stdin's settings become raw for the time
	Stdin   io.Reader     // nil: none. An *os.File is never read beyond what the command may take
	Stdout  io.Writer
	Stderr  io.Writer

	// Booted, if set, is called once the guest can run commands, before the
	// first one.
	Booted func(kernel string, ready wire.Ready)

	Artifacts string    // directory for console.log, kernel.log, qemu.log, qmp.log; empty: none
	Console   io.Writer // gets the console and the kernel log as they come; nil: nobody
	Logger    hclog.Logger

	limits limits // zero: the defaults
}

// Copy brings a file or a directory tree into the guest.
type Copy struct {
	Host  string // path on the host
	Guest string // destination; with a slash at its end, or if it is a directory: into it
}

// withDefaults returns the configuration to use, or what is wrong with it.
func (c Config) withDefaults() (Config, error) {
	if len(c.QEMU) == 0 {
		return c, errors.New("launch: no QEMU given")
	}
	if c.Kernel == "" {
		return c, errors.New("launch: no kernel given")
	}
	if c.CPUs == 0 {
		c.CPUs = DefaultCPUs
	}
	if c.MemoryMiB == 0 {
		c.MemoryMiB = DefaultMemoryMiB
	}
	if c.CPUs < 1 || c.CPUs > 255 {
		return c, fmt.Errorf("launch: %d CPUs", c.CPUs)
	}
	if c.MemoryMiB < 256 {
		return c, fmt.Errorf("launch: %d MiB of memory are too little (at least 256)", c.MemoryMiB)
	}
	if c.BootTimeout == 0 {
		c.BootTimeout = DefaultBootTimeout
	}
	if c.Guest.Modules == nil {
		c.Guest.Modules = DefaultModules()
	}
	if c.Guest.DeviceWait == 0 {
		c.Guest.DeviceWait = DefaultDeviceWait
	}
	if c.limits == (limits{}) {
		c.limits = defaultLimits()
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return c, nil
}
