// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"strings"
	"syscall"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
	"golang.org/x/sys/unix"
)

// Cases are all the conversations.
func Cases() []Case {
	return slices.Concat(versionCases(), framingCases(), infoCases(), mappedCases(), irqCases(), irqStateCases(), regionCases(), multiCases(), dmaCases(), memoryCases(), settleCases(), lifeCases())
}

// Largest is the longest message a server that says max_data_xfer_size 1 MiB has
// to take: a region write.
const Largest = 16 + 16 + 1<<20

const (
	cmdVersion  = vfiouser.CmdVersion
	cmdMap      = vfiouser.CmdDMAMap
	cmdUnmap    = vfiouser.CmdDMAUnmap
	cmdInfo     = vfiouser.CmdDeviceGetInfo
	cmdRegion   = vfiouser.CmdGetRegionInfo
	cmdIRQ      = vfiouser.CmdGetIRQInfo
	cmdSetIRQs  = vfiouser.CmdSetIRQs
	cmdRead     = vfiouser.CmdRegionRead
	cmdWrite    = vfiouser.CmdRegionWrite
	cmdReset    = vfiouser.CmdDeviceReset
	cmdMulti    = vfiouser.CmdRegionWriteMulti
	noReply     = vfiouser.FlagNoReply
	configSpace = vfiouser.RegionConfig
)

// one is a case of one message and one reply. The id is 7.
func one(name string, cmd vfiouser.Command, errno syscall.Errno, want []byte, payload ...[]byte) Case {
	return Case{Name: name, Steps: []Step{ask(cmd, errno, want, payload...)}}
}

func ask(cmd vfiouser.Command, errno syscall.Errno, want []byte, payload ...[]byte) Step {
	return Step{Send: Message(7, cmd, 0, payload...), Want: []Want{{ID: 7, Command: cmd, Errno: errno, Payload: want}}}
}

// post sends and wants no reply.
func post(cmd vfiouser.Command, payload ...[]byte) Step {
	return Step{Send: Message(8, cmd, noReply, payload...)}
}

func (s Step) fds(fds ...FD) Step {
	s.FDs = fds
	return s
}

func (s Step) split(n int) Step {
	s.Split = n
	return s
}

func (s Step) check(c ...Check) Step {
	s.Checks = c
	return s
}

func (c Case) reference() Case {
	return c.needs(NeedReference)
}

func (c Case) needs(n Needs) Case {
	c.Needs |= n
	return c
}

var none = []byte{} // a payload of no bytes

func steps(name string, s ...Step) Case { return Case{Name: name, Steps: s} }

func reference(cases []Case) []Case { return need(NeedReference, cases) }

func need(n Needs, cases []Case) []Case {
	for i := range cases {
		cases[i].Needs |= n
	}
	return cases
}

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
		unknown(0), unknown(6), unknown(11), unknown(12), unknown(14), unknown(16), unknown(17), unknown(18), unknown(19), unknown(999), unknown(65535),
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
		steps("framing/too many descriptors", ask(cmdInfo, unix.EINVAL, nil, U32(16, 0, 0, 0)).
			fds(slices.Repeat([]FD{{Name: "p", Kind: Pipe}}, 9)...).check(Check{Name: "p", Hangup: true})),
		steps("framing/far too many descriptors", ask(cmdInfo, unix.EINVAL, nil, U32(16, 0, 0, 0)).
			fds(slices.Repeat([]FD{{Name: "p", Kind: Pipe}}, 100)...).check(Check{Name: "p", Hangup: true})),
	}
}

func lifeCases() []Case {
	info := ask(cmdInfo, 0, nil, U32(16, 0, 0, 0))
	reconnect := info
	reconnect.Reconnect = true
	cases := []Case{
		steps("life/reconnect", info, reconnect),
		steps("life/reset", ask(cmdReset, 0, none)),
		one("life/reset with a payload", cmdReset, unix.EINVAL, nil, U32(0)),
	}
	whole := Message(7, cmdMap, 0, U32(32, 3), U64(0, 0x10000, 0x1000))
	for _, n := range []int{1, 8, 15, 16, 17, 40, len(whole) - 1} {
		cases = append(cases, steps("life/client gone after bytes: "+strings.Repeat("x", n),
			Step{Send: whole[:n], FDs: []FD{{Name: "p", Kind: Pipe}}}, reconnect.check(Check{Name: "p", Hangup: true})))
	}
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
		steps("life/resets are counted", ask(cmdReset, 0, none), ask(cmdReset, 0, none), read(regResets, 8, U64(2))).reference(),
	)
}
