// SPDX-License-Identifier: Apache-2.0

// Package guest is what runs inside the virtual machine: init and agent.
//
// The vrnic binary is its own guest program. Package launch puts it into the
// initramfs as /init, next to a configuration file; when it finds itself there
// ([IsInit]), main calls [Init], which mounts what a Debian system has mounted,
// loads the drivers, gives every ice netdev its address, waits a bounded time
// for the devices, and then runs the commands the launcher asks for over a
// virtio-serial port (package wire).
//
// # Traps
//
//   - The process is PID 1: it reaps everybody's children, so nothing here may
//     use os/exec, whose Wait would race with the reaper. See processes.
//   - If init ends, the kernel panics. Every failure is written to the console,
//     and the machine is powered off.
//   - There is no udev. Device nodes come from devtmpfs, modules from explicit
//     loading or the kernel's own request_module.
package guest
