// SPDX-License-Identifier: Apache-2.0

// Package vfiouser speaks the vfio-user protocol, with which a process serves
// a PCI device to a virtual machine monitor over a UNIX socket. It has a
// [Server] for whoever models a device, and a [Client], a stand-in for QEMU,
// for whoever tests one. It knows regions, interrupts and DMA ranges and
// nothing of any particular device.
//
// The source of every number here is QEMU's docs/interop/vfio-user.rst (11.1)
// and, where that is silent, what QEMU's client (hw/vfio-user/proxy.c,
// hw/vfio-user/device.c) and libvfio-user's server (lib/libvfio-user.c) do.
//
// # Contract
//
// A Server serves one [Device] to one client at a time. All methods of the
// device are called by the goroutine that reads the connection, in the order
// in which the messages arrived. A malformed message costs its sender an error
// reply; only lost framing ends the connection. When a connection ends,
// however it ends, the device is detached and the next client is served.
//
// # Traps
//
//   - QEMU holds its big lock while it waits for a region access: a Device that
//     blocks stops the whole virtual machine, and after 5 s the reply is too
//     late and breaks the connection.
//   - Descriptors arrive with the first byte of their message. One recvmsg may
//     return several messages but ends behind the first bytes that carry
//     descriptors, so the descriptors of a read belong to the last message
//     touched by it.
//   - QEMU's buffer for the VERSION reply is as long as its request. The server
//     leaves out optional members until its reply fits.
//   - QEMU takes the 16-byte header with one read: a reply is written with one
//     write.
//   - A command with the No_reply flag is never answered, not even with an
//     error.
//   - QEMU unmaps ranges that were never mapped, and maps memory for which it
//     has no descriptor. Both must succeed.
package vfiouser
