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
	var thousand []byte
	for i := range uint64(1000) {
		thousand = append(thousand, Message(8, cmdWrite, noReply, access(refRegs, 0, 8), U64(i))...)
	}
	thousand = append(thousand, Message(7, cmdRead, 0, access(refRegs, 0, 8))...)
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
		one("region/read nothing at the end", cmdRead, 0, access(configSpace, 4096, 0), access(configSpace, 4096, 0)).needs(NeedPCIe),
		one("region/write nothing", cmdWrite, 0, access(configSpace, 0, 0), access(configSpace, 0, 0)),
		badWrite("short payload", unix.EINVAL, U64(0)),
		badWrite("less data than count", unix.EINVAL, access(configSpace, 0, 4), []byte{1, 2, 3}),
		badWrite("more data than count", unix.EINVAL, access(configSpace, 0, 4), []byte{1, 2, 3, 4, 5}),
		badWrite("count overflows", unix.EINVAL, access(configSpace, 0, 1<<32-1), eight),
		badWrite("over the end", unix.EINVAL, access(configSpace, 4092, 8), eight),
		badWrite("offset overflows", unix.EINVAL, access(configSpace, math.MaxUint64-3, 8), eight),
		badWrite("of no region", unix.EINVAL, access(9, 0, 8), eight),
		Case{Name: "region/whole config space in one read", Steps: []Step{{
			Send: Message(7, cmdRead, 0, access(configSpace, 0, 4096)),
			Want: []Want{{ID: 7, Command: cmdRead, Check: func(p []byte) error { return wantLen(p, 16+4096) }}}}}}.needs(NeedPCIe),
	}
	return append(cases, reference([]Case{
		badRead("of an absent region", refAbsent, 0, 4),
		badRead("more than 1 MiB of a larger region", refMemory, 0, 1<<20+8),
		badWrite("of an absent region", unix.EINVAL, access(refAbsent, 0, 8), eight),
		badWrite("of a read-only region", unix.EINVAL, access(refReadOnly, 0, 8), eight),
		one("region/read of a read-only region", cmdRead, 0, slices.Concat(access(refReadOnly, 0, 4), U32(0)), access(refReadOnly, 0, 4)),
		one("region/errno of the device", cmdRead, unix.EFAULT, nil, access(refRegs, regFetch, 8)),
		steps("region/every width", write(0, eight), read(0, 1, eight[:1]), read(2, 2, eight[2:4]), read(4, 4, eight[4:]), read(0, 8, eight), read(3, 5, eight[3:])),
		one("region/ROM in one read", cmdRead, 0, nil, access(refROM, 0, romSize)).checked(func(p []byte) error {
			if string(p[16:][:len(romStart)]) != romStart {
				return fmt.Errorf("ROM starts with % x", p[16:20])
			}
			return nil
		}, 16+romSize),
		badWrite("of the ROM", unix.EINVAL, access(refROM, 0, 8), eight),
		badRead("over the end of 8 GiB", refReadOnly, hugeSize-4, 8),
		one("region/last bytes of 8 GiB", cmdRead, 0, slices.Concat(access(refReadOnly, hugeSize-8, 8), U64(0)), access(refReadOnly, hugeSize-8, 8)),
		badRead("one byte over the end", refRegs, regsSize-3, 4),
		badRead("offset and count overflow together", refReadOnly, math.MaxUint64-7, 16),
		badRead("no bytes of an absent region", refAbsent, 0, 0),
		badWrite("1 MiB over a small region", unix.EINVAL, access(refRegs, 0, uint32(len(big))), big),
		badWrite("refused by the device", unix.EINVAL, access(refRegs, regFire+4, 4), eight[:4]),
		steps("region/refused in part: nothing is stored", ask(cmdWrite, unix.EINVAL, nil, access(refMemory, memorySize-4, 8), eight),
			ask(cmdRead, 0, slices.Concat(access(refMemory, memorySize-4, 4), U32(0)), access(refMemory, memorySize-4, 4))),
		steps("region/a read behind a thousand posted writes sees the last", Step{Send: thousand, Want: []Want{{ID: 7, Command: cmdRead, Payload: slices.Concat(access(refRegs, 0, 8), U64(999))}}}),
		steps("region/read before and behind a write in one flow", Step{
			Send: slices.Concat(Message(1, cmdRead, 0, mem(0, 8)), Message(2, cmdWrite, 0, mem(0, 8), eight), Message(3, cmdRead, 0, mem(0, 8))),
			Want: []Want{{ID: 1, Command: cmdRead, Payload: slices.Concat(mem(0, 8), U64(0))}, {ID: 2, Command: cmdWrite, Payload: mem(0, 8)},
				{ID: 3, Command: cmdRead, Payload: slices.Concat(mem(0, 8), eight)}}}),
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
