// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/binary"
	"fmt"
	"slices"
)

func configRead(off int, want ...byte) Step {
	a := access(configSpace, uint64(off), uint32(len(want)))
	return ask(cmdRead, 0, slices.Concat(a, want), a)
}

func configWrite(off int, data ...byte) Step {
	a := access(configSpace, uint64(off), uint32(len(data)))
	return ask(cmdWrite, 0, a, a, data)
}

func le16(v uint16) []byte { return binary.LittleEndian.AppendUint16(nil, v) }

// configCases: libvfio-user fails a write to what cannot be written with EPERM,
// EINVAL or ENOTSUP. QEMU writes everything the guest writes, and prints a line for
// each write that fails; the cases want such writes to succeed and to change
// nothing.
func configCases() []Case {
	// Two reads with a write between them, of any device.
	fixed := func(name string, off uint64, n uint32, data ...byte) Case {
		a := access(configSpace, off, n)
		look := func() Step { return ask(cmdRead, 0, nil, a) }
		before, after := look(), look()
		before.Want[0].Save, after.Want[0].Like = "before", "before"
		return steps("config/"+name, before, configWrite(int(off), data...), after)
	}
	command := func(name string, last Step, set byte, bits byte) Case {
		look := ask(cmdRead, 0, nil, access(configSpace, cfgCommand, 2))
		look.Want[0].Check = func(p []byte) error {
			if got := p[16] & 7; got != bits {
				return fmt.Errorf("COMMAND is %#x, want %#x in its last three bits", p[16], bits)
			}
			return nil
		}
		return steps("config/"+name, configWrite(cfgCommand, set, 0), last, look)
	}
	info := ask(cmdInfo, 0, nil, U32(16, 0, 0, 0))
	ones := []byte{0xff, 0xff, 0xff, 0xff}
	cases := []Case{
		fixed("ids cannot be written", 0, 4, 1, 2, 3, 4),
		fixed("class cannot be written", 8, 4, ones...),
		fixed("header type cannot be written", 0x0e, 1, 0x55),
		fixed("subsystem cannot be written", 0x2c, 4, ones...),
		fixed("interrupt pin cannot be written", cfgPin, 1, 3),
		fixed("capability pointer cannot be written", cfgCapPtr, 1, 0x10),
		command("COMMAND keeps memory and master", info, 6, 6),
		command("COMMAND is 0 after DEVICE_RESET", ask(cmdReset, 0, none), 6, 0).needs(NeedReset),
		steps("config/interrupt line is kept", configWrite(cfgLine, 11), configRead(cfgLine, 11)),
	}

	// sized writes ones to a register, looks, and writes the old value back.
	sized := func(name string, at int, want ...uint32) Case {
		var s []Step
		for i := range want {
			s = append(s, configWrite(at+4*i, ones...))
		}
		s = append(s, configRead(at, U32(want...)...))
		for i := range want {
			s = append(s, configWrite(at+4*i, U32(0x40000000)...))
		}
		return steps("config/"+name, s...)
	}
	kept := func(name string, at int, data, want []byte) Case {
		return steps("config/"+name, configWrite(at, data...), configRead(at, want...))
	}
	flrs := func(n uint64) Step { return read(regFLRs, 8, U64(n)) }
	flr := func(name string, n uint64, at int, data ...byte) Case {
		return steps("config/"+name, configWrite(cfgCommand, 6, 0), configWrite(at, data...), flrs(n), configRead(cfgCommand, byte(6*(1-n)), 0))
	}
	capability := func(at int, id, next byte) Step { return configRead(at, id, next) }
	return append(cases, reference([]Case{
		steps("config/ids", configRead(0, U32(refID)...)),
		steps("config/capability list", configRead(cfgCapPtr, capPM), capability(capPM, 1, capPCIe), capability(capPCIe, 0x10, capMSI), capability(capMSI, 5, capMSIX),
			capability(capMSIX, 0x11, capVendor), capability(capVendor, 9, 0)),
		steps("config/extended capability list", configRead(extDSN, 3, 0, 0xc1, 0x10), configRead(extVendor, 0x0b, 0, 1, 0)),
		kept("COMMAND: reserved bits stay 0", cfgCommand, []byte{0xff, 0xff}, []byte{0x47, 0x05}),
		kept("COMMAND: one byte of it", cfgCommand+1, []byte{0x04}, []byte{0x04}),
		kept("STATUS is not COMMAND's upper half", cfgCommand, ones, []byte{0x47, 0x05, 0x10, 0}),
		sized("BAR0 sizes 4 KiB of 32 bits", cfgBAR0, sizing(regsSize, 0)),
		sized("BAR1 sizes 4 KiB", cfgBAR0+4*refMapped, sizing(mappedSize, 0)),
		sized("BAR2 sizes 8 GiB over two registers", cfgBAR0+4*refReadOnly, 0xc, 0xfffffffe),
		sized("BAR4 sizes 2 MiB, prefetchable", cfgBAR0+4*refMemory, sizing(memorySize, 8)),
		sized("BAR5 sizes 32 KiB", cfgBAR0+4*refSparse, sizing(sparseSize, 0)),
		kept("BAR keeps its address and type", cfgBAR0+4*refMemory, U32(0xfe345678), U32(0xfe200008)),
		kept("64-bit BAR keeps the upper half", cfgBAR0+4*refAbsent, U32(0x12), U32(0x12)),
		steps("config/BAR written by halves", configWrite(cfgBAR0, 0xff, 0xff), configWrite(cfgBAR0+2, 0x34, 0x12), configRead(cfgBAR0, 0, 0xf0, 0x34, 0x12)),
		kept("ROM sizes 2 KiB as QEMU probes it", cfgROM, U32(0xfffff800), U32(0xfffff800)),
		kept("ROM keeps its enable bit", cfgROM, U32(0x12345401), U32(0x12345001)),

		kept("PM: header cannot be written", capPM, []byte{9, 9}, []byte{1, capPCIe}),
		kept("PM: PMC cannot be written, which is no error", cfgPMC, []byte{0xff, 0xff}, []byte{3, 0}),
		kept("PM: PMCSR keeps D3hot", cfgPMCSR, []byte{3, 0}, []byte{0x0b, 0}),
		kept("PM: PMCSR by one byte, which is no error", cfgPMCSR, []byte{3}, []byte{0x0b, 0}),
		kept("PM: PMC and PMCSR in one write over both", cfgPMC, []byte{0xff, 0xff, 3, 1}, []byte{3, 0, 0x0b, 1}),
		steps("config/PM: DEVICE_RESET goes to D0", configWrite(cfgPMCSR, 3, 0), ask(cmdReset, 0, none), configRead(cfgPMCSR, 8, 0)),

		flr("FLR by bit 15 of Device Control", 1, cfgDevCtl, 0x10, 0xa8),
		flr("FLR by the bit's byte alone", 1, cfgDevCtl+1, 0x80),
		flr("FLR by a write over Control and Status", 1, cfgDevCtl, 0x10, 0xa8, 0, 0),
		flr("no FLR by 8000h one byte early, which is no error", 0, cfgDevCtl-1, 0x00, 0x80),
		flr("no FLR by 8000h one byte late, which is no error", 0, cfgDevCtl+1, 0x00, 0x80),
		flr("no FLR without bit 15", 0, cfgDevCtl, 0xff, 0x7f),
		steps("config/FLR: the bit reads 0", configWrite(cfgDevCtl, 0, 0x80), configRead(cfgDevCtl, 0x10, 0x28)),
		steps("config/FLR is no DEVICE_RESET", configWrite(cfgDevCtl, 0, 0x80), read(regResets, 8, U64(0)), flrs(1)),
		steps("config/FLR keeps DMA maps and eventfds", ask(cmdMap, 0, none, U32(32, 3), U64(0, 0x10000, 0x1000)), enable(3, "e"), configWrite(cfgDevCtl, 0, 0x80),
			read(regMaps, 8, U64(1)), fire(3).check(count("e", 1))),
		steps("config/FLR by a posted write", post(cmdWrite, access(configSpace, cfgDevCtl, 2), []byte{0, 0x80}), flrs(1)),
		steps("config/FLR clears BARs, MSI-X and D3hot", configWrite(cfgBAR0, U32(0x40000000)...), configWrite(cfgMSIXCtl, 0, 0x80), configWrite(cfgPMCSR, 3, 0),
			configWrite(cfgDevCtl, 0, 0x80), configRead(cfgBAR0, U32(0)...), configRead(cfgMSIXCtl, le16(msixControl)...), configRead(cfgPMCSR, 8, 0)),
		kept("PCIe: Device Control is kept", cfgDevCtl, []byte{0x5f, 0x51}, []byte{0x5f, 0x51}),
		kept("PCIe: Device Control 2 is kept", cfgDevCtl2, []byte{0x1f, 0x04}, []byte{0x1f, 0x04}),
		kept("PCIe: Link Control 2 is kept", cfgLnkCtl2, []byte{0x23, 0}, []byte{0x23, 0}),
		kept("PCIe: Device Capabilities cannot be written", cfgDevCap, ones, U32(1<<28)),

		kept("MSI: enable with all vectors", cfgMSICtl, []byte{0x21, 0}, []byte{0xa5, 0}),
		kept("MSI: more vectors than there are change nothing, which is no error", cfgMSICtl, []byte{0x31, 0}, []byte{0x85, 0}),
		kept("MSI: capabilities survive zeros", cfgMSICtl, []byte{0, 0}, le16(msiControl)),
		kept("MSI: address and data are kept", capMSI+4, slices.Concat(U32(0xfee00fff, 1), le16(0x4321)), slices.Concat(U32(0xfee00ffc, 1), le16(0x4321))),

		kept("MSI-X: only enable and function mask can be written", cfgMSIXCtl, []byte{0xff, 0xff}, []byte{0xff, 0xc7}),
		steps("config/MSI-X: a write over the end of control changes the upper byte alone", configWrite(cfgMSIXCtl+1, 0xc0, 0x55), configRead(cfgMSIXCtl, 0xff, 0xc7),
			configRead(capMSIX+4, U32(msixTable|refMemory)...)),
		steps("config/MSI-X: a write behind control leaves enable", configWrite(cfgMSIXCtl, 0, 0x80), configWrite(capMSIX+4, 0, 0), configRead(cfgMSIXCtl, 0xff, 0x87)),
		kept("MSI-X: table and pending bits cannot be moved", capMSIX+4, slices.Concat(ones, ones), U32(msixTable|refMemory, msixPBA|refMemory)),

		kept("vendor: data is kept", capVendor+3, []byte("vfio-user"), []byte("vfio-user")),
		kept("vendor: header cannot be written", capVendor, []byte{1, 2, 3}, []byte{9, 0, capEnd - capVendor}),
		kept("a write over two capabilities", capVendor-2, []byte{1, 2, 3, 4, 5, 6}, []byte{byte(msixPBA >> 16 & 0xff), 0, 9, 0, capEnd - capVendor, 6}),
		kept("extended: header cannot be written", extVendor, ones, U32(0x0001000b)),
		kept("extended: serial number cannot be written", extDSN+4, slices.Concat(ones, ones), U64(refSerial)),
		kept("extended: vendor data is kept", extVendor+8, []byte("long and far"), []byte("long and far")),
		kept("where nothing is nothing stays", 0x800, ones, U32(0)),
		steps("config/read over two capabilities", configRead(capPM+6, 0, 0, 0x10, capMSI, 2, 0)),
		steps("config/last byte", configRead(configSize-1, 0)),
	})...)
}
