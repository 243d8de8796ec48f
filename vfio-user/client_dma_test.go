// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"encoding/binary"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestClientExecutes: the client answers DMA messages as QEMU does.
func TestClientExecutes(t *testing.T) {
	fd, err := unix.MemfdCreate("ram", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	ram := os.NewFile(uintptr(fd), "ram")
	defer ram.Close()
	if err := ram.Truncate(0x3000); err != nil {
		t.Fatal(err)
	}
	if _, err := ram.WriteAt([]byte{1, 2, 3, 4}, 0xffe); err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	wide := func(iova, count uint64, data ...byte) []byte {
		return append(le.AppendUint64(le.AppendUint64(nil, iova), count), data...)
	}
	narrow := func(iova uint64, count uint32, data ...byte) []byte {
		return append(le.AppendUint32(le.AppendUint64(nil, iova), count), data...)
	}
	for _, tt := range []struct {
		name    string
		narrow  bool
		cmd     Command
		payload []byte
		fds     int
		want    []byte
		errno   syscall.Errno
	}{
		{"read over two ranges", false, CmdDMARead, wide(0x10ffe, 4), 0, wide(0x10ffe, 4, 1, 2, 3, 4), 0},
		{"write over two ranges", false, CmdDMAWrite, wide(0x10ffe, 4, 1, 2, 3, 4), 0, wide(0x10ffe, 4), 0},
		{"write less than sent", false, CmdDMAWrite, wide(0x10ffe, 1, 1, 9, 9), 0, wide(0x10ffe, 1), 0},
		{"read nothing", false, CmdDMARead, wide(0x999999, 0), 0, wide(0x999999, 0), 0},
		{"write nothing", false, CmdDMAWrite, wide(0x999999, 0), 0, wide(0x999999, 0), 0},
		{"hole", false, CmdDMARead, wide(0x12ffe, 4), 0, nil, unix.ENODEV},
		{"read from ROM", false, CmdDMARead, wide(0x20000, 1), 0, wide(0x20000, 1, 0), 0},
		{"write to ROM", false, CmdDMAWrite, wide(0x20000, 1, 1), 0, nil, unix.ENODEV},
		{"no memory behind it", false, CmdDMARead, wide(0x30000, 1), 0, nil, unix.ENODEV},
		{"private memory, not the shared file", false, CmdDMARead, wide(0x40ffe, 2), 0, wide(0x40ffe, 2, 1, 2), 0},
		{"read too much", false, CmdDMARead, wide(0x10000, 1<<20+1), 0, nil, unix.E2BIG},
		{"read far too much", false, CmdDMARead, wide(0x10000, 1<<63), 0, nil, unix.E2BIG},
		{"write more than sent", false, CmdDMAWrite, wide(0x10000, 2, 1), 0, nil, unix.E2BIG},
		{"short", false, CmdDMARead, wide(0x10000, 2)[:15], 0, nil, unix.EINVAL},
		{"descriptor", false, CmdDMARead, wide(0x10000, 2), 1, nil, unix.EINVAL},
		{"other command", false, CmdRegionRead, wide(0x10000, 2), 0, nil, unix.ENOSYS},
		{"narrow read", true, CmdDMARead, narrow(0x10ffe, 4), 0, narrow(0x10ffe, 4, 1, 2, 3, 4, 0, 0, 0, 0), 0},
		{"narrow write", true, CmdDMAWrite, narrow(0x10ffe, 4, 1, 2, 3, 4), 0, nil, 0},
		{"narrow, asked wide for nothing", true, CmdDMAWrite, wide(0x10ffe, 0), 0, nil, 0},
		{"narrow short", true, CmdDMARead, make([]byte, 11), 0, nil, unix.EINVAL},
	} {
		c := &Client{opts: ClientOptions{NarrowDMA: tt.narrow}, server: defaultLimits()}
		other, _ := os.Open(os.DevNull)
		defer other.Close()
		for _, r := range []DMARange{
			{IOVA: 0x11000, Size: 0x2000, Offset: 0x1000, Guest: ram, Flags: DMARead | DMAWrite},
			{IOVA: 0x10000, Size: 0x1000, File: ram, Flags: DMARead | DMAWrite},
			{IOVA: 0x20000, Size: 0x1000, File: ram, Flags: DMARead},
			{IOVA: 0x30000, Size: 0x1000, Flags: DMARead},
			{IOVA: 0x40000, Size: 0x1000, File: other, Guest: ram, Flags: DMARead},
		} {
			c.memory.add(r)
		}
		got, errno := c.execute(serverCommand{Header: Header{Command: tt.cmd}, payload: tt.payload, fds: tt.fds})
		if errno != tt.errno || errno == 0 && !bytes.Equal(got, tt.want) {
			t.Errorf("%s: % x, %v, want % x, %v", tt.name, got, errno, tt.want, tt.errno)
		}
	}
}
