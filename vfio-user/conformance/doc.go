// SPDX-License-Identifier: Apache-2.0

// Package conformance holds vfio-user servers against the protocol: raw messages
// in, errno or bytes out. A [Case] is one conversation on a fresh connection and
// runs against any socket, whatever serves it. Cases that need to see inside say
// so, and want a server for the [Reference] device.
//
// The expectations are those of vfio-user.rst as QEMU 11.1 ships it, of
// libvfio-user's test/py where the text is silent, and of QEMU's client where
// the two disagree.
//
// Trap: a case passes only if the connection still answers at its end, and with
// nothing in between. That is how a reply to a No_reply command is found.
package conformance
