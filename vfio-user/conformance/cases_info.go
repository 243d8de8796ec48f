// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
	"golang.org/x/sys/unix"
)

func regionArgs(argsz, index uint32) []byte {
	return slices.Concat(U32(argsz, 0, index, 0), U64(0, 0))
}

func infoCases() []Case {
	cases := []Case{
		one("info/device short", cmdInfo, unix.EINVAL, nil, U32(16, 0)),
		one("info/device argsz 8", cmdInfo, unix.EINVAL, nil, U32(8, 0, 0, 0)),
		one("info/device argsz 15", cmdInfo, unix.EINVAL, nil, U32(15, 0, 0, 0)),
		one("info/device argsz 32", cmdInfo, 0, U32(16, 3, 9, 5), U32(32, 0, 0, 0)).needs(NeedReset),
		one("info/device argsz 2^32-1", cmdInfo, 0, U32(16, 3, 9, 5), U32(1<<32-1, 0, 0, 0)).needs(NeedReset),
		one("info/irq short", cmdIRQ, unix.EINVAL, nil, U32(16, 0)),
		one("info/irq argsz 8", cmdIRQ, unix.EINVAL, nil, U32(8, 0, 0, 0)),
		one("info/irq argsz 15", cmdIRQ, unix.EINVAL, nil, U32(15, 0, 0, 0)),
		one("info/irq index 5", cmdIRQ, unix.EINVAL, nil, U32(16, 0, 5, 0)),
		one("info/irq index 2^32-1", cmdIRQ, unix.EINVAL, nil, U32(16, 0, 1<<32-1, 0)),
		one("info/region short", cmdRegion, unix.EINVAL, nil, U32(32, 0)),
		one("info/region argsz 8", cmdRegion, unix.EINVAL, nil, regionArgs(8, 0)),
		one("info/region argsz 31", cmdRegion, unix.EINVAL, nil, regionArgs(31, 0)),
		one("info/region index 9", cmdRegion, unix.EINVAL, nil, regionArgs(32, 9)),
		one("info/region index 2^32-1", cmdRegion, unix.EINVAL, nil, regionArgs(32, 1<<32-1)),
		steps("info/posted", post(cmdInfo, U32(16, 0, 0, 0)), post(cmdIRQ, U32(16, 0, 0, 0)), post(cmdRegion, regionArgs(32, 7))),
		steps("info/descriptor nobody wants", ask(cmdRegion, 0, nil, regionArgs(32, 7)).
			fds(FD{Name: "p", Kind: Pipe}).check(Check{Name: "p", Hangup: true})),
		one("info/config space is 256 or 4096 bytes, not mappable", cmdRegion, 0, nil, regionArgs(4096, 7)).checked(func(p []byte) error {
			le := binary.LittleEndian
			if size, flags := le.Uint64(p[16:]), le.Uint32(p[4:]); (size != 256 && size != 4096) || flags != 3 {
				return fmt.Errorf("size %d, flags %#x", size, flags)
			}
			return nil
		}, 32),
	}
	// QEMU dies of a BAR whose size is not a power of two, and believes the flags
	// of a region that is not there.
	for i := range uint32(6) {
		c := one(fmt.Sprintf("info/BAR%d is a power of two or absent", i), cmdRegion, 0, nil, regionArgs(32, i)).checked(func(p []byte) error {
			le := binary.LittleEndian
			size, flags := le.Uint64(p[16:]), le.Uint32(p[4:])
			if bits.OnesCount64(size) > 1 || (size == 0) != (flags == 0) || le.Uint32(p) < 32 || le.Uint32(p[8:]) != i {
				return fmt.Errorf("index %d, size %#x, flags %#x, argsz %d", le.Uint32(p[8:]), size, flags, le.Uint32(p))
			}
			if flags&8 != 0 && le.Uint32(p) > 32 {
				return fmt.Errorf("flag CAPS in an answer of 32 bytes that needs %d", le.Uint32(p))
			}
			return nil
		}, 32)
		c.Steps[0].Want[0].AnyFile = true
		cases = append(cases, c)
	}
	for i := range uint32(vfiouser.NumIRQs) {
		cases = append(cases, one(fmt.Sprintf("info/irq %d by eventfd, and can be resized", i), cmdIRQ, 0, nil, U32(16, 0, i, 0)).checked(func(p []byte) error {
			le := binary.LittleEndian
			// NORESIZE makes QEMU switch MSI-X off to add a vector.
			if flags := le.Uint32(p[4:]); le.Uint32(p) != 16 || flags&1 == 0 || flags&8 != 0 || le.Uint32(p[8:]) != i {
				return fmt.Errorf("% x", p)
			}
			return nil
		}, 16))
	}
	return append(cases, reference([]Case{
		one("info/irq REQ, long argsz", cmdIRQ, 0, U32(16, 1, 4, 1), U32(32, 0, 4, 0)),
		one("info/irq ERR", cmdIRQ, 0, U32(16, 1, 3, 1), U32(16, 0, 3, 0)),
		one("info/irq MSI-X", cmdIRQ, 0, U32(16, 1, 2, refVectors), U32(16, 0, 2, 0)),
		one("info/irq MSI absent", cmdIRQ, 0, U32(16, 1, 1, 0), U32(16, 0, 1, 0)),
		one("info/irq INTx masks itself", cmdIRQ, 0, U32(16, 7, 0, 1), U32(16, 0, 0, 0)),
		one("info/region larger argsz", cmdRegion, 0, slices.Concat(U32(32, 3, 0, 0), U64(4096, 0)), regionArgs(40, 0)),
		one("info/region read-only, 8 GiB", cmdRegion, 0, slices.Concat(U32(32, 1, 2, 0), U64(hugeSize, 0)), regionArgs(32, 2)),
		one("info/region ROM", cmdRegion, 0, slices.Concat(U32(32, 1, 6, 0), U64(romSize, 0)), regionArgs(32, 6)),
		one("info/region config", cmdRegion, 0, slices.Concat(U32(32, 3, 7, 0), U64(4096, 0)), regionArgs(32, 7)),
		one("info/region absent", cmdRegion, 0, slices.Concat(U32(32, 0, refAbsent, 0), U64(0, 0)), regionArgs(32, refAbsent)),
		one("info/region VGA absent", cmdRegion, 0, slices.Concat(U32(32, 0, refVGA, 0), U64(0, 0)), regionArgs(80, refVGA)),
	})...)
}

// checked is a case of one message with a look at its reply of n bytes.
func (c Case) checked(look func([]byte) error, n int) Case {
	c.Steps[0].Want[0].Check = func(p []byte) error {
		if err := wantLen(p, n); err != nil {
			return err
		}
		return look(p)
	}
	return c
}

// mappedCases are about regions of which the client gets the memory itself.
func mappedCases() []Case {
	whole := slices.Concat(U32(32, 7, refMapped, 0), U64(mappedSize, mappedAt))
	cut := slices.Concat(U32(80, 7, refSparse, 0), U64(sparseSize, sparseAt))
	list := slices.Concat(U32(80, 15, refSparse, 32), U64(sparseSize, sparseAt),
		U32(1|1<<16, 0, 2, 0), U64(0x2000, 0x1000, 0x4000, 0x2000)) // SPARSE_MMAP, version 1
	file := func(region, argsz uint32, want []byte) Step {
		s := ask(cmdRegion, 0, want, regionArgs(argsz, region))
		s.Want[0].File = "file"
		return s
	}
	get := func(region uint32, off uint64, want []byte) Step {
		a := access(region, off, uint32(len(want)))
		return ask(cmdRead, 0, slices.Concat(a, want), a)
	}
	put := func(region uint32, off uint64, data []byte) Step {
		a := access(region, off, uint32(len(data)))
		return ask(cmdWrite, 0, a, a, data)
	}
	holds := func(at int64, b []byte) Check { return Check{Name: "file", Offset: at, Bytes: b} }
	store := func(at int64, b []byte) Check { return Check{Name: "file", Offset: at, Bytes: b, Store: true} }
	eight := []byte{8, 7, 6, 5, 4, 3, 2, 1}
	noFD := func(name, caps string, s Step) Case {
		return Case{Name: name, Raw: true, Steps: []Step{{Send: version(0, 0, caps+"\x00"), Want: []Want{{Command: cmdVersion, Long: true}}}, s}}
	}
	twice := Step{
		Send: slices.Concat(Message(1, cmdRegion, 0, regionArgs(80, refSparse)), Message(2, cmdRegion, 0, regionArgs(32, refMapped))),
		Want: []Want{{ID: 1, Command: cmdRegion, Payload: list, File: "a"}, {ID: 2, Command: cmdRegion, Payload: whole, File: "b"}},
	}
	return reference([]Case{
		steps("mapped/whole BAR, one descriptor", file(refMapped, 32, whole)),
		steps("mapped/areas, argsz 32: no CAPS, no list, no descriptor", ask(cmdRegion, 0, cut, regionArgs(32, refSparse))),
		steps("mapped/areas, argsz 79: cut as well", ask(cmdRegion, 0, cut, regionArgs(79, refSparse))),
		steps("mapped/areas, argsz 80: list and one descriptor", file(refSparse, 80, list)),
		steps("mapped/areas, argsz 4096: argsz 80 in the answer", file(refSparse, 4096, list)),
		steps("mapped/QEMU's two questions", ask(cmdRegion, 0, cut, regionArgs(32, refSparse)), file(refSparse, 80, list)),
		steps("mapped/two answers with a descriptor each", twice),
		steps("mapped/posted question gives no descriptor", post(cmdRegion, regionArgs(80, refSparse)), file(refMapped, 32, whole)),
		noFD("mapped/nothing for a client that takes no descriptor", `{"capabilities":{"max_msg_fds":0}}`,
			ask(cmdRegion, 0, slices.Concat(U32(32, 3, refMapped, 0), U64(mappedSize), U64(0)), regionArgs(80, refMapped)).lookAt(24)),
		steps("mapped/file is as long as its areas", file(refSparse, 80, list).check(holds(sparseAt+0x5ff8, U64(0)))),
		steps("mapped/write by message is in the file", file(refSparse, 80, list), put(refSparse, 0x2010, eight).check(holds(sparseAt+0x2010, eight))),
		steps("mapped/store in the file is seen by message", file(refSparse, 80, list).check(store(sparseAt+0x4ffc, eight)), get(refSparse, 0x4ffc, eight)),
		steps("mapped/whole BAR: both ways", file(refMapped, 32, whole).check(store(mappedAt+0xff8, eight)), get(refMapped, 0xff8, eight),
			put(refMapped, 0, eight).check(holds(mappedAt, eight))),
		steps("mapped/outside the areas by message", put(refSparse, 0x1000, eight), get(refSparse, 0x1000, eight)),
		steps("mapped/one access over an area's edge", put(refSparse, 0x1ffc, eight), get(refSparse, 0x1ffc, eight), get(refSparse, 0x2000, eight[4:])),
		steps("mapped/regions share no memory", put(refMapped, 0, eight), get(refSparse, 0, U64(0)), get(refSparse, 0x2000, U64(0))),
		steps("mapped/next client finds nothing", file(refMapped, 32, whole).check(store(mappedAt, eight)), reconnected(get(refMapped, 0, U64(0)))),
	})
}

// lookAt compares only the first n bytes of the payload.
func (s Step) lookAt(n int) Step {
	want := s.Want[0].Payload[:n]
	s.Want[0].Payload = nil
	s.Want[0].Check = func(p []byte) error {
		if len(p) < n || !slices.Equal(p[:n], want) {
			return fmt.Errorf("payload %s, want %s first", short(p), short(want))
		}
		return nil
	}
	return s
}

func reconnected(s Step) Step {
	s.Reconnect = true
	return s
}
