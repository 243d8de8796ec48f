// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"context"
	"os"
)

// Device is what a [Server] serves. Its types are plain, so that a model can
// satisfy it without importing this package.
//
// All methods are called by one goroutine, in message order, and must not
// block: the client's whole machine waits. An error that wraps a
// [syscall.Errno] is sent as that errno, any other as EINVAL. Slices are valid
// during the call only.
type Device interface {
	// Attach: a client has agreed on a version. signal raises an interrupt
	// (index, vector); it is safe from any goroutine, never blocks, and does
	// nothing for a vector that does not exist or once the client is gone.
	Attach(signal func(index, vector int))

	// Detach: the connection ended, however it ended. The device drops its DMA
	// maps and goes to power-on reset. No DMA happens after it returned.
	Detach()

	// ReadRegion fills p from the region at offset; WriteRegion stores p there.
	// The range lies inside the region, which has the matching flag, and p is
	// neither empty nor longer than 1 MiB. QEMU passes the guest's own width
	// (1, 2, 4 or 8 bytes, aligned) to a BAR but reads config space in one go.
	ReadRegion(region int, offset uint64, p []byte) error
	WriteRegion(region int, offset uint64, p []byte) error

	// MapDMA makes [iova, iova+size), whole 4 KiB pages, known as memory of the
	// client. f is nil when the client gave no descriptor; such memory can be
	// reached by messages only. Otherwise offset is the place of iova in f, and
	// the device owns f from now on, also when it returns an error. Every map
	// has a fresh descriptor, also for a file seen before. The device decides
	// about overlaps (EEXIST) and how many maps it is willing to hold (ENOSPC).
	MapDMA(iova, size uint64, f *os.File, offset uint64, readable, writable bool) error

	// UnmapDMA drops every mapping inside [iova, iova+size); nothing mapped
	// there is no error. iova+size may be 2^64 and then wraps to 0. When it
	// returns no DMA to the range can happen any more.
	UnmapDMA(iova, size uint64) error

	// UnmapAllDMA drops every mapping.
	UnmapAllDMA()

	// Reset is DEVICE_RESET. DMA maps and eventfds stay; interrupts that wait
	// for an eventfd or an unmask are forgotten. QEMU expects the COMMAND
	// register of config space to be 0 afterwards.
	Reset()
}

// IRQMasker may be implemented by a [Device] that wants to know of the
// client's mask and unmask requests. A device with a level-triggered interrupt
// needs it: INTx masks itself when it fires, and on the unmask the device
// signals again if its level is still up. Unlike the methods of Device it may
// be called from another goroutine, because the client may unmask through an
// eventfd; it may call signal.
type IRQMasker interface {
	IRQMasked(index, vector int, masked bool)
}

// Settler may be implemented by a [Device] whose DMA takes a while to end. The
// server calls Settle, on the same goroutine, after UnmapDMA, UnmapAllDMA, Reset
// and every WriteRegion of config space. By then the effect of the call is in
// place: no new DMA starts to what it took away. Settle says whether old DMA is
// still under way: nil if not, which is the normal case, and otherwise a function
// that waits, bounded in time, until it is over.
//
// The server sends the reply of that command when wait has returned. It calls
// wait on another goroutine, one wait after the other in the order of the
// commands, while the reader goes on with later messages, so wait must not rely
// on the goroutine of the methods of Device to stand still. All waits have
// returned before Detach is called.
type Settler interface {
	Settle() (wait func())
}

// Rester may be implemented by a [Device] whose registers start work that need not
// be done before their access is answered. The server calls Rest, on the same
// goroutine, right after Attach, and from then on whenever it has served all that
// has come and would wait for more: the goroutine is the device's for a while,
// which costs no wake-up of another. Meanwhile the client's next message waits.
type Rester interface {
	Rest()
}

// MessageDMA may be implemented by a [Device] that wants to reach memory for
// which MapDMA had no descriptor. AttachMemory comes before Attach; read and
// write are good until Detach is called.
//
// read fills p from guest memory at iova, write stores p there. Both go through
// the client, as DMA_READ and DMA_WRITE messages of at most 64 KiB, and wait for
// its answer: QEMU answers only while no region access, reset or other command of
// its own waits for a reply. So they must not be called by the goroutine that
// calls the methods of Device, nor with a lock held that one of them takes.
//
// The error wraps the errno of the client (QEMU: ENODEV for memory that is not
// there or with bus mastering off), EFAULT for a range that is not mapped at the
// moment, [ErrNarrowDMA], the cause of ctx, or ENOTCONN once the client is gone.
// After an error, part of p may have been transferred.
type MessageDMA interface {
	AttachMemory(read, write func(ctx context.Context, iova uint64, p []byte) error)
}
