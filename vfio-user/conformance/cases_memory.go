// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"syscall"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
	"golang.org/x/sys/unix"
)

const (
	cmdDMARead  = vfiouser.CmdDMARead
	cmdDMAWrite = vfiouser.CmdDMAWrite
	guest       = 0x40000 // where the memory of these cases is
)

// stored and loaded are what the device does to a piece of guest memory.
func stored(iova uint64, data []byte) DMA {
	return DMA{Command: cmdDMAWrite, Address: iova, Count: uint64(len(data)), Data: data}
}

func loaded(iova uint64, data []byte) DMA {
	return DMA{Command: cmdDMARead, Address: iova, Count: uint64(len(data)), Data: data}
}

func (d DMA) answers(a ...Answer) DMA {
	d.Answers = a
	return d
}

func (d DMA) hold(name string) DMA {
	d.Hold = name
	return d
}

func (s Step) dma(d ...DMA) Step {
	s.DMA = d
	return s
}

func (s Step) release(names ...string) Step {
	s.Release = names
	return s
}

// done enables the vector by which the device tells that a DMA has ended.
func done() Step { return enable(refDone, "done") }

// ended wants the nth DMA since the client came to have ended like this.
func ended(n uint32, errno syscall.Errno) []Step {
	return []Step{settle(count("done", 1)), read(regStatus, 8, U32(uint32(errno), n))}
}

// endedBadly wants an error, whichever.
func endedBadly(n uint32) []Step {
	a := access(refRegs, regStatus, 8)
	s := ask(cmdRead, 0, nil, a)
	s.Want[0].Check = func(p []byte) error {
		if errno, got := binary.LittleEndian.Uint32(p[16:]), binary.LittleEndian.Uint32(p[20:]); got != n || errno == 0 {
			return fmt.Errorf("%d DMAs have ended, the last with errno %d; want %d and an error", got, errno, n)
		}
		return nil
	}
	return []Step{settle(count("done", 1)), s}
}

// memoryCases: a device stores to guest memory and loads from it, where the client
// gave a descriptor and where it did not.
func memoryCases() []Case {
	data := pattern(64)
	word := U64(0x1122334455667788)
	run := write(regDMA, U64(guest))
	load := write(regDMARead, U64(guest))
	ram := domap(guest, 0x10000) // no descriptor
	one := func(name string, s ...[]Step) Case { return steps("memory/"+name, slices.Concat(s...)...) }
	// message is a case of one load by message, which ends with this errno.
	message := func(name string, errno syscall.Errno, d ...DMA) Case {
		return one(name, []Step{ram, done(), load.dma(d...)}, ended(1, errno))
	}
	bad := func(name string, d ...DMA) Case {
		return one(name, []Step{ram, done(), load.dma(d...)}, endedBadly(1))
	}
	// mapped is a case of a store and a load without any message.
	mapped := func(name string, flags uint32, offset uint64, errno syscall.Errno, want []byte) Case {
		return one(name, []Step{ask(cmdMap, 0, none, mapping(flags, offset, guest, 0x1000)).fds(FD{Name: "ram", Kind: File}), done(),
			run.check(Check{Name: "ram", Offset: int64(offset), Bytes: want})}, ended(1, errno))
	}
	long := pattern(2*4096 + 42)
	small := Step{Send: version(0, 0, `{"capabilities":{"max_msg_fds":8,"max_data_xfer_size":4096}`+strings.Repeat(" ", 150)+"}\x00"), Want: []Want{{Command: cmdVersion}}}
	twin := Step{Send: version(0, 0, `{"capabilities":{"max_msg_fds":8,"max_data_xfer_size":4096,"twin_socket":{"supported":true}}`+strings.Repeat(" ", 150)+"}\x00"),
		Want: []Want{{Command: cmdVersion, File: "twin"}}}
	raw := func(c Case) Case {
		c.Raw = true
		return c
	}
	pieces := func(data []byte, size int) (d []DMA) {
		for _, piece := range []func(uint64, []byte) DMA{stored, loaded} {
			for at := 0; at < len(data); at += size {
				d = append(d, piece(guest+uint64(at), data[at:min(at+size, len(data))]))
			}
		}
		return d
	}
	narrow := DMA{Command: cmdDMAWrite, Address: guest}.answers(Answer{Payload: none}) // QEMU 10: no structure in the answer
	value := func(v []byte) Step { return read(regDMAData, 8, v) }
	maps := read(regMaps, 8, U64(1))
	loadAt := func(off uint64) Step { return write(regDMARead, U64(guest+off)) }
	other := U64(0x99)
	big := pattern(128<<10 + 8)

	return reference([]Case{
		mapped("descriptor, no access mode: no message, data in the file", 3, 0, 0, data),
		mapped("descriptor, to be mapped: no message, data in the file", 7, 0, 0, data),
		mapped("descriptor, for file I/O: no message, data in the file", 11, 0, 0, data),
		mapped("file offset", 3, 0x3000, 0, data),
		mapped("map that is only readable: nothing is stored", 1, 0, unix.EFAULT, make([]byte, 64)),
		mapped("map that is only writable: nothing is loaded", 2, 0, unix.EFAULT, data),
		mapped("map that is neither", 0, 0, unix.EFAULT, make([]byte, 64)),
		one("last bytes of a map", []Step{domap(guest, 0x1000).fds(FD{Name: "ram", Kind: File}), done(),
			write(regDMA, U64(guest+0x1000-64)).check(Check{Name: "ram", Offset: 0x1000 - 64, Bytes: data})}, ended(1, 0)),

		one("no descriptor: one DMA_WRITE, one DMA_READ", []Step{ram, done(), run.dma(stored(guest, data), loaded(guest, data))}, ended(1, 0)),
		one("by message inside a map", []Step{ram, done(), write(regDMA, U64(guest+0x123)).dma(stored(guest+0x123, data), loaded(guest+0x123, data))}, ended(1, 0)),
		one("started by a posted write", []Step{ram, done(), post(cmdWrite, access(refRegs, regDMA, 8), U64(guest)).dma(stored(guest, data), loaded(guest, data))}, ended(1, 0)),
		one("started by a multiple write", []Step{ram, done(), post(cmdMulti, U64(1), access(refRegs, regDMA, 8), U64(guest)).dma(stored(guest, data), loaded(guest, data))}, ended(1, 0)),
		one("what is loaded is what the answer held", []Step{ram, done(), load.dma(loaded(guest, word))}, ended(1, 0), []Step{value(word)}),
		one("one after the other", []Step{ram, done(), load.dma(loaded(guest, word))}, ended(1, 0), []Step{load.dma(loaded(guest, other))}, ended(2, 0), []Step{value(other)}),
		one("128 KiB + 8 go in pieces of 64 KiB", []Step{domap(guest, 0x40000), done(), write(regLength, U64(uint64(len(big)))), run.dma(pieces(big, 64<<10)...)}, ended(1, 0)),
		raw(one("client's max_data_xfer_size 4096: two pages and 42 bytes", []Step{small, ram, done(), write(regLength, U64(uint64(len(long)))), run.dma(pieces(long, 4096)...)}, ended(1, 0))),
		one("over two maps that touch", []Step{domap(guest, 0x1000), domap(guest+0x1000, 0x1000), done(), loadAt(0xffc).dma(loaded(guest+0xffc, word))}, ended(1, 0)),

		// Memory that is not mapped is not asked for.
		one("not mapped: no message", []Step{done(), load}, ended(1, unix.EFAULT)),
		one("over the end of a map: no message", []Step{domap(guest, 0x1000), done(), loadAt(0xffc)}, ended(1, unix.EFAULT)),
		one("before the start of a map: no message", []Step{domap(guest+0x1000, 0x1000), done(), loadAt(0xffc)}, ended(1, unix.EFAULT)),
		one("address wraps: no message", []Step{domap(1<<64-0x1000, 0x1000), domap(0, 0x1000), done(), write(regDMARead, U64(1<<64-4))}, ended(1, unix.EFAULT)),
		one("only readable: no DMA_WRITE", []Step{ask(cmdMap, 0, none, mapping(1, 0, guest, 0x1000)), done(), run}, ended(1, unix.EFAULT)),
		one("only writable: no DMA_READ", []Step{ask(cmdMap, 0, none, mapping(2, 0, guest, 0x1000)), done(), load}, ended(1, unix.EFAULT)),
		one("unmapped a moment ago: no message", []Step{ram, unmap(guest, 0x10000), done(), load}, ended(1, unix.EFAULT)),

		message("answer EIO to a load", unix.EIO, loaded(guest, word).answers(Answer{Errno: unix.EIO})),
		message("answer ENODEV, as for a hole or with bus mastering off", unix.ENODEV, loaded(guest, word).answers(Answer{Errno: unix.ENODEV})),
		one("answer EIO to a store: no load follows", []Step{ram, done(), run.dma(stored(guest, data).answers(Answer{Errno: unix.EIO}))}, ended(1, unix.EIO)),
		one("an error is of its DMA alone", []Step{ram, done(), load.dma(loaded(guest, word).answers(Answer{Errno: unix.EIO}))}, ended(1, unix.EIO), []Step{load.dma(loaded(guest, word))}, ended(2, 0)),
		bad("answer: error flag, errno 0", loaded(guest, word).answers(Answer{Flags: vfiouser.FlagReply | vfiouser.FlagError, Payload: none})),
		bad("answer: errno 2^32-1", loaded(guest, word).answers(Answer{Errno: 1<<32 - 1})),
		bad("answer without a payload", loaded(guest, word).answers(Answer{Payload: none})),
		bad("answer with half a structure", loaded(guest, word).answers(Answer{Payload: U64(guest)})),
		bad("answer with less data than its count", loaded(guest, word).answers(Answer{Payload: slices.Concat(U64(guest, 8), word[:7])})),
		bad("answer with more data than its count", loaded(guest, word).answers(Answer{Payload: slices.Concat(U64(guest, 8), word, word)})),
		bad("answer with a count above the one asked for", loaded(guest, word).answers(Answer{Payload: slices.Concat(U64(guest, 16), word, word)})),
		bad("answer with count 2^64-1", loaded(guest, word).answers(Answer{Payload: slices.Concat(U64(guest, 1<<64-1), word)})),
		bad("answer about another address", loaded(guest, word).answers(Answer{Payload: slices.Concat(U64(guest+8, 8), word)})),
		bad("answer with count 0", loaded(guest, word).answers(Answer{Payload: U64(guest, 0)})),
		message("answer with a part: the rest is asked for", 0, loaded(guest, word).answers(Answer{Payload: slices.Concat(U64(guest, 5), word[:5])}), loaded(guest+5, word[5:])),
		message("answer with descriptors: they are closed", 0, loaded(guest, word).answers(Answer{FDs: []FD{{Name: "p", Kind: Pipe}}})).then(settle(Check{Name: "p", Hangup: true})),
		message("answer under a wrong id, then the right one", 0, loaded(guest, word).answers(Answer{OtherID: true}, Answer{})),
		message("answer of a wrong command, then the right one", 0, loaded(guest, word).answers(Answer{Command: cmdDMAWrite}, Answer{})),

		one("answer late: registers are served meanwhile", []Step{ram, done(), load.dma(loaded(guest, word).hold("late")), maps, read(regStatus, 8, U64(0)), write(8, word), settle().release("late")},
			ended(1, 0), []Step{value(word)}),
		one("two loads, answers in the other order", []Step{ram, done(), load.dma(loaded(guest, word)), settle(count("done", 1)),
			load.dma(loaded(guest, word).hold("first")), loadAt(64).dma(loaded(guest+64, other).hold("second")), settle().release("second")}, ended(2, 0), []Step{value(other), settle().release("first")},
			ended(3, 0), []Step{value(word)}),
		one("unmap does not wait for the answer, which comes late", []Step{ram, done(), load.dma(loaded(guest, word).hold("late")), unmap(guest, 0x10000)}, ended(1, unix.ECANCELED),
			[]Step{settle().release("late"), value(U64(0))}),
		one("unmap of other memory leaves it", []Step{ram, domap(0x100000, 0x1000), done(), load.dma(loaded(guest, word).hold("late")), unmap(0x100000, 0x1000), settle().release("late")}, ended(1, 0), []Step{value(word)}),
		one("unmap all does not wait for the answer", []Step{ram, done(), load.dma(loaded(guest, word).hold("late")), unmapAll()}, ended(1, unix.ECANCELED), []Step{settle().release("late")}),
		one("DEVICE_RESET does not wait for the answer", []Step{ram, done(), load.dma(loaded(guest, word).hold("late")), ask(cmdReset, 0, none)}, ended(1, unix.ECANCELED), []Step{settle().release("late")}),
		one("FLR does not wait for the answer", []Step{ram, done(), load.dma(loaded(guest, word).hold("late")), configWrite(cfgDevCtl, 0, 0x80)}, ended(1, unix.ECANCELED), []Step{settle().release("late")}),
		one("a late answer is not taken for the next DMA's", []Step{ram, done(), load.dma(loaded(guest, word).hold("late")), ask(cmdReset, 0, none)}, ended(1, unix.ECANCELED),
			[]Step{load.dma(loaded(guest, other).hold("next")), settle().release("late"), settle().release("next")}, ended(2, 0), []Step{value(other)}),
		one("never answered, client gone", []Step{ram, done(), load.dma(loaded(guest, word).hold("never")), reconnected(read(regMaps, 8, U64(0))), ram, done(), load.dma(loaded(guest, word))}, ended(1, 0)),

		one("QEMU 10's encoding is noticed before any data moves", []Step{ram, done(), run.dma(narrow)}, ended(1, unix.EPROTONOSUPPORT)),
		one("QEMU 10's encoding is not tried again", []Step{ram, done(), load.dma(narrow)}, ended(1, unix.EPROTONOSUPPORT), []Step{load}, ended(2, unix.EPROTONOSUPPORT)),
		one("QEMU 10's encoding is one client's", []Step{ram, done(), load.dma(narrow)}, ended(1, unix.EPROTONOSUPPORT), []Step{reconnected(settle()), ram, done(), load.dma(loaded(guest, word))}, ended(1, 0)),
		one("QEMU 10 with shared memory works", []Step{domap(guest, 0x1000).fds(FD{Name: "ram", Kind: File}), done(), run.check(Check{Name: "ram", Bytes: data})}, ended(1, 0)),

		raw(one("twin socket: store and load there", []Step{twin, ram, done(), run.dma(stored(guest, data), loaded(guest, data))}, ended(1, 0))),
		raw(one("twin socket: pieces of 4096", []Step{twin, ram, done(), write(regLength, U64(uint64(len(long)))), run.dma(pieces(long, 4096)...)}, ended(1, 0))),
		raw(one("twin socket: answer EIO", []Step{twin, ram, done(), load.dma(loaded(guest, word).answers(Answer{Errno: unix.EIO}))}, ended(1, unix.EIO))),
		raw(one("twin socket: unmap does not wait", []Step{twin, ram, done(), load.dma(loaded(guest, word).hold("late")), unmap(guest, 0x10000)}, ended(1, unix.ECANCELED), []Step{settle().release("late")})),
		raw(one("twin socket: mapped memory needs it not", []Step{twin, domap(guest, 0x1000).fds(FD{Name: "ram", Kind: File}), done(), run.check(Check{Name: "ram", Bytes: data})}, ended(1, 0))),
	})
}

// then adds steps to the end.
func (c Case) then(s ...Step) Case {
	c.Steps = slices.Concat(c.Steps, s)
	return c
}

// settleCases: the device takes a while to end its DMA. The reply comes when it
// has; everything else goes on.
func settleCases() []Case {
	busy := write(regBusy, U32(10_000))
	quiet := func(want ...Want) Step {
		s := write(regBusy, U32(0))
		s.Want = append(slices.Clone(s.Want), want...)
		return s
	}
	due := func(id uint16, cmd vfiouser.Command, payload ...[]byte) Step {
		return Step{Send: Message(id, cmd, 0, payload...)}
	}
	reply := func(id uint16, cmd vfiouser.Command, want []byte) Want {
		return Want{ID: id, Command: cmd, Payload: want}
	}
	u := unmapping(24, 0, 0x10000, 0x1000)
	all := unmapping(24, 2, 0, 0)
	reg := access(configSpace, cfgLine, 1)
	one := func(name string, s ...Step) Case { return steps("settle/"+name, s...) }
	return reference([]Case{
		one("unmap waits", domap(0x10000, 0x1000), busy, due(1, cmdUnmap, u), settle(), quiet(reply(1, cmdUnmap, u))),
		one("unmap has its effect at once", domap(0x10000, 0x1000), busy, due(1, cmdUnmap, u), maps(0), quiet(reply(1, cmdUnmap, u))),
		one("unmap all waits", domap(0x10000, 0x1000), busy, due(1, cmdUnmap, all), maps(0), quiet(reply(1, cmdUnmap, all))),
		one("DEVICE_RESET waits", busy, due(1, cmdReset), read(regResets, 8, U64(1)), quiet(reply(1, cmdReset, none))),
		one("FLR waits", busy, due(1, cmdWrite, access(configSpace, cfgDevCtl, 2), []byte{0, 0x80}), read(regFLRs, 8, U64(1)),
			quiet(reply(1, cmdWrite, access(configSpace, cfgDevCtl, 2)))),
		one("config write waits", busy, due(1, cmdWrite, reg, []byte{5}), configRead(cfgLine, 5), quiet(reply(1, cmdWrite, reg))),
		one("a command that is refused does not wait", busy, ask(cmdUnmap, unix.EINVAL, nil, U32(24, 0)), quiet()),
		one("two that wait", domap(0x10000, 0x1000), busy, due(1, cmdUnmap, u), due(2, cmdReset), settle(), quiet(reply(1, cmdUnmap, u), reply(2, cmdReset, none))),
		one("map, registers and interrupts go on", enable(3, "e"), busy, due(1, cmdUnmap, u), domap(0x20000, 0x1000), write(8, U64(5)), read(8, 8, U64(5)), fire(3).check(count("e", 1)),
			quiet(reply(1, cmdUnmap, u))),
		one("same range mapped anew meanwhile", domap(0x10000, 0x1000), busy, due(1, cmdUnmap, u), domap(0x10000, 0x1000), maps(1), quiet(reply(1, cmdUnmap, u)), maps(1)),
		one("posted ones get no reply afterwards", domap(0x10000, 0x1000), busy, post(cmdUnmap, u), post(cmdReset), maps(0), quiet()),
		one("forty that wait", busy, Step{Send: slices.Repeat(Message(1, cmdReset, 0), 40)}, settle(), quiet(slices.Repeat([]Want{reply(1, cmdReset, none)}, 40)...)),
		one("client gone while a reply is due", domap(0x10000, 0x1000), write(regBusy, U32(50)), due(1, cmdUnmap, u), due(2, cmdReset), reconnected(maps(0)), read(regResets, 8, U64(0))),
		one("quiet again: at once", domap(0x10000, 0x1000), busy, quiet(), unmap(0x10000, 0x1000)),
	})
}
