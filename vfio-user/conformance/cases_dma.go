// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"math"
	"slices"

	"golang.org/x/sys/unix"
)

func mapping(flags uint32, off, iova, size uint64) []byte {
	return slices.Concat(U32(32, flags), U64(off, iova, size))
}

func unmapping(argsz, flags uint32, iova, size uint64) []byte {
	return slices.Concat(U32(argsz, flags), U64(iova, size))
}

func domap(iova, size uint64) Step { return ask(cmdMap, 0, none, mapping(3, 0, iova, size)) }

func overlap(iova, size uint64) Step {
	s := ask(cmdMap, unix.EEXIST, nil, mapping(3, 0, iova, size))
	s.Want[0].Or = unix.EINVAL // libvfio-user
	return s
}

func unmap(iova, size uint64) Step {
	u := unmapping(24, 0, iova, size)
	return ask(cmdUnmap, 0, u, u)
}

func unmapAll() Step {
	u := unmapping(24, 2, 0, 0)
	return ask(cmdUnmap, 0, u, u)
}

func file(v uint64) FD { return FD{Name: fmt.Sprint("file", v), Kind: File, Value: v} }

// maps wants the device to have n maps.
func maps(n uint64) Step { return read(regMaps, 8, U64(n)) }

// blocks unmaps all there is as QEMU does when a vIOMMU is switched on: powers of
// two, never mapped as such, one behind the other.
func blocks() Step {
	var s Step
	for i := range uint16(52) {
		u := unmapping(24, 0, 1<<(12+i), 1<<(12+i))
		s.Send = append(s.Send, Message(i, cmdUnmap, 0, u)...)
		s.Want = append(s.Want, Want{ID: i, Command: cmdUnmap, Payload: u})
	}
	return s
}

// tooMany maps one range more than QEMU's own limit.
func tooMany() Step {
	const most = 65535
	var s Step
	for i := range uint64(most) {
		s.Send = append(s.Send, Message(uint16(i), cmdMap, noReply, mapping(3, 0, i<<13, 0x1000))...)
	}
	s.Send = append(s.Send, Message(7, cmdMap, 0, mapping(3, 0, most<<13, 0x1000))...)
	s.Want = []Want{{ID: 7, Command: cmdMap, Errno: unix.ENOSPC, Or: unix.EINVAL}}
	return s
}

func dmaCases() []Case {
	fd55 := file(0x55).Name
	badMap := func(name string, parts ...[]byte) Case {
		s := ask(cmdMap, unix.EINVAL, nil, parts...).fds(FD{Name: "p", Kind: Pipe}).check(Check{Name: "p", Hangup: true})
		return steps("dma/map "+name, s)
	}
	badUnmap := func(name string, parts ...[]byte) Case {
		return one("dma/unmap "+name, cmdUnmap, unix.EINVAL, nil, parts...)
	}
	fetch := func(addr, v uint64) []Step { return []Step{write(regAddress, U64(addr)), read(regFetch, 8, U64(v))} }

	two := domap(0x10000, 0x1000)
	two.FDs = []FD{{Name: "p", Kind: Pipe}, {Name: "q", Kind: Pipe}}
	two.Want[0].Errno = unix.EINVAL
	two.Want[0].Payload = nil
	two.Checks = []Check{{Name: "p", Hangup: true}, {Name: "q", Hangup: true}}

	huge := domap(1<<63, 1<<63)
	huge.Want[0].Or = unix.ENOSPC

	cases := []Case{
		badMap("short", U32(32, 3)),
		badMap("argsz 31", U32(31, 3), U64(0, 0x10000, 0x1000)),
		badMap("unknown flag", mapping(0x13, 0, 0x10000, 0x1000)),
		badMap("size 0", mapping(3, 0, 0x10000, 0)),
		badMap("size not pages", mapping(3, 0, 0x10000, 0x1001)),
		badMap("address not a page", mapping(3, 0, 0x10001, 0x1000)),
		badMap("address overflows", mapping(3, 0, math.MaxUint64-0xfff, 0x2000)),
		badMap("offset not a page", mapping(3, 1, 0x10000, 0x1000)),
		badMap("offset overflows", mapping(3, math.MaxInt64-0xfff, 0x10000, 0x1000)),
		badMap("offset 2^64", mapping(3, math.MaxUint64-0xfff, 0x10000, 0x1000)),
		steps("dma/map two descriptors", two),
		one("dma/map mmap without a descriptor", cmdMap, unix.EINVAL, nil, mapping(7, 0, 0x10000, 0x1000)),
		one("dma/map file without a descriptor", cmdMap, unix.EINVAL, nil, mapping(11, 0, 0x10000, 0x1000)),
		badUnmap("short", U32(24, 0)),
		badUnmap("argsz 8", unmapping(8, 0, 0x1000, 0x1000)),
		badUnmap("argsz 1 MiB + 8", unmapping(1<<20+8, 0, 0x1000, 0x1000)),
		badUnmap("flags 4", unmapping(24, 4, 0x1000, 0x1000)),
		badUnmap("dirty bitmap", unmapping(24, 1, 0x1000, 0x1000)),
		badUnmap("all with a range", unmapping(24, 2, 0x1000, 0x1000)),
		badUnmap("all, dirty bitmap", unmapping(24, 3, 0, 0)),
		badUnmap("size 0", unmapping(24, 0, 0x1000, 0)),
		badUnmap("size 0 at 0", unmapping(24, 0, 0, 0)),
		badUnmap("overflows", unmapping(24, 0, math.MaxUint64, 0x1000)),
		steps("dma/unmap never mapped", unmap(0x10000, 0x1000), unmap(1<<46, 1<<46), unmap(0, 1<<47), unmap(1<<63, 1<<63)),
		steps("dma/unmap all, none there", unmapAll()),
		steps("dma/map and unmap without a descriptor", domap(0xfffc0000, 0x40000), unmap(0xfffc0000, 0x40000)),
		steps("dma/map 4 TiB without a descriptor", domap(1<<42, 1<<42), unmap(1<<42, 1<<42)),
		steps("dma/map 2^63 bytes, or ENOSPC", huge, unmap(1<<63, 1<<63)),
		steps("dma/map at 0", domap(0, 0x1000).fds(file(1)), unmap(0, 0x1000)),
		steps("dma/map before anything else", domap(0, 0x10000).fds(file(1)), domap(0xfffc0000, 0x40000)),
		steps("dma/unmap twice", domap(0x10000, 0x1000), unmap(0x10000, 0x1000), unmap(0x10000, 0x1000)),
		steps("dma/map again after unmap", domap(0x10000, 0x1000), unmap(0x10000, 0x1000), domap(0x10000, 0x2000), unmap(0x10000, 0x2000)),
		steps("dma/unmap all, posted", domap(0x10000, 0x1000), post(cmdUnmap, unmapping(24, 2, 0, 0)), domap(0x10000, 0x1000)),
		steps("dma/unmap the whole address space in blocks", blocks()),
		steps("dma/map overlaps", domap(0x10000, 0x3000), overlap(0xf000, 0x2000), overlap(0x12000, 0x2000), overlap(0x11000, 0x1000), overlap(0xf000, 0x10000),
			domap(0xf000, 0x1000), domap(0x13000, 0x1000)),
		steps("dma/map that wraps overlaps nothing", domap(0, 0x1000), ask(cmdMap, unix.EINVAL, nil, mapping(3, 0, math.MaxUint64-0xfff, 0x2000)), domap(math.MaxUint64-0xfff, 0x1000)),
		steps("dma/map at the end of the address space", domap(math.MaxUint64-0xfff, 0x1000), unmap(math.MaxUint64-0xfff, 0x1000)),
	}
	// A vIOMMU: one message a page, each with a descriptor and its place in the file.
	var viommu []Step
	for i := range uint64(16) {
		fd := file(0x55)
		if i > 0 {
			fd.Kind = Same
		}
		viommu = append(viommu, ask(cmdMap, 0, none, mapping(3, i<<12, 0x100000+i<<13, 0x1000)).fds(fd))
	}
	viommu[15] = viommu[15].check(Check{Name: fd55, Offset: 0x5008, Bytes: U64(0x1234), Store: true})
	// The firmware's remapping of RAM: nothing is waited for until the end.
	piece := func(id uint16, from, to uint64) Step {
		return Step{Send: Message(id, cmdMap, 0, mapping(3, from, from, to-from)), FDs: []FD{{Name: fd55, Kind: Same}}}
	}
	remap := []Step{{Send: Message(1, cmdUnmap, 0, unmapping(24, 0, 0, 0x10000))}, piece(2, 0, 0x4000), piece(3, 0x4000, 0x8000), piece(4, 0x8000, 0x10000)}
	remap[3].Want = []Want{{ID: 1, Command: cmdUnmap}, {ID: 2, Command: cmdMap}, {ID: 3, Command: cmdMap}, {ID: 4, Command: cmdMap}}
	var batch Step
	for i := range uint64(12) {
		batch.Send = append(batch.Send, Message(uint16(i), cmdMap, 0, mapping(3, 0, i<<16, 0x1000))...)
		batch.Want = append(batch.Want, Want{ID: uint16(i), Command: cmdMap, Payload: none})
	}
	// Three messages, the second without a descriptor, are likely to be read
	// together; whose descriptor is whose shows in the content.
	first := domap(0x10000, 0x1000).fds(file(0x1111))
	first.Want = nil
	middle := Step{Send: Message(7, cmdMap, 0, mapping(3, 0, 0x20000, 0x1000))}
	last := domap(0x30000, 0x10000).fds(file(0x3333))
	last.Want = append(slices.Repeat(last.Want, 1), last.Want[0], last.Want[0])

	order := Step{FDs: []FD{file(0x5555)}, Send: Message(7, cmdMap, 0, mapping(3, 0, 0x50000, 0x1000)), Split: 1,
		Want: []Want{{ID: 7, Command: cmdMap, Payload: none}}}
	return append(cases, reference([]Case{
		steps("dma/the same map again", domap(0x10000, 0x1000), ask(cmdMap, unix.EEXIST, nil, mapping(3, 0, 0x10000, 0x1000)), maps(1)),
		steps("dma/unmap half of a map", domap(0x10000, 0x2000), unmap(0x10000, 0x1000), maps(1), unmap(0xf000, 0x3000), maps(0)),
		steps("dma/unmap up to 2^64", domap(1<<63, 0x1000), domap(math.MaxUint64-0xfff, 0x1000), domap(0x1000, 0x1000), unmap(1<<63, 1<<63), maps(1)),
		steps("dma/vIOMMU: blocks that cover live maps", domap(0x10000, 0x1000), domap(1<<40, 0x1000), blocks(), maps(0)),
		steps("dma/vIOMMU: a page, a descriptor, a file offset each", slices.Concat(viommu, fetch(0x10a008, 0x1234), fetch(0x100000, 0x55), []Step{maps(16)})...),
		steps("dma/as many maps as agreed on, and one more", tooMany()),
		steps("dma/remap shows the other file", slices.Concat([]Step{domap(0x10000, 0x1000).fds(file(1))}, fetch(0x10000, 1), []Step{unmap(0x10000, 0x1000), domap(0x10000, 0x1000).fds(file(2))}, fetch(0x10000, 2))...),
		steps("dma/firmware: unmap all RAM and map it in pieces, unwaited for", slices.Concat([]Step{domap(0, 0x10000).fds(file(0x55)).check(Check{Name: fd55, Offset: 0x5008, Bytes: U64(0x4321), Store: true})},
			remap, []Step{unmap(0, 0x4000), unmap(0x4000, 0x4000), unmap(0x8000, 0x8000), domap(0, 0x10000).fds(FD{Name: fd55, Kind: Same})}, remap,
			fetch(0x5008, 0x4321), fetch(0, 0x55), []Step{maps(3)})...),
		steps("dma/read-only", ask(cmdMap, 0, none, mapping(1, 0, 0x10000, 0x1000)).fds(file(1)), maps(1)),
		steps("dma/flags 0 and access modes", ask(cmdMap, 0, none, mapping(0, 0, 0x10000, 0x1000)),
			ask(cmdMap, 0, none, mapping(7, 0, 0x20000, 0x1000)).fds(file(1)),
			ask(cmdMap, 0, none, mapping(11, 0, 0x30000, 0x1000)).fds(file(2)), maps(3)),
		steps("dma/errno of the device", domap(0x10000, 0x2000), ask(cmdMap, unix.EEXIST, nil, mapping(3, 0, 0x11000, 0x1000)).
			fds(FD{Name: "p", Kind: Pipe}).check(Check{Name: "p", Hangup: true}), maps(1)),
		steps("dma/unmap a block that covers two", domap(0x10000, 0x1000), domap(0x20000, 0x1000), domap(0x90000, 0x1000), maps(3), unmap(0, 0x80000), maps(1)),
		steps("dma/unmap all", domap(0x10000, 0x1000), domap(0x20000, 0x1000), unmapAll(), maps(0)),
		steps("dma/descriptor is closed by unmap", domap(0x10000, 0x1000).fds(FD{Name: "p", Kind: Pipe}), unmap(0x10000, 0x1000).check(Check{Name: "p", Hangup: true})),
		steps("dma/twelve in one write", batch, maps(12)),
		steps("dma/descriptors find their messages", slices.Concat([]Step{first, middle, last}, fetch(0x10000, 0x1111), fetch(0x30000, 0x3333),
			[]Step{write(regAddress, U64(0x20000)), ask(cmdRead, unix.EFAULT, nil, access(refRegs, regFetch, 8))})...),
		steps("dma/descriptor with a message in pieces", append([]Step{order}, fetch(0x50000, 0x5555)...)...),
		steps("dma/posted map", slices.Concat([]Step{post(cmdMap, mapping(3, 0, 0x10000, 0x1000)).fds(file(9))}, fetch(0x10000, 9))...),
	})...)
}
