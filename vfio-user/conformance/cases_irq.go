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

// fire makes the device raise an MSI-X vector and waits for it.
func fire(vector uint32) Step { return write(regFire, U32(vector)) }

// settle only waits for everything before it, and then looks.
func settle(c ...Check) Step { return ask(cmdInfo, 0, nil, U32(16, 0, 0, 0)).check(c...) }

func count(name string, n uint64) Check { return Check{Name: name, Count: n} }

func event(name string, n uint64) FD { return FD{Name: name, Value: n} }

func irqCases() []Case {
	bad := func(name string, flags, index, start, count uint32, data ...byte) Case {
		return steps("irq/"+name, setIRQs(flags, index, start, count, unix.EINVAL, data...))
	}
	badFDs := func(name string, flags, count uint32, data []byte, fds ...FD) Case {
		var gone []Check
		for _, f := range fds {
			gone = append(gone, Check{Name: f.Name, Hangup: true})
		}
		return steps("irq/"+name, setIRQs(flags, msix, 0, count, unix.EINVAL, data...).fds(fds...).check(gone...))
	}
	p, q := FD{Name: "p", Kind: Pipe}, FD{Name: "q", Kind: Pipe}
	return reference([]Case{
		one("irq/short", cmdSetIRQs, unix.EINVAL, nil, U32(20, 0x21)),
		one("irq/argsz 3", cmdSetIRQs, unix.EINVAL, nil, U32(3, 0x21, reqs, 0, 0)),
		bad("index 5", 0x21, 5, 0, 0),
		bad("index 2^32-1", 0x21, 1<<32-1, 0, 0),
		bad("no flags", 0, msix, 0, 1),
		bad("no action", 0x01, msix, 0, 1),
		bad("no data type", 0x20, msix, 0, 1),
		bad("mask and unmask", 0x19, msix, 0, 1),
		bad("none and bool", 0x23, msix, 0, 1, 1),
		bad("unknown flag", 0x61, msix, 0, 1),
		bad("range over the end", 0x21, msix, refVectors-1, 2),
		bad("range behind the end", 0x21, msix, refVectors+1, 1),
		bad("range starts at the end", 0x21, msix, refVectors, 0),
		bad("range overflows", 0x21, msix, 284, 1<<32-1),
		bad("index without vectors", 0x21, msi, 0, 1),
		bad("mask ERR", 0x09, errs, 0, 1),
		bad("unmask REQ", 0x11, reqs, 0, 1),
		bad("two of ERR", 0x21, errs, 0, 2),
		bad("none, start 1", 0x21, msix, 1, 0),
		bad("none, mask", 0x09, msix, 0, 0),
		bad("none, bool", 0x22, msix, 0, 0),
		bad("none, eventfd", 0x24, msix, 0, 0),
		bad("bool too short", 0x22, msix, 0, 2, 1),
		bad("bool too long", 0x22, msix, 0, 2, 1, 1, 1),
		badFDs("descriptors with bool", 0x22, 2, []byte{1, 1}, p, q),
		badFDs("descriptor with none", 0x21, 1, nil, p),
		badFDs("one descriptor for two", 0x24, 2, nil, p),
		badFDs("two descriptors for one", 0x24, 1, nil, p, q),
		badFDs("not an eventfd", 0x24, 1, nil, p),
		badFDs("not an eventfd to unmask", 0x14, 1, nil, p),
		badFDs("one of two not an eventfd", 0x24, 2, nil, p, q),
		steps("irq/all off", setIRQs(0x21, msix, 0, 0, 0), setIRQs(0x21, intx, 0, 0, 0), setIRQs(0x21, errs, 0, 0, 0)),
		steps("irq/no eventfd", setIRQs(0x24, msix, 0, 1, 0), setIRQs(0x24, msix, 0, refVectors, 0)),
		steps("irq/eight at once, last vector", setIRQs(0x24, msix, refVectors-8, 8, 0).
			fds(event("", 0), event("", 0), event("", 0), event("", 0), event("", 0), event("", 0), event("", 0), event("last", 0)),
			fire(refVectors-1).check(count("last", 1))),
	})
}

func irqStateCases() []Case {
	two := setIRQs(0x24, msix, 0, 2, 0).fds(event("a", 4), event("b", 8))
	enable := func(vector uint32, name string) Step { return setIRQs(0x24, msix, vector, 1, 0).fds(event(name, 0)) }
	setINTx := setIRQs(0x24, intx, 0, 1, 0).fds(event("i", 0))
	raiseINTx := func(c ...Check) Step { return write(regFireINT, U32(0)).check(c...) }
	return reference([]Case{
		steps("irq/trigger none", two, setIRQs(0x21, msix, 1, 1, 0).check(count("a", 4), count("b", 9))),
		steps("irq/trigger bool", two, setIRQs(0x22, msix, 0, 2, 0, 0, 1).check(count("a", 4), count("b", 9))),
		steps("irq/device fires", setIRQs(0x24, msix, 8, 1, 0).fds(event("e", 4)), fire(8).check(count("e", 5))),
		steps("irq/device fires a vector it does not have", enable(0, "a"), fire(refVectors), fire(1<<31), settle(count("a", 0))),
		steps("irq/fired before a reply is seen", enable(0, "a"), post(cmdWrite, U64(regFire), U32(refRegs, 4, 0)), settle(count("a", 1))),
		steps("irq/replace", enable(8, "a"), enable(8, "b"), fire(8).check(count("a", 0), count("b", 1))),
		steps("irq/two fire, two counted", setIRQs(0x24, msix, 8, 1, 0).fds(event("a", 0)), fire(8), fire(8).check(count("a", 2))),
		steps("irq/latch one without an eventfd", fire(3), fire(3), fire(3), enable(3, "e").check(count("e", 1)), fire(3).check(count("e", 1))),
		steps("irq/latch while taken away", enable(3, "a"), setIRQs(0x24, msix, 3, 1, 0), fire(3).check(count("a", 0)), enable(3, "b").check(count("b", 1))),
		steps("irq/latch is of its vector", fire(3), enable(4, "e").check(count("e", 0)), enable(3, "f").check(count("f", 1))),
		// What QEMU does to add a vector when NORESIZE is set.
		steps("irq/latch over off and refill", enable(0, "a"), setIRQs(0x21, msix, 0, 0, 0), fire(0).check(count("a", 0)),
			setIRQs(0x24, msix, 0, 2, 0).fds(event("b", 0), event("c", 0)).check(count("b", 1), count("c", 0))),
		steps("irq/latch from before off", fire(5), enable(0, "a"), setIRQs(0x21, msix, 0, 0, 0), enable(5, "b").check(count("b", 1))),
		steps("irq/reset forgets", fire(3), ask(cmdReset, 0, none), enable(3, "e").check(count("e", 0)), fire(3).check(count("e", 1))),
		steps("irq/reset keeps eventfds", enable(3, "e"), ask(cmdReset, 0, none), fire(3).check(count("e", 1))),
		steps("irq/off closes", enable(3, "e"), setIRQs(0x21, msix, 0, 0, 0), fire(3).check(count("e", 0))),

		steps("irq/device told of mask", setIRQs(0x09, msix, 5, 1, 0), read(regMasked, 4, U32(1<<31|msix<<16|5)),
			setIRQs(0x12, msix, 4, 2, 0, 0, 1), read(regMasked, 4, U32(msix<<16|5))),
		steps("irq/mask holds back one", enable(5, "e"), setIRQs(0x09, msix, 5, 1, 0), fire(5), fire(5).check(count("e", 0)),
			setIRQs(0x11, msix, 5, 1, 0).check(count("e", 1)), fire(5).check(count("e", 1))),
		steps("irq/mask bool", two, setIRQs(0x0a, msix, 0, 2, 0, 1, 0), fire(0), fire(1).check(count("a", 4), count("b", 9)),
			setIRQs(0x12, msix, 0, 2, 0, 1, 1).check(count("a", 1), count("b", 0))),
		steps("irq/mask over replace", enable(5, "a"), setIRQs(0x09, msix, 5, 1, 0), enable(5, "b"), fire(5).check(count("b", 0)),
			setIRQs(0x11, msix, 5, 1, 0).check(count("b", 1))),
		steps("irq/mask by eventfd", enable(5, "e"), setIRQs(0x0c, msix, 5, 1, 0).fds(event("m", 0)), setIRQs(0x14, msix, 5, 1, 0).fds(event("u", 0)),
			setIRQs(0x09, msix, 5, 1, 0), fire(5).check(count("e", 0)),
			Step{Signal: "u", Checks: []Check{count("e", 1)}},
			setIRQs(0x09, msix, 5, 1, 0), fire(5).check(count("e", 0)),
			Step{Signal: "u", Checks: []Check{count("e", 1)}},
			// Taken away: nothing happens any more.
			setIRQs(0x14, msix, 5, 1, 0), setIRQs(0x09, msix, 5, 1, 0), fire(5),
			Step{Signal: "u", Send: Message(7, cmdInfo, 0, U32(16, 0, 0, 0)), Want: []Want{{ID: 7, Command: cmdInfo}}, Checks: []Check{count("e", 0)}}),

		steps("irq/INTx masks itself", setINTx, raiseINTx(count("i", 1)), raiseINTx(count("i", 0)),
			setIRQs(0x11, intx, 0, 1, 0).check(count("i", 1)), setIRQs(0x11, intx, 0, 1, 0).check(count("i", 0)), raiseINTx(count("i", 1))),
		steps("irq/INTx unmasked by eventfd", setINTx, setIRQs(0x09, intx, 0, 1, 0), setIRQs(0x14, intx, 0, 1, 0).fds(event("r", 0)),
			setIRQs(0x11, intx, 0, 1, 0), raiseINTx(count("i", 1)), raiseINTx(count("i", 0)), Step{Signal: "r", Checks: []Check{count("i", 1)}}),
		steps("irq/INTx starts afresh", setINTx, raiseINTx(count("i", 1)), raiseINTx(count("i", 0)), setIRQs(0x21, intx, 0, 0, 0),
			setINTx.check(count("i", 0)), raiseINTx(count("i", 1))),
	})
}
