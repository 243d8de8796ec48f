// SPDX-License-Identifier: Apache-2.0

// Package minidriver does to a device what the stock ice and irdma drivers do,
// in a Go program and in milliseconds: through a vfio-user client, a real
// socket and guest memory in a memfd. It is fixture, fuzz harness and benchmark
// in one, and a second witness beside the device model: it is written from the
// drivers' side and knows nothing of the model's packages.
//
// The layers, from below:
//
//   - Guest: RAM whose addresses differ from its offsets, with poison around
//     and behind every allocation. Check says whether the device wrote where
//     nobody asked it to.
//   - Function: the PCI function as a kernel sees it: configuration space,
//     BAR0, MSI-X vectors.
//   - ICE: probe, open, close, remove, in the order and with the checks of the
//     kernel named by a Kernel.
//   - IRDMA: the same for the RDMA function on top of it.
//
// Contract and traps:
//   - All methods belong to one goroutine. Device memory is polled and device
//     registers are read; nothing sleeps. Waits end with the context given to
//     Attach, or with the function's Patience.
//   - A transport error is sticky: afterwards registers read all ones, as of a
//     device that was pulled out, and Function.Err tells why.
//   - Answers are checked more strictly than by the drivers: what breaks the
//     contract of a queue is an error that wraps ErrDevice.
//   - Memory is given back when a driver would free it, not later, and is
//     poisoned then: late DMA of the device shows in Guest.Check.
//   - Abandon gives memory back without a word to the device, as after a reset.
//     ICE.Rebuild and a new ProbeRDMA follow one as in the kernel, between
//     PrepareForReset, the reset, and ResetDone.
//   - Two functions, of one process or two, are two machines: ConnectPair takes QPs
//     of both to RTS as each other's peers.
//   - With Function.Pace driver and device go in lockstep: for devices that do
//     nothing by themselves, whose schedule a seed decides.
package minidriver
