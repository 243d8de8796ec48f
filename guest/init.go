// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"

	"github.com/vrnic/vrnic/guest/wire"
	"golang.org/x/sys/unix"
)

// IsInit reports whether this process is the init of a guest that package
// launch started.
func IsInit() bool {
	if os.Getpid() != 1 {
		return false
	}
	_, err := os.Stat(wire.ConfigPath)
	return err == nil
}

// Init runs the guest. It never returns: it ends by powering the machine off.
func Init() {
	// The guest's memory is small and the agent must not grow with what flows
	// through it.
	debug.SetMemoryLimit(64 << 20)
	how := unix.LINUX_REBOOT_CMD_POWER_OFF
	shutdown := handleSignals()
	done := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				done <- fmt.Errorf("panic: %v\n%s", r, debug.Stack())
			}
		}()
		done <- runGuest()
	}()
	select {
	case err := <-done:
		if err != nil {
			fmt.Fprintf(os.Stderr, "vrnic init: %v\n", err)
		}
	case how = <-shutdown:
	}
	unix.Sync()
	for {
		if err := unix.Reboot(how); err != nil {
			fmt.Fprintf(os.Stderr, "vrnic init: reboot(%#x): %v\n", how, err)
		}
		select {} // the machine ends under us; returning would panic the kernel
	}
}

// handleSignals keeps signals from ending PID 1 and turns those by which
// busybox's poweroff and reboot address init into a reboot(2) command.
func handleSignals() <-chan int {
	in := make(chan os.Signal, 16)
	signal.Notify(in, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGPIPE, unix.SIGALRM, unix.SIGPWR)
	out := make(chan int, 1)
	go func() {
		for s := range in {
			switch s {
			case unix.SIGTERM:
				out <- unix.LINUX_REBOOT_CMD_RESTART
			case unix.SIGUSR1, unix.SIGUSR2, unix.SIGPWR:
				out <- unix.LINUX_REBOOT_CMD_POWER_OFF
			}
		}
	}()
	return out
}

// runGuest is init's work. It returns when the host asked for the end.
func runGuest() error {
	if err := mountAll(); err != nil {
		return err
	}
	if err := setEnvironment(); err != nil {
		return err
	}
	b, err := os.ReadFile(wire.ConfigPath)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	config, err := wire.DecodeConfig(b)
	if err != nil {
		return err
	}
	procs := newProcesses()
	go procs.reap()

	// Each may be built into the kernel; what counts is whether the port comes.
	_, loadErr := procs.run("modprobe", "-a", "virtio_pci", "virtio_console", "configfs")
	if err := mountThese(lateMounts[:]); err != nil {
		return err
	}
	port, err := openPort(wire.PortName)
	if err != nil {
		return errors.Join(err, loadErr)
	}
	var uname unix.Utsname
	if err := unix.Uname(&uname); err != nil {
		return fmt.Errorf("uname: %w", err)
	}
	a := newAgent(port, procs)
	a.hello = wire.Hello{Version: wire.Version, Release: unix.ByteSliceToString(uname.Release[:])}
	a.prepare = func() wire.Ready { return prepare(config, a, procs) }
	if a.kernel, err = openKernelLog("/dev/kmsg", a.mux); err != nil {
		return err
	}
	return a.serve()
}

// setEnvironment is what a root login would have set.
func setEnvironment() error {
	for _, kv := range [][2]string{
		{"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		{"HOME", "/root"},
		{"USER", "root"},
		{"LOGNAME", "root"},
		{"SHELL", "/bin/sh"},
		{"LANG", "C.UTF-8"},
	} {
		if err := os.Setenv(kv[0], kv[1]); err != nil {
			return err
		}
	}
	// RDMA pins memory; a root shell on Debian has the same limit lifted by
	// rdma-core's documentation, not by default. Root is exempt anyway
	// (CAP_IPC_LOCK); a command that drops privileges is not.
	limit := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return fmt.Errorf("setrlimit(MEMLOCK): %w", err)
	}
	if err := os.MkdirAll("/root", 0o700); err != nil {
		return err
	}
	return os.Chdir("/root")
}
