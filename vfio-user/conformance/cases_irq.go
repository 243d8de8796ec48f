// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"syscall"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
	"golang.org/x/sys/unix"
)

func setIRQs(flags, index, start, count uint32, errno syscall.Errno, data ...byte) Step {
	want := none
	if errno != 0 {
		want = nil
	}
	return ask(cmdSetIRQs, errno, want, U32(uint32(20+len(data)), flags, index, start, count), data)
}

const (
	intx = vfiouser.IRQIntx
	msi  = vfiouser.IRQMSI
	msix = vfiouser.IRQMSIX
	errs = vfiouser.IRQErr
	reqs = vfiouser.IRQReq
)

// fire makes the device raise an MSI-X vector; trigger makes the server do it, on
// any device.
func fire(vector uint32) Step { return write(regFire, U32(vector)) }

func trigger(vector uint32) Step { return setIRQs(0x21, msix, vector, 1, 0) }

// settle only waits for everything before it, and then looks.
func settle(c ...Check) Step { return ask(cmdInfo, 0, nil, U32(16, 0, 0, 0)).check(c...) }

func count(name string, n uint64) Check { return Check{Name: name, Count: n} }

func event(name string, n uint64) FD { return FD{Name: name, Value: n} }

// enable gives an MSI-X vector an eventfd.
func enable(vector uint32, name string) Step {
	return setIRQs(0x24, msix, vector, 1, 0).fds(event(name, 0))
}

func irqCases() []Case {
	bad := func(name string, flags, index, start, count uint32, data ...byte) Case {
		return steps("irq/"+name, setIRQs(flags, index, start, count, unix.EINVAL, data...))
	}
	badFDs := func(name string, flags, count uint32, data []byte, fds ...FD) Case {
		var gone []Check
		for _, f := range fds {
			if f.Kind == Pipe {
				gone = append(gone, Check{Name: f.Name, Hangup: true})
			}
		}
		return steps("irq/"+name, setIRQs(flags, msix, 0, count, unix.EINVAL, data...).fds(fds...).check(gone...))
	}
	p, q := FD{Name: "p", Kind: Pipe}, FD{Name: "q", Kind: Pipe}
	cases := []Case{
		one("irq/empty", cmdSetIRQs, unix.EINVAL, nil),
		one("irq/short", cmdSetIRQs, unix.EINVAL, nil, U32(20, 0x21)),
		one("irq/argsz 3", cmdSetIRQs, unix.EINVAL, nil, U32(3, 0x21, reqs, 0, 0)),
		one("irq/argsz 19", cmdSetIRQs, unix.EINVAL, nil, U32(19, 0x21, msix, 0, 0)),
		bad("index 5", 0x21, 5, 0, 0),
		bad("index 2^32-1", 0x21, 1<<32-1, 0, 0),
		bad("mask ERR", 0x09, errs, 0, 1),
		bad("unmask REQ", 0x11, reqs, 0, 1),
		bad("two of ERR", 0x21, errs, 0, 2),
		bad("two of REQ", 0x24, reqs, 0, 2),
	}
	cases = append(cases, need(NeedMSIX, []Case{
		bad("no flags", 0, msix, 0, 1),
		bad("no action", 0x01, msix, 0, 1),
		bad("no data type", 0x20, msix, 0, 1),
		bad("mask and unmask", 0x19, msix, 0, 1),
		bad("mask and trigger", 0x29, msix, 0, 1),
		bad("none and bool", 0x23, msix, 0, 1, 1),
		bad("none and eventfd", 0x25, msix, 0, 1),
		bad("unknown flag", 0x61, msix, 0, 1),
		// No device has more than 2048 vectors.
		bad("range over the end", 0x21, msix, 2047, 2),
		bad("range behind the end", 0x21, msix, 2049, 1),
		bad("range starts at the end", 0x21, msix, 2048, 0),
		bad("range overflows", 0x21, msix, 284, 1<<32-1),
		bad("none, start 1", 0x21, msix, 1, 0),
		bad("none, mask", 0x09, msix, 0, 0),
		bad("none, unmask", 0x11, msix, 0, 0),
		bad("none, bool", 0x22, msix, 0, 0),
		bad("none, eventfd", 0x24, msix, 0, 0),
		bad("bool too short", 0x22, msix, 0, 2, 1),
		bad("bool too long", 0x22, msix, 0, 2, 1, 1, 1),
		badFDs("descriptors with bool", 0x22, 2, []byte{1, 1}, p, q),
		badFDs("descriptor with none", 0x21, 1, nil, p),
		badFDs("descriptor to switch off", 0x21, 0, nil, p),
		badFDs("one descriptor for two", 0x24, 2, nil, p),
		badFDs("two descriptors for one", 0x24, 1, nil, p, q),
		badFDs("not an eventfd", 0x24, 1, nil, p),
		badFDs("not an eventfd to unmask", 0x14, 1, nil, p),
		badFDs("one of two not an eventfd", 0x24, 2, nil, event("", 0), q),
		steps("irq/all off", setIRQs(0x21, msix, 0, 0, 0)),
		steps("irq/all off twice", setIRQs(0x21, msix, 0, 0, 0), setIRQs(0x21, msix, 0, 0, 0)),
		// What QEMU says first of all: enabled, and no vector yet.
		steps("irq/no eventfd for vector 0", setIRQs(0x24, msix, 0, 1, 0)),
	})...)
	return append(cases, reference([]Case{
		bad("index without vectors", 0x21, msi, 0, 1),
		bad("over the end of this device", 0x21, msix, refVectors-1, 2),
		steps("irq/all of every index off", setIRQs(0x21, msix, 0, 0, 0), setIRQs(0x21, intx, 0, 0, 0), setIRQs(0x21, errs, 0, 0, 0), setIRQs(0x21, reqs, 0, 0, 0)),
		steps("irq/no eventfd for all vectors", setIRQs(0x24, msix, 0, refVectors, 0)),
		steps("irq/eight at once, last vector", setIRQs(0x24, msix, refVectors-8, 8, 0).
			fds(event("", 0), event("", 0), event("", 0), event("", 0), event("", 0), event("", 0), event("", 0), event("last", 0)),
			fire(refVectors-1).check(count("last", 1))),
		steps("irq/ERR by eventfd", setIRQs(0x24, errs, 0, 1, 0).fds(event("e", 0)), setIRQs(0x21, errs, 0, 1, 0).check(count("e", 1)),
			setIRQs(0x24, errs, 0, 1, 0), setIRQs(0x21, errs, 0, 1, 0).check(count("e", 0))),
		steps("irq/REQ by eventfd", setIRQs(0x24, reqs, 0, 1, 0).fds(event("e", 2)), setIRQs(0x22, reqs, 0, 1, 0, 1).check(count("e", 3))),
		steps("irq/indices are apart", setIRQs(0x24, errs, 0, 1, 0).fds(event("e", 0)), enable(0, "m"), trigger(0).check(count("m", 1), count("e", 0)),
			setIRQs(0x21, msix, 0, 0, 0), setIRQs(0x21, errs, 0, 1, 0).check(count("e", 1), count("m", 0))),
	})...)
}

func irqStateCases() []Case {
	setINTx := setIRQs(0x24, intx, 0, 1, 0).fds(event("i", 0)) // as QEMU does
	raiseINTx := func(c ...Check) Step { return write(regFireINT, U32(0)).check(c...) }
	unmaskINTx := func(c ...Check) Step { return setIRQs(0x11, intx, 0, 1, 0).check(c...) }
	level := func(v uint32) Step { return write(regLevel, U32(v)) }
	two := setIRQs(0x24, msix, 0, 2, 0).fds(event("a", 4), event("b", 8))
	eight := func(start uint32, last string) Step {
		return setIRQs(0x24, msix, start, 8, 0).fds(event(last+"0", 0), event("", 0), event("", 0), event("", 0), event("", 0), event("", 0), event("", 0), event(last+"7", 0))
	}
	cases := need(NeedMSIX, []Case{
		steps("irq/trigger none", two, setIRQs(0x21, msix, 1, 1, 0).check(count("a", 4), count("b", 9))),
		steps("irq/trigger bool", two, setIRQs(0x22, msix, 0, 2, 0, 0, 1).check(count("a", 4), count("b", 9))),
		steps("irq/trigger bool of zeros", two, setIRQs(0x22, msix, 0, 2, 0, 0, 0).check(count("a", 4), count("b", 8))),
		steps("irq/trigger bool takes any non-zero byte", two, setIRQs(0x22, msix, 0, 2, 0, 0x80, 2).check(count("a", 5), count("b", 9))),
		steps("irq/trigger a range", two, setIRQs(0x21, msix, 0, 2, 0).check(count("a", 5), count("b", 9))),
		steps("irq/posted trigger", enable(0, "a"), post(cmdSetIRQs, U32(20, 0x21, msix, 0, 1)), settle(count("a", 1))),
		steps("irq/posted eventfd", post(cmdSetIRQs, U32(20, 0x24, msix, 3, 1)).fds(event("a", 0)), trigger(3).check(count("a", 1))),
		steps("irq/QEMU's chunks of eight", eight(0, "a"), eight(8, "b"), trigger(0), trigger(7), trigger(8), trigger(15).
			check(count("a0", 1), count("a7", 1), count("b0", 1), count("b7", 1))),
		steps("irq/none for vector 0, then two", setIRQs(0x24, msix, 0, 1, 0), two, trigger(0).check(count("a", 5), count("b", 8))),
		steps("irq/replace", enable(8, "a"), enable(8, "b"), trigger(8).check(count("a", 0), count("b", 1))),
		steps("irq/replace by the same eventfd", enable(8, "a"), setIRQs(0x24, msix, 8, 1, 0).fds(FD{Name: "a", Kind: Same}), trigger(8).check(count("a", 1))),
		steps("irq/one eventfd for two vectors", enable(8, "a"), setIRQs(0x24, msix, 9, 1, 0).fds(FD{Name: "a", Kind: Same}), setIRQs(0x21, msix, 8, 2, 0).check(count("a", 2))),
		steps("irq/two fire, two counted", enable(8, "a"), trigger(8), trigger(8).check(count("a", 2))),
		steps("irq/off closes", enable(3, "e"), setIRQs(0x21, msix, 0, 0, 0), trigger(3).check(count("e", 0))),
		steps("irq/one taken away, the other stays", two, setIRQs(0x24, msix, 0, 1, 0), setIRQs(0x21, msix, 0, 2, 0).check(count("a", 4), count("b", 9))),
		steps("irq/a failed request changes nothing", enable(5, "a"), setIRQs(0x24, msix, 5, 1, unix.EINVAL).fds(FD{Name: "p", Kind: Pipe}), trigger(5).check(count("a", 1))),

		steps("irq/mask holds back one", enable(5, "e"), setIRQs(0x09, msix, 5, 1, 0), trigger(5), trigger(5).check(count("e", 0)),
			setIRQs(0x11, msix, 5, 1, 0).check(count("e", 1)), trigger(5).check(count("e", 1))),
		steps("irq/mask bool", two, setIRQs(0x0a, msix, 0, 2, 0, 1, 0), setIRQs(0x21, msix, 0, 2, 0).check(count("a", 4), count("b", 9)),
			setIRQs(0x12, msix, 0, 2, 0, 1, 1).check(count("a", 1), count("b", 0))),
		steps("irq/mask over replace", enable(5, "a"), setIRQs(0x09, msix, 5, 1, 0), enable(5, "b"), trigger(5).check(count("b", 0)),
			setIRQs(0x11, msix, 5, 1, 0).check(count("b", 1))),
		steps("irq/mask twice, unmask once", enable(5, "a"), setIRQs(0x09, msix, 5, 1, 0), setIRQs(0x09, msix, 5, 1, 0), trigger(5).check(count("a", 0)),
			setIRQs(0x11, msix, 5, 1, 0).check(count("a", 1))),
		steps("irq/unmask what is not masked", enable(5, "a"), setIRQs(0x11, msix, 5, 1, 0).check(count("a", 0)), trigger(5).check(count("a", 1))),
		steps("irq/off forgets masks", enable(5, "a"), setIRQs(0x09, msix, 5, 1, 0), setIRQs(0x21, msix, 0, 0, 0), enable(5, "b"), trigger(5).check(count("b", 1))),
		steps("irq/mask by eventfd", enable(5, "e"), setIRQs(0x0c, msix, 5, 1, 0).fds(event("m", 0)), setIRQs(0x14, msix, 5, 1, 0).fds(event("u", 0)),
			setIRQs(0x09, msix, 5, 1, 0), trigger(5).check(count("e", 0)),
			Step{Signal: "u", Checks: []Check{count("e", 1)}},
			setIRQs(0x09, msix, 5, 1, 0), trigger(5).check(count("e", 0)),
			Step{Signal: "u", Checks: []Check{count("e", 1)}},
			// Taken away: nothing happens any more.
			setIRQs(0x14, msix, 5, 1, 0), setIRQs(0x09, msix, 5, 1, 0), trigger(5),
			Step{Signal: "u", Send: Message(7, cmdInfo, 0, U32(16, 0, 0, 0)), Want: []Want{{ID: 7, Command: cmdInfo}}, Checks: []Check{count("e", 0)}}),
		steps("irq/latch over the client's trigger", trigger(3), enable(3, "e").check(count("e", 1))),
	})
	cases = append(cases, need(NeedINTx, []Case{
		steps("irq/INTx on, off, on", setINTx, setIRQs(0x21, intx, 0, 0, 0), setINTx),
		steps("irq/INTx eventfd taken away", setINTx, setIRQs(0x24, intx, 0, 1, 0)),
		steps("irq/INTx as KVM switches it", setINTx, setIRQs(0x09, intx, 0, 1, 0), setIRQs(0x14, intx, 0, 1, 0).fds(event("r", 0)), setIRQs(0x11, intx, 0, 1, 0)),
		steps("irq/INTx has one vector", setIRQs(0x21, intx, 0, 2, unix.EINVAL)),
	})...)
	return append(cases, reference([]Case{
		steps("irq/device fires", setIRQs(0x24, msix, 8, 1, 0).fds(event("e", 4)), fire(8).check(count("e", 5))),
		steps("irq/device fires a vector it does not have", enable(0, "a"), fire(refVectors), fire(1<<31), settle(count("a", 0))),
		steps("irq/fired before a reply is seen", enable(0, "a"), post(cmdWrite, U64(regFire), U32(refRegs, 4, 0)), settle(count("a", 1))),
		steps("irq/latch one without an eventfd", fire(3), fire(3), fire(3), enable(3, "e").check(count("e", 1)), fire(3).check(count("e", 1))),
		steps("irq/latch while taken away", enable(3, "a"), setIRQs(0x24, msix, 3, 1, 0), fire(3).check(count("a", 0)), enable(3, "b").check(count("b", 1))),
		steps("irq/latch is of its vector", fire(3), enable(4, "e").check(count("e", 0)), enable(3, "f").check(count("f", 1))),
		// What QEMU does to add a vector when NORESIZE is set.
		steps("irq/latch over off and refill", enable(0, "a"), setIRQs(0x21, msix, 0, 0, 0), fire(0).check(count("a", 0)),
			setIRQs(0x24, msix, 0, 2, 0).fds(event("b", 0), event("c", 0)).check(count("b", 1), count("c", 0))),
		steps("irq/latch from before off", fire(5), enable(0, "a"), setIRQs(0x21, msix, 0, 0, 0), enable(5, "b").check(count("b", 1))),
		steps("irq/latch under a mask", fire(5), setIRQs(0x09, msix, 5, 1, 0), enable(5, "e").check(count("e", 0)), setIRQs(0x11, msix, 5, 1, 0).check(count("e", 1))),
		steps("irq/reset forgets", fire(3), ask(cmdReset, 0, none), enable(3, "e").check(count("e", 0)), fire(3).check(count("e", 1))),
		steps("irq/reset keeps eventfds", enable(3, "e"), ask(cmdReset, 0, none), fire(3).check(count("e", 1))),
		steps("irq/device told of mask", setIRQs(0x09, msix, 5, 1, 0), read(regMasked, 4, U32(1<<31|msix<<16|5)),
			setIRQs(0x12, msix, 4, 2, 0, 0, 1), read(regMasked, 4, U32(msix<<16|5))),

		steps("irq/INTx masks itself", setINTx, raiseINTx(count("i", 1)), raiseINTx(count("i", 0)),
			unmaskINTx(count("i", 1)), unmaskINTx(count("i", 0)), raiseINTx(count("i", 1))),
		steps("irq/INTx unmasked by eventfd", setINTx, setIRQs(0x09, intx, 0, 1, 0), setIRQs(0x14, intx, 0, 1, 0).fds(event("r", 0)),
			unmaskINTx(), raiseINTx(count("i", 1)), raiseINTx(count("i", 0)), Step{Signal: "r", Checks: []Check{count("i", 1)}}),
		steps("irq/INTx starts afresh", setINTx, raiseINTx(count("i", 1)), raiseINTx(count("i", 0)), setIRQs(0x21, intx, 0, 0, 0),
			setINTx.check(count("i", 0)), raiseINTx(count("i", 1))),
		steps("irq/INTx level up fires again on every unmask", setINTx, level(1).check(count("i", 1)), unmaskINTx(count("i", 1)), unmaskINTx(count("i", 1)),
			level(0), unmaskINTx(count("i", 0)), level(1).check(count("i", 1))),
		steps("irq/INTx level up fires again on the eventfd", setINTx, setIRQs(0x14, intx, 0, 1, 0).fds(event("r", 0)), level(1).check(count("i", 1)),
			Step{Signal: "r", Checks: []Check{count("i", 1)}}, Step{Signal: "r", Checks: []Check{count("i", 1)}}),
		steps("irq/INTx level went away under the mask", setINTx, level(1).check(count("i", 1)), level(0), unmaskINTx(count("i", 0))),
		steps("irq/INTx held back by COMMAND", setINTx, configWrite(cfgCommand, 0x00, 0x04), level(1).check(count("i", 0)),
			configWrite(cfgCommand, 0, 0).check(count("i", 1))),
		steps("irq/INTx level shows in STATUS", level(1), configRead(cfgStatus, 0x18), level(0), configRead(cfgStatus, 0x10)),
		steps("irq/INTx level is gone after a reset", setINTx, level(1).check(count("i", 1)), ask(cmdReset, 0, none), unmaskINTx(count("i", 0))),
	})...)
}
