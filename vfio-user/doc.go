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
// reply; only lost framing, and a client that does not read its replies, ends the
// connection. When a connection ends, however it ends, the device is detached and
// the next client is served.
//
// # How to write a device
//
// Directory examples/copier is a complete one, with its test.
//
//   - Say in a [Layout] what regions and interrupt vectors there are, and pass it
//     with the device to [NewServer]. [Listen] makes the socket.
//   - Keep config space as a region of 256 bytes, or of 4096 with a PCI Express
//     capability. QEMU keeps the values of BARs, the MSI and MSI-X capabilities and
//     the MSI-X table itself, but takes types, ids and everything else from the
//     device; all writes of the guest arrive. Ignore what is read-only with success:
//     QEMU prints a line for each error. Function level reset arrives as a write to
//     the PCI Express capability only. COMMAND is 0 after a reset.
//   - The order of calls is AttachMemory, Attach, anything, Detach. QEMU maps memory
//     before it asks what the device is, and at boot takes all memory away and gives
//     it back several times within a millisecond: that must not fail the device.
//   - Answer accesses from what is known, and do the work on goroutines of your own.
//     Interrupts may be raised from any of them. Detach ends those goroutines.
//   - Memory with a descriptor is read and written through it or a mapping of it.
//     The client can shorten the file: with a mapping, that is a fault to survive
//     ([runtime/debug.SetPanicOnFault]). The rest is reached by [MessageDMA].
//   - UnmapDMA, Reset and the end of bus mastering must end DMA. What cannot end at
//     once makes the device a [Settler].
//   - Test it with a [Client] over a real socket.
//
// QEMU 10.1.1 or newer attaches it with
//
//	-object memory-backend-memfd,id=mem0,size=512M,share=on -machine q35,memory-backend=mem0 -m 512M
//	-device '{"driver":"vfio-user-pci","socket":{"type":"unix","path":"/path/to/sock"}}'
//
// With other memory than share=on there is no descriptor, and all DMA goes by
// message, with QEMU 11 or newer; or, with memory-backend-memfd,share=off, there is
// one to a file that the guest does not use.
//
// # What may block what
//
// The methods of Device block the reader, and with it the guest's processor and
// QEMU's main loop. Message DMA waits for QEMU's main loop. So a method that waits
// for message DMA, directly or through a lock, stops the machine until QEMU gives
// up after 5 s. The waits of a Settler hold up one reply, and those deferred behind
// it; when 64 are deferred the reader waits too. They must not wait for message DMA
// either: an unmap cannot undo a message, it only ends the wait for it. A device
// cancels the context of such DMA, and drops what comes of it.
//
// # Answers to what is not there
//
// DEVICE_FEATURE, PROBE included, and MIG_DATA_READ and MIG_DATA_WRITE are answered
// with EINVAL, which QEMU takes for "no migration". DEVICE_GET_REGION_IO_FDS says
// that a region has 0 descriptors, as libvfio-user does.
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
//   - The client can make any write to an eventfd sleep, so the server does not
//     write: it has the kernel signal at the end of an asynchronous read. Where
//     io_setup is refused (/proc/sys/fs/aio-max-nr, seccomp) a client can delay an
//     interrupt, and who raises it, by 100 ms.
//   - QEMU unmaps ranges that were never mapped, and maps memory for which it
//     has no descriptor. Both must succeed.
//   - QEMU 10 has a count of 32 bits in DMA_READ and DMA_WRITE, so that all data
//     would go wrong by 4 bytes: [ErrNarrowDMA].
//   - QEMU cuts off what does not fit its socket's buffer when it answers a
//     DMA_READ. No more than 64 KiB are asked for at a time, by all callers
//     together.
//   - A mappable region makes QEMU wait for every write to any region of the
//     device: see [Region].
package vfiouser
