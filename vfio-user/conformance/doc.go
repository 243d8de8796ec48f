// SPDX-License-Identifier: Apache-2.0

// Package conformance holds vfio-user servers against the protocol: raw messages
// in, errno or bytes out. A [Case] is one conversation on a fresh connection and
// runs against any socket, whatever serves it. [Probe] finds out what a server has;
// a case that needs more says so ([Case.Lacks]) and proves nothing there. Cases
// that need to see inside want a server for the [Reference] device: serve that with
// a transport of your own to hold the transport against all of them.
//
// From the command line, against a card that this project serves:
//
//	vrnic serve --socket /tmp/card &
//	go test ./vfio-user/ -v -run '^TestConformance$' -server /tmp/card
//
// -reference says that a Reference is behind the socket. A summary like
// "conformance: 300 of 300 cases passed, 203 skipped" is printed last; the go
// command hides it when it is given a package, has no -v and nothing fails.
//
// The expectations are those of vfio-user.rst as QEMU 11.1 ships it, of
// libvfio-user's test/py where the text is silent, and of QEMU's client where
// the two disagree. So a server passes that answers EINVAL to what it does not
// offer; a write to config space that can change nothing succeeds, as on
// hardware, where libvfio-user fails it; unmapping what was never mapped succeeds,
// because QEMU does so by the dozen with a vIOMMU.
//
// The client is as strict as QEMU and looks where QEMU does not: no reply is longer
// than QEMU has room for, its header comes with one receive, it has exactly the
// descriptors it should have, and it has one command to belong to. Replies may come
// in any order. DMA_READ and DMA_WRITE are answered only while no reply is due, and
// a DMA_WRITE of nothing is answered at any time: a server finds out that way how
// the client encodes these commands.
//
// Trap: a case passes only if the connection still answers at its end, and with
// nothing in between. That is how a reply to a No_reply command is found.
package conformance
