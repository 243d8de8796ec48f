// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"slices"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
	"golang.org/x/sys/unix"
)

func lifeCases() []Case {
	info := ask(cmdInfo, 0, nil, U32(16, 0, 0, 0))
	reconnect := reconnected(info)
	cases := []Case{
		steps("life/reconnect", info, reconnect),
		steps("life/reset", ask(cmdReset, 0, none)).needs(NeedReset),
		one("life/reset with a payload", cmdReset, unix.EINVAL, nil, U32(0)),
	}
	whole := Message(7, cmdMap, 0, U32(32, 3), U64(0, 0x10000, 0x1000))
	for _, n := range []int{1, 8, 15, 16, 17, 40, len(whole) - 1} {
		cases = append(cases, steps(fmt.Sprintf("life/client gone after %d bytes of DMA_MAP", n),
			Step{Send: whole[:n], FDs: []FD{{Name: "p", Kind: Pipe}}}, reconnect.check(Check{Name: "p", Hangup: true})))
	}
	big := Message(7, cmdWrite, 0, access(configSpace, 0, 1<<20), make([]byte, 1<<20))
	for _, n := range []int{31, 32, 1 << 16, len(big) - 1} {
		cases = append(cases, steps(fmt.Sprintf("life/client gone after %d bytes of REGION_WRITE", n), Step{Send: big[:n]}, reconnect))
	}
	irq := Message(7, cmdSetIRQs, 0, U32(20, 0x24, 2, 0, 2))
	multi := Message(7, cmdMulti, noReply, U64(2), make([]byte, 48))
	cases = append(cases,
		steps("life/client gone inside SET_IRQS with two descriptors", Step{Send: irq[:len(irq)-1], FDs: []FD{{Name: "p", Kind: Pipe}, {Name: "q", Kind: Pipe}}},
			reconnect.check(Check{Name: "p", Hangup: true}, Check{Name: "q", Hangup: true})),
		steps("life/client gone inside REGION_WRITE_MULTI", Step{Send: multi[:len(multi)-20]}, reconnect),
		steps("life/client gone before its replies", Step{Send: slices.Repeat(Message(1, cmdInfo, 0, U32(16, 0, 0, 0)), 1000)}, reconnect),
		steps("life/client gone with a VERSION half sent", reconnect, Step{Send: Message(7, cmdVersion, 0, U32(0))[:18]}, reconnect),
		steps("life/ten clients one behind the other", slices.Repeat([]Step{reconnect}, 10)...),
		steps("life/two resets", ask(cmdReset, 0, none), ask(cmdReset, 0, none)).needs(NeedReset),
		steps("life/posted reset", post(cmdReset), info).needs(NeedReset),
	)
	gone := ask(cmdRead, 0, U64(0), U64(regMaps), U32(refRegs, 8))
	gone.Want[0].Payload = slices.Concat(U64(regMaps), U32(refRegs, 8), U64(0))
	gone.Reconnect = true
	return append(cases,
		steps("life/maps do not outlive the client", ask(cmdMap, 0, none, U32(32, 3), U64(0, 0x10000, 0x1000)), gone).reference(),
		steps("life/vectors do not outlive the client",
			setIRQs(0x24, vfiouser.IRQMSIX, 3, 1, 0).fds(FD{Name: "e"}),
			reconnect,
			post(cmdWrite, U64(regFire), U32(refRegs, 4, 3)),
			ask(cmdInfo, 0, nil, U32(16, 0, 0, 0)).check(Check{Name: "e", Count: 0})).reference(),
		steps("life/memory does not outlive the client", write(8, U64(5)), reconnected(read(8, 8, U64(0)))).reference(),
		steps("life/config space does not outlive the client", configWrite(cfgCommand, 6, 0), reconnected(configRead(cfgCommand, 0, 0))).reference(),
		steps("life/masks do not outlive the client", setIRQs(0x09, msix, 3, 1, 0), reconnected(enable(3, "e")), fire(3).check(count("e", 1))).reference(),
		steps("life/latched interrupts do not outlive the client", fire(3), reconnected(enable(3, "e").check(count("e", 0)))).reference(),
		steps("life/level of INTx does not outlive the client", write(regLevel, U32(1)), reconnected(configRead(cfgStatus, 0x10))).reference(),
		steps("life/DEVICE_RESET keeps maps and masks", domap(0x10000, 0x1000), enable(3, "e"), setIRQs(0x09, msix, 3, 1, 0), ask(cmdReset, 0, none), maps(1),
			fire(3).check(count("e", 0)), setIRQs(0x11, msix, 3, 1, 0).check(count("e", 1))).reference(),
		steps("life/DEVICE_RESET keeps no address of a BAR", configWrite(cfgBAR0, U32(0xfe000000)...), ask(cmdReset, 0, none), configRead(cfgBAR0, U32(0)...)).reference(),
		steps("life/resets are counted", ask(cmdReset, 0, none), ask(cmdReset, 0, none), read(regResets, 8, U64(2))).reference(),
	)
}

// qemuCases are what QEMU 11.1 sends at the turns of a machine's life, in its
// order, to whatever device there is.
func qemuCases() []Case {
	ram := domap(0, 0x10000).fds(file(1))
	flash := ask(cmdMap, 0, none, mapping(1, 0, 0xfffc0000, 0x40000))
	word := func(off int) Step { return ask(cmdRead, 0, nil, access(configSpace, uint64(off), 4)) }
	half := func(off int) Step { return ask(cmdRead, 0, nil, access(configSpace, uint64(off), 2)) }
	octet := func(off int) Step { return ask(cmdRead, 0, nil, access(configSpace, uint64(off), 1)) }
	batch := Step{Send: Message(1, cmdMap, 0, mapping(1, 0, 0xfffc0000, 0x40000)), Want: []Want{{ID: 1, Command: cmdMap, Payload: none}}}
	// The maps of the address space are sent together, before anything is asked.
	attach := []Step{
		{Send: Message(0, cmdMap, 0, mapping(3, 0, 0, 0x10000)), FDs: []FD{file(1)}},
		batch,
		ask(cmdInfo, 0, nil, U32(16, 0, 0, 0)),
	}
	attach[1].Want = append(attach[1].Want, Want{Command: cmdMap, Payload: none})
	for _, i := range []uint32{0, 1, 2, 3, 4, 5, 7} {
		s := ask(cmdRegion, 0, nil, regionArgs(32, i))
		s.Want[0].AnyFile = true
		attach = append(attach, s)
	}
	attach = append(attach, ask(cmdIRQ, 0, nil, U32(16, 0, errs, 0)), ask(cmdRead, 0, nil, access(configSpace, 0, configSize)),
		word(cfgROM), configWrite(cfgROM, U32(0xfffff800)...), word(cfgROM), configWrite(cfgROM, U32(0)...))
	for i := range 6 {
		attach = append(attach, word(cfgBAR0+4*i))
	}
	attach = append(attach, octet(cfgPin))
	on, off := setIRQs(0x24, intx, 0, 1, 0).fds(event("i", 0)), setIRQs(0x21, intx, 0, 0, 0)

	reset := []Step{half(cfgCommand), configWrite(cfgCommand, 0, 0), ask(cmdReset, 0, none), octet(cfgPin)}
	for i := range 6 {
		reset = append(reset, configWrite(cfgBAR0+4*i, 0, 0, 0, 0))
	}
	msixOn := []Step{setIRQs(0x24, msix, 0, 1, 0), setIRQs(0x24, msix, 0, 2, 0).fds(event("a", 0), event("b", 0))}
	msixOff := []Step{setIRQs(0x21, msix, 0, 0, 0), octet(cfgPin)}
	sizing := []Step{}
	for i := range 6 {
		sizing = append(sizing, configWrite(cfgBAR0+4*i, U32(1<<32-1)...), configWrite(cfgBAR0+4*i, 0, 0, 0, 0))
	}
	again := FD{Name: file(1).Name, Kind: Same}
	firmware := []Step{ram}
	for range 3 {
		firmware = append(firmware, unmap(0, 0x10000), domap(0, 0x8000).fds(again), ask(cmdMap, 0, none, mapping(1, 0, 0x8000, 0x4000)), ask(cmdMap, 0, none, mapping(3, 0xc000, 0xc000, 0x4000)).fds(again),
			unmap(0, 0x8000), unmap(0x8000, 0x4000), unmap(0xc000, 0x4000), domap(0, 0x10000).fds(again))
	}
	unplug := []Step{ram, flash, setIRQs(0x24, errs, 0, 1, 0), setIRQs(0x21, intx, 0, 0, 0), unmap(0, 0x10000), unmap(0xfffc0000, 0x40000), reconnected(settle())}
	ownBAR := func(at uint64) Step { return domap(at, 0x1000) }
	toggle := []Step{ram, configWrite(cfgCommand, 6, 0), ownBAR(0xfe000000), configWrite(cfgCommand, 4, 0), unmap(0xfe000000, 0x1000), configWrite(cfgCommand, 6, 0), ownBAR(0xfe000000)}
	viommu := []Step{ram, unmapAll(), blocks(), domap(0xfffff000, 0x1000).fds(again), unmap(0xfffff000, 0x1000), blocks(), ram}

	seq := func(name string, s ...[]Step) Case { return steps("qemu/"+name, slices.Concat(s...)...) }
	fired := []Step{trigger(0), trigger(1).check(count("a", 1), count("b", 1))}
	all := need(NeedPCIe|NeedReset, []Case{
		seq("attach", attach),
		seq("attach and machine start", attach, reset),
		seq("system reset, twice as behind a root port", attach, reset, reset, reset),
		seq("quit without a word, start again", attach, []Step{reconnected(settle())}, attach),
		seq("MSI-X on, interrupts, off", attach, reset, msixOn, fired, msixOff, []Step{settle(count("a", 0))}).needs(NeedMSIX),
		seq("system reset with MSI-X on", attach, msixOn, msixOff, reset, msixOn, fired).needs(NeedMSIX),
		seq("attach and machine start with INTx", attach, []Step{on, off}, reset, []Step{on}).needs(NeedINTx),
		seq("INTx makes way for MSI-X and comes back", attach, []Step{on, off}, msixOn, fired, msixOff, []Step{on, settle(count("a", 0), count("i", 0))}).needs(NeedINTx | NeedMSIX),
	})
	return append(all,
		steps("qemu/BAR sizing by the guest: two writes, no read", sizing...),
		steps("qemu/firmware remaps RAM three times", firmware...),
		steps("qemu/hot-unplug", unplug...).needs(NeedINTx).reference(),
		steps("qemu/own BARs come and go with the memory bit", toggle...),
		steps("qemu/vIOMMU switched on and off", viommu...),
	)
}
