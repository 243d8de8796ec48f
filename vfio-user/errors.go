// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"errors"
	"syscall"
)

// ErrSocketInUse: the socket of Listen belongs to a live server.
var ErrSocketInUse = errors.New("socket is in use by another server")

// ErrProtocol: the other side broke the protocol in a way that ends the
// connection.
var ErrProtocol = errors.New("vfio-user protocol violation")

// ErrNarrowDMA: the client speaks DMA_READ and DMA_WRITE as QEMU 10 did, with a
// count of 32 bits, which shifts all data by 4 bytes.
var ErrNarrowDMA = errors.New("client encodes message DMA as QEMU 10 did: use QEMU 11 or newer, or guest memory with share=on")

// maxErrno is the largest number that Linux takes for an errno
// (include/linux/err.h, MAX_ERRNO).
const maxErrno = 4095

// toErrno finds the errno to send for err.
func toErrno(err error) syscall.Errno {
	var errno syscall.Errno
	if errors.As(err, &errno) && errno > 0 && errno <= maxErrno {
		return errno
	}
	return syscall.EINVAL
}
