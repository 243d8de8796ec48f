// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func access(region uint32, off uint64, count uint32) []byte {
	return slices.Concat(U64(off), U32(region, count))
}

// read reads a register of the reference device.
func read(reg uint64, n uint32, want []byte) Step {
	a := access(refRegs, reg, n)
	return ask(cmdRead, 0, slices.Concat(a, want), a)
}

func write(reg uint64, data []byte) Step {
	a := access(refRegs, reg, uint32(len(data)))
	return ask(cmdWrite, 0, a, a, data)
}

func badRead(name string, region uint32, off uint64, count uint32) Case {
	return one("region/read "+name, cmdRead, unix.EINVAL, nil, access(region, off, count))
}

func regionCases() []Case {
	badWrite := func(name string, errno syscall.Errno, parts ...[]byte) Case {
		return one("region/write "+name, cmdWrite, errno, nil, parts...)
	}
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
	mem := func(off uint64, n int) []byte { return access(refMemory, off, uint32(n)) }
	eight := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	cases := []Case{
		badRead("of no region", 9, 0, 4),
		badRead("of region 2^32-1", 1<<32-1, 0, 4),
		badRead("offset overflows", configSpace, math.MaxUint64, 256),
		badRead("over the end", configSpace, 4092, 8),
		badRead("behind the end", configSpace, 4097, 0),
		badRead("more than 1 MiB", configSpace, 0, 1<<20+8),
		badRead("count 2^32-1", configSpace, 0, 1<<32-1),
		one("region/read short payload", cmdRead, unix.EINVAL, nil, U64(0)),
		one("region/read long payload", cmdRead, unix.EINVAL, nil, access(configSpace, 0, 4), U32(0)),
		one("region/read nothing", cmdRead, 0, access(configSpace, 0, 0), access(configSpace, 0, 0)),
		one("region/read nothing at the end", cmdRead, 0, access(configSpace, 4096, 0), access(configSpace, 4096, 0)),
		one("region/write nothing", cmdWrite, 0, access(configSpace, 0, 0), access(configSpace, 0, 0)),
		badWrite("short payload", unix.EINVAL, U64(0)),
		badWrite("less data than count", unix.EINVAL, access(configSpace, 0, 4), []byte{1, 2, 3}),
		badWrite("more data than count", unix.EINVAL, access(configSpace, 0, 4), []byte{1, 2, 3, 4, 5}),
		badWrite("count overflows", unix.EINVAL, access(configSpace, 0, 1<<32-1), eight),
		badWrite("over the end", unix.EINVAL, access(configSpace, 4092, 8), eight),
		badWrite("offset overflows", unix.EINVAL, access(configSpace, math.MaxUint64-3, 8), eight),
		badWrite("of no region", unix.EINVAL, access(9, 0, 8), eight),
		{Name: "region/whole config space in one read", Steps: []Step{{
			Send: Message(7, cmdRead, 0, access(configSpace, 0, 4096)),
			Want: []Want{{ID: 7, Command: cmdRead, Check: func(p []byte) error { return wantLen(p, 16+4096) }}}}}},
	}
	return append(cases, reference([]Case{
		badRead("of an absent region", refAbsent, 0, 4),
		badRead("more than 1 MiB of a larger region", refMemory, 0, 1<<20+8),
		badWrite("of an absent region", unix.EINVAL, access(refAbsent, 0, 8), eight),
		badWrite("of a read-only region", unix.EINVAL, access(refReadOnly, 0, 8), eight),
		one("region/read of a read-only region", cmdRead, 0, slices.Concat(access(refReadOnly, 0, 4), U32(0)), access(refReadOnly, 0, 4)),
		one("region/errno of the device", cmdRead, unix.EFAULT, nil, access(refRegs, regFetch, 8)),
		steps("region/every width", write(0, eight), read(0, 1, eight[:1]), read(2, 2, eight[2:4]), read(4, 4, eight[4:]), read(0, 8, eight), read(3, 5, eight[3:])),
		steps("region/posted write", post(cmdWrite, access(refRegs, 8, 8), eight), read(8, 8, eight)),
		steps("region/posted writes that fail", post(cmdWrite, access(refAbsent, 8, 8), eight), post(cmdWrite, access(refRegs, 8, 7), eight),
			post(cmdWrite, access(refRegs, regFire+4, 8), eight), post(cmdWrite, access(refRegs, 8, 8), eight), read(8, 8, eight)),
		steps("region/posted read", post(cmdRead, access(refRegs, 0, 8))),
		steps("region/1 MiB", ask(cmdWrite, 0, mem(8, len(big)), mem(8, len(big)), big),
			ask(cmdRead, 0, slices.Concat(mem(8, len(big)), big), mem(8, len(big)))),
		steps("region/1 MiB in odd pieces behind a small one", Step{
			Send: slices.Concat(Message(1, cmdRead, 0, mem(0, 8)), Message(2, cmdWrite, noReply, mem(16, len(big)), big), Message(3, cmdRead, 0, mem(16, 16))),
			Want: []Want{{ID: 1, Command: cmdRead, Payload: slices.Concat(mem(0, 8), U64(0))},
				{ID: 3, Command: cmdRead, Payload: slices.Concat(mem(16, 16), big[:16])}},
		}.split(77777)),
	})...)
}

func multiCases() []Case {
	entry := func(region uint32, off uint64, count uint32, v uint64) []byte {
		return slices.Concat(access(region, off, count), U64(v))
	}
	many := []byte{}
	want := []byte{}
	for i := range uint64(200) {
		many = append(many, entry(refRegs, 8*i, 8, i*i+1)...)
		want = append(want, U64(i*i+1)...)
	}
	read200 := ask(cmdRead, 0, slices.Concat(access(refRegs, 0, 1600), want), access(refRegs, 0, 1600))
	bad := func(name string, parts ...[]byte) Case {
		return one("multi/"+name, cmdMulti, unix.EINVAL, nil, parts...)
	}
	unoffered := Case{Name: "multi/not agreed on", Raw: true, Steps: []Step{
		{Send: version(0, 0, "{\"capabilities\":{}}\x00"+strings.Repeat("\x00", 100)), Want: []Want{{Command: cmdVersion}}},
		ask(cmdMulti, unix.EINVAL, nil, U64(0)),
	}}
	return append([]Case{
		bad("short", U32(0)),
		bad("more writes than data", U64(2), entry(configSpace, 0, 0, 0)),
		bad("fewer writes than data", U64(0), entry(configSpace, 0, 0, 0)),
		bad("half a write", U64(1), U64(0)),
		bad("number times size overflows", U64(1<<61+1), entry(configSpace, 0, 0, 0)),
		bad("number 2^64-1", U64(math.MaxUint64), entry(configSpace, 0, 0, 0)),
		one("multi/none", cmdMulti, 0, U64(0), U64(0)),
		unoffered,
	}, reference([]Case{
		steps("multi/one posted", post(cmdMulti, U64(1), entry(refRegs, 16, 4, 0x11223344)), read(16, 8, U64(0x11223344))),
		steps("multi/200 posted", post(cmdMulti, U64(200), many), read200),
		steps("multi/200 with reply", ask(cmdMulti, 0, U64(200), U64(200), many), read200),
		steps("multi/regions mixed", post(cmdMulti, U64(3), entry(refRegs, 16, 2, 0xffff_1234), entry(refMemory, 0, 8, 5), entry(configSpace, cfgLine, 1, 9)),
			read(16, 4, U32(0x1234)),
			ask(cmdRead, 0, slices.Concat(access(refMemory, 0, 8), U64(5)), access(refMemory, 0, 8)),
			ask(cmdRead, 0, slices.Concat(access(configSpace, cfgLine, 1), []byte{9}), access(configSpace, cfgLine, 1))),
		steps("multi/a bad one stops no other", ask(cmdMulti, unix.EINVAL, nil, U64(5), entry(refRegs, 0, 8, 1), entry(refRegs, 8, 9, 2),
			entry(refAbsent, 0, 8, 3), entry(refRegs, 4092, 8, 4), entry(refRegs, 8, 8, 5)), read(0, 16, U64(1, 5))),
		steps("multi/writes in order", post(cmdMulti, U64(3), entry(refRegs, 0, 8, 1), entry(refRegs, 0, 8, 2), entry(refRegs, 0, 4, 3)), read(0, 8, U64(3))),
	})...)
}

func dmaCases() []Case {
	mapping := func(flags uint32, off, iova, size uint64) []byte {
		return slices.Concat(U32(32, flags), U64(off, iova, size))
	}
	unmapping := func(argsz, flags uint32, iova, size uint64) []byte {
		return slices.Concat(U32(argsz, flags), U64(iova, size))
	}
	badMap := func(name string, parts ...[]byte) Case {
		s := ask(cmdMap, unix.EINVAL, nil, parts...).fds(FD{Name: "p", Kind: Pipe}).check(Check{Name: "p", Hangup: true})
		return steps("dma/map "+name, s)
	}
	file := func(v uint64) FD { return FD{Name: fmt.Sprint("file", v), Kind: File, Value: v} }
	domap := func(iova, size uint64) Step { return ask(cmdMap, 0, none, mapping(3, 0, iova, size)) }
	unmap := func(iova, size uint64) Step {
		u := unmapping(24, 0, iova, size)
		return ask(cmdUnmap, 0, u, u)
	}
	badUnmap := func(name string, parts ...[]byte) Case {
		return one("dma/unmap "+name, cmdUnmap, unix.EINVAL, nil, parts...)
	}
	maps := func(n uint64) Step { return read(regMaps, 8, U64(n)) }
	fetch := func(addr, v uint64) []Step { return []Step{write(regAddress, U64(addr)), read(regFetch, 8, U64(v))} }
	all := unmapping(24, 2, 0, 0)

	two := domap(0x10000, 0x1000)
	two.FDs = []FD{{Name: "p", Kind: Pipe}, {Name: "q", Kind: Pipe}}
	two.Want[0].Errno = unix.EINVAL
	two.Want[0].Payload = nil
	two.Checks = []Check{{Name: "p", Hangup: true}, {Name: "q", Hangup: true}}

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
		one("dma/unmap all, none there", cmdUnmap, 0, all, all),
		steps("dma/map and unmap without a descriptor", domap(0xfffc0000, 0x40000), unmap(0xfffc0000, 0x40000)),
		steps("dma/map at the end of the address space", domap(math.MaxUint64-0xfff, 0x1000), unmap(math.MaxUint64-0xfff, 0x1000)),
	}
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
		steps("dma/read-only", ask(cmdMap, 0, none, mapping(1, 0, 0x10000, 0x1000)).fds(file(1)), maps(1)),
		steps("dma/flags 0 and access modes", ask(cmdMap, 0, none, mapping(0, 0, 0x10000, 0x1000)),
			ask(cmdMap, 0, none, mapping(7, 0, 0x20000, 0x1000)).fds(file(1)),
			ask(cmdMap, 0, none, mapping(11, 0, 0x30000, 0x1000)).fds(file(2)), maps(3)),
		steps("dma/errno of the device", domap(0x10000, 0x2000), ask(cmdMap, unix.EEXIST, nil, mapping(3, 0, 0x11000, 0x1000)).
			fds(FD{Name: "p", Kind: Pipe}).check(Check{Name: "p", Hangup: true}), maps(1)),
		steps("dma/unmap a block that covers two", domap(0x10000, 0x1000), domap(0x20000, 0x1000), domap(0x90000, 0x1000), maps(3), unmap(0, 0x80000), maps(1)),
		steps("dma/unmap all", domap(0x10000, 0x1000), domap(0x20000, 0x1000), ask(cmdUnmap, 0, all, all), maps(0)),
		steps("dma/descriptor is closed by unmap", domap(0x10000, 0x1000).fds(FD{Name: "p", Kind: Pipe}), unmap(0x10000, 0x1000).check(Check{Name: "p", Hangup: true})),
		steps("dma/twelve in one write", batch, maps(12)),
		steps("dma/descriptors find their messages", slices.Concat([]Step{first, middle, last}, fetch(0x10000, 0x1111), fetch(0x30000, 0x3333),
			[]Step{write(regAddress, U64(0x20000)), ask(cmdRead, unix.EFAULT, nil, access(refRegs, regFetch, 8))})...),
		steps("dma/descriptor with a message in pieces", append([]Step{order}, fetch(0x50000, 0x5555)...)...),
		steps("dma/posted map", slices.Concat([]Step{post(cmdMap, mapping(3, 0, 0x10000, 0x1000)).fds(file(9))}, fetch(0x10000, 9))...),
	})...)
}
