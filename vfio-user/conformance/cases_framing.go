// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
	"golang.org/x/sys/unix"
)

func framingCases() []Case {
	header := func(cmd vfiouser.Command, size, flags uint32) []byte {
		b := make([]byte, 16)
		vfiouser.Header{ID: 7, Command: cmd, Size: size, Flags: flags}.Put(b)
		return b
	}
	lost := func(name string, size uint32) Case {
		return Case{Name: name, Steps: []Step{{
			Send: header(cmdSetIRQs, size, 0), Closed: true,
			Want: []Want{{ID: 7, Command: cmdSetIRQs, Errno: unix.EINVAL}},
		}}}
	}
	unknown := func(cmd vfiouser.Command) Case {
		return one("framing/unknown "+cmd.String(), cmd, unix.EINVAL, nil, make([]byte, 32))
	}
	flags := func(name string, flags uint32) Case {
		return Case{Name: name, Steps: []Step{{
			Send: header(cmdReset, 16, flags),
			Want: []Want{{ID: 7, Command: cmdReset, Errno: unix.EINVAL}},
		}}}
	}
	info := Message(1, cmdInfo, 0, U32(16, 0, 0, 0))
	wantInfo := Want{ID: 1, Command: cmdInfo, Check: func(p []byte) error { return wantLen(p, 16) }}
	echo := func(id uint16) Step {
		return Step{Send: Message(id, cmdInfo, 0, U32(16, 0, 0, 0)), Want: []Want{{ID: id, Command: cmdInfo}}}
	}
	var ids []byte
	var wantIDs []Want
	for id := 0; id < 1<<16; id += 13 {
		ids = append(ids, Message(uint16(id), 999, 0)...)
		wantIDs = append(wantIDs, Want{ID: uint16(id), Command: 999, Errno: unix.EINVAL})
	}
	config := Message(1, cmdRead, 0, access(configSpace, 0, configSize))
	wantConfig := Want{ID: 1, Command: cmdRead, Check: func(p []byte) error { return wantLen(p, 16+configSize) }}
	unwanted := Message(5, 999, 0, make([]byte, 16))
	p, q := FD{Name: "p", Kind: Pipe}, FD{Name: "q", Kind: Pipe}
	gone := Check{Name: "p", Hangup: true}
	return []Case{
		lost("framing/size 15", 15),
		lost("framing/size 0", 0),
		lost("framing/size too large", Largest+1),
		lost("framing/size 2^32-1", 1<<32-1),
		{Name: "framing/bad size without reply", Steps: []Step{{Send: header(cmdSetIRQs, 15, noReply), Closed: true}}},
		flags("framing/unasked reply", 1),
		flags("framing/unasked error reply", 0x21),
		flags("framing/type 2", 2),
		flags("framing/type 15", 15),
		flags("framing/reply of type 1 with every other bit", 0xffffff01),
		unknown(0), unknown(14), unknown(19), unknown(999), unknown(65535),
		one("framing/DMA_READ from the client", vfiouser.CmdDMARead, unix.EINVAL, nil, U64(0, 8)),
		one("framing/DMA_WRITE from the client", vfiouser.CmdDMAWrite, unix.EINVAL, nil, U64(0, 8, 0)),
		one("framing/second VERSION", cmdVersion, unix.EINVAL, nil, U32(0)),
		one("framing/no payload", cmdSetIRQs, unix.EINVAL, nil),
		steps("framing/no reply to an error", post(999), post(cmdSetIRQs), post(cmdReset, U32(0))),
		steps("framing/no reply to a reply with No_reply", Step{Send: header(cmdReset, 16, 0x11)}),
		steps("framing/split at every byte", Step{Send: info, Split: 1, Want: []Want{wantInfo}}),
		steps("framing/split behind the header", Step{Send: info, Split: 16, Want: []Want{wantInfo}}),
		steps("framing/split inside the header", Step{Send: info, Split: 9, Want: []Want{wantInfo}}),
		steps("framing/three in one write", Step{
			Send: slices.Concat(info, Message(2, 999, 0), info), Want: []Want{wantInfo, {ID: 2, Command: 999, Errno: unix.EINVAL}, wantInfo},
		}),
		steps("framing/one and a half in one write", Step{Send: slices.Concat(info, info[:20]), Want: []Want{wantInfo}},
			Step{Send: info[20:], Want: []Want{wantInfo}}),
		steps("framing/five hundred in one write", Step{Send: slices.Repeat(info, 500), Want: slices.Repeat([]Want{wantInfo}, 500)}),
		steps("framing/descriptors nobody wants", ask(cmdInfo, 0, nil, U32(16, 0, 0, 0)).
			fds(FD{Name: "p", Kind: Pipe}).check(Check{Name: "p", Hangup: true})),
		steps("framing/descriptors of an unknown command", ask(999, unix.EINVAL, nil).
			fds(FD{Name: "p", Kind: Pipe}, FD{Name: "q", Kind: Pipe}).check(Check{Name: "p", Hangup: true}, Check{Name: "q", Hangup: true})),
		steps("framing/nine descriptors where eight were agreed on", ask(cmdInfo, unix.EINVAL, nil, U32(16, 0, 0, 0)).
			fds(slices.Repeat([]FD{{Name: "p", Kind: Pipe}}, 9)...).check(Check{Name: "p", Hangup: true})).reference(),
		steps("framing/eight descriptors where eight were agreed on", ask(cmdInfo, 0, nil, U32(16, 0, 0, 0)).
			fds(slices.Repeat([]FD{{Name: "p", Kind: Pipe}}, 8)...).check(Check{Name: "p", Hangup: true})).reference(),
		steps("framing/far too many descriptors", ask(cmdInfo, unix.EINVAL, nil, U32(16, 0, 0, 0)).
			fds(slices.Repeat([]FD{{Name: "p", Kind: Pipe}}, 100)...).check(Check{Name: "p", Hangup: true})),
		steps("framing/as many descriptors as a socket carries", ask(cmdInfo, unix.EINVAL, nil, U32(16, 0, 0, 0)).
			fds(slices.Repeat([]FD{{Name: "p", Kind: Pipe}}, 253)...).check(Check{Name: "p", Hangup: true})),
		steps("framing/flood of messages with descriptors", slices.Concat(slices.Repeat([]Step{post(999).fds(slices.Repeat([]FD{{Name: "p", Kind: Pipe}}, 8)...)}, 60),
			[]Step{settle(Check{Name: "p", Hangup: true})})...),
		steps("framing/descriptors with the second half of a message", Step{Send: unwanted[:20]},
			Step{Send: unwanted[20:], FDs: []FD{p, q}, Want: []Want{{ID: 5, Command: 999, Errno: unix.EINVAL}}, Checks: []Check{gone, {Name: "q", Hangup: true}}}),
		steps("framing/descriptors with both halves of a message", Step{Send: unwanted[:20], FDs: []FD{p}},
			Step{Send: unwanted[20:], FDs: []FD{q}, Want: []Want{{ID: 5, Command: 999, Errno: unix.EINVAL}}, Checks: []Check{gone, {Name: "q", Hangup: true}}}),
		steps("framing/descriptors of a message with a bad size", Step{Send: header(cmdSetIRQs, 15, 0), FDs: []FD{p}, Closed: true,
			Want: []Want{{ID: 7, Command: cmdSetIRQs, Errno: unix.EINVAL}}}, reconnected(settle(gone))),
		steps("framing/descriptors of a posted command", post(cmdReset).fds(p), settle(gone)),
		steps("framing/descriptors of an unasked reply", Step{Send: header(cmdReset, 16, 1), FDs: []FD{p},
			Want: []Want{{ID: 7, Command: cmdReset, Errno: unix.EINVAL}}, Checks: []Check{gone}}),

		steps("framing/id is echoed", echo(0), echo(1), echo(0x8000), echo(0xffff)),
		steps("framing/one id for two commands at once", Step{Send: slices.Concat(info, Message(1, cmdIRQ, 0, U32(16, 0, 0, 0))), Want: []Want{wantInfo, {ID: 1, Command: cmdIRQ}}}),
		steps("framing/five thousand ids in one flow", Step{Send: ids, Want: wantIDs}),
		steps("framing/errno of a command means nothing", Step{Send: slices.Concat(info[:12], U32(5), info[16:]), Want: []Want{wantInfo}}),
		steps("framing/forty in pieces of seven bytes", Step{Send: slices.Repeat(info, 40), Split: 7, Want: slices.Repeat([]Want{wantInfo}, 40)}),
		steps("framing/forty in pieces one byte longer than a message", Step{Send: slices.Repeat(info, 40), Split: len(info) + 1, Want: slices.Repeat([]Want{wantInfo}, 40)}),
		steps("framing/replies longer than the socket holds", Step{Send: slices.Repeat(config, 400), Want: slices.Repeat([]Want{wantConfig}, 400)}).needs(NeedPCIe),
		one("framing/longest message of an unknown command", 999, unix.EINVAL, nil, make([]byte, Largest-16)),
		one("framing/longest message to a command with a short one", cmdReset, unix.EINVAL, nil, make([]byte, Largest-16)),
		steps("framing/error, success, error, each its own", Step{Send: slices.Concat(Message(1, 999, 0), Message(2, cmdInfo, 0, U32(16, 0, 0, 0)), Message(3, cmdInfo, 0, U32(8, 0, 0, 0))),
			Want: []Want{{ID: 1, Command: 999, Errno: unix.EINVAL}, {ID: 2, Command: cmdInfo}, {ID: 3, Command: cmdInfo, Errno: unix.EINVAL}}}),
		steps("framing/posted and answered mixed in one write", Step{Send: slices.Concat(Message(1, 999, noReply), info, Message(2, cmdReset, noReply, U32(0)), info), Want: []Want{wantInfo, wantInfo}}),
		steps("framing/descriptors of three messages in one flow", // each of its own, none of its neighbour's
			Step{Send: Message(1, cmdInfo, 0, U32(16, 0, 0, 0)), FDs: []FD{p}}, Step{Send: Message(2, cmdIRQ, 0, U32(16, 0, 0, 0))},
			Step{Send: Message(3, 999, 0), FDs: []FD{q}, Want: []Want{{ID: 1, Command: cmdInfo}, {ID: 2, Command: cmdIRQ}, {ID: 3, Command: 999, Errno: unix.EINVAL}},
				Checks: []Check{gone, {Name: "q", Hangup: true}}}),
	}
}

// featureCases are the commands behind which a server may have nothing. It answers
// them with EINVAL then, which QEMU takes for "not supported".
func featureCases() []Case {
	const (
		ioFDs   = vfiouser.CmdGetRegionIOFDs
		feature = vfiouser.CmdDeviceFeature
		get     = 1 << 16
		set     = 1 << 17
		probe   = 1 << 18
	)
	bad := func(name string, cmd vfiouser.Command, payload ...[]byte) Case {
		return one("feature/"+name, cmd, unix.EINVAL, nil, payload...)
	}
	orNone := func(c Case) Case {
		c.Steps[0].Want[0].Or = unix.EINVAL
		return c
	}
	return append([]Case{
		bad("io fds: short", ioFDs, U32(16, 0)),
		bad("io fds: argsz 15", ioFDs, U32(15, 0, 7, 0)),
		bad("io fds: flags", ioFDs, U32(16, 1, 7, 0)),
		bad("io fds: count", ioFDs, U32(16, 0, 7, 1)),
		bad("io fds: region 9", ioFDs, U32(16, 0, 9, 0)),
		bad("io fds: region 2^32-1", ioFDs, U32(16, 0, 1<<32-1, 0)),
		orNone(one("feature/io fds: none, or not supported", ioFDs, 0, U32(16, 0, 7, 0), U32(16, 0, 7, 0))),
		orNone(one("feature/io fds: none, with room for some", ioFDs, 0, U32(16, 0, 7, 0), U32(16+40, 0, 7, 0))),
		bad("short", feature, U32(8)),
		bad("argsz 7", feature, U32(7, get|1)),
		bad("no operation", feature, U32(8, 1)),
		bad("unknown feature", feature, U32(8, get|0xffff)),
		bad("MIG_DATA_READ: short", vfiouser.CmdMigDataRead, U32(8)),
		bad("MIG_DATA_READ: more than max_data_xfer_size", vfiouser.CmdMigDataRead, U32(8, 1<<20+8)),
		bad("MIG_DATA_WRITE: short", vfiouser.CmdMigDataWrite, U32(8)),
		bad("MIG_DATA_WRITE: less data than size", vfiouser.CmdMigDataWrite, U32(16, 8), U32(0)),
		steps("feature/posted", post(feature, U32(8, get|1)), post(ioFDs, U32(16, 0, 7, 0)), post(vfiouser.CmdMigDataRead, U32(8, 8))),
	}, reference([]Case{
		// The reference device has no migration and logs no dirty pages.
		bad("probe MIGRATION", feature, U32(8, probe|1)),
		bad("get MIGRATION", feature, U32(16, get|1), U64(0)),
		bad("probe, get and set MIGRATION", feature, U32(16, probe|get|set|1), U64(0)),
		bad("get MIG_DEVICE_STATE", feature, U32(16, get|2), U64(0)),
		bad("set MIG_DEVICE_STATE", feature, U32(16, set|2, 2, 0)),
		bad("set DMA_LOGGING_START", feature, U32(40, set|6), U64(4096), U32(1, 0), U64(0, 4096)),
		bad("set DMA_LOGGING_STOP", feature, U32(8, set|7)),
		bad("get DMA_LOGGING_REPORT", feature, U32(40, get|8), U64(0, 4096, 4096, 0)),
		bad("MIG_DATA_READ", vfiouser.CmdMigDataRead, U32(16, 8)),
		bad("MIG_DATA_WRITE", vfiouser.CmdMigDataWrite, U32(16, 8), U64(0)),
		bad("io fds: absent region", ioFDs, U32(16, 0, refVGA, 0)),
	})...)
}
