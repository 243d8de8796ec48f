// SPDX-License-Identifier: Apache-2.0

// Package wire is the conversation between the launcher on the host and the
// agent inside the guest: frames, messages and flow-controlled streams over one
// byte pipe (a virtio-serial port, or a socket pair in tests).
//
// # Contract
//
// A frame is an 8-byte header (type, stream, command, payload length; integers
// little-endian) and its payload. Bytes travel in streams; a
// stream is one direction of one descriptor of one command. The receiver
// grants credit, so a slow reader blocks the writer, however far away, and
// never costs more than [Window] bytes of memory per stream. Nothing is
// dropped: a writer learns that the reader went away by [ErrBroken].
//
// Everything else is a message of its own type with a JSON payload.
//
// # Traps
//
//   - The read loop ([Mux.Run]) must never wait for a write: both sides would
//     stall with full buffers. Handlers that send do so on another goroutine.
//   - A virtio-serial port reports end of file to the guest when the host side
//     closes, but the host never sees the guest close it: only the end of QEMU
//     ends the pipe for the host.
//   - Frames for a command that has ended are in flight for a while after both
//     sides forgot it. They are ignored, which is why a command's number is in
//     every frame.
package wire
