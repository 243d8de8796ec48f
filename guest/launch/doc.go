// SPDX-License-Identifier: Apache-2.0

// Package launch starts a guest in QEMU, runs commands in it, and tells how they
// ended.
//
// # Contract
//
// [Run] is the whole of it for one command: boot, run, report, power off.
// [RunPair] is the same for two guests, of which one's command waits for the
// other's to listen. [Boot] returns a [Machine] for several commands, which can
// also be reset. The devices are vfio-user sockets on which somebody listens
// already; this package does not know what is behind them.
//
// A command's streams are byte-exact and end-to-end flow-controlled: a reader
// of Stdout that stalls stalls the command. A command that fails is a [Result].
// What is not the command's doing is an error: [ErrTimeout], the context's
// error, or a [*MachineError] for a kernel panic, a guest that does not come up,
// or a QEMU that dies.
//
// Nothing is left behind. QEMU's descriptors are handed to it, so there is no
// file to remove (the monitor's socket is unlinked before QEMU starts); QEMU
// dies with this process even if that is killed.
//
// # Kernel command line
//
// The guest's console carries errors and worse only (a full log would cost most
// of a second under TCG), but all of a panic. The kernel log reaches the host
// by the agent: kernel.log in the artifacts is complete up to the moment the
// guest ends or panics, console.log has the panic. An oops is made a panic
// (oops=panic), as a guest that lost a thread inside a driver answers nothing
// reliably; "sysctl.kernel.panic_on_oops=0" in Append undoes it. Under TCG
// no_timer_check avoids a check that an overloaded host makes fail.
//
// # Traps
//
//   - Under TCG a guest with several CPUs may hang in early boot when the host
//     is overloaded. A guest that shows no life in time is started again, at
//     most twice, with a full log on its console, and the log says so. Once the
//     agent has spoken nothing is ever retried.
//   - Go ends a process that writes to a closed standard output. A program that
//     wants the command to get SIGPIPE instead, so that "run … | head" ends
//     cleanly, must have SIGPIPE handled (signal.Notify) while it runs.
package launch
