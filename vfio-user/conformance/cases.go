// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"syscall"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
)

// Cases are all the conversations.
func Cases() []Case {
	return slices.Concat(versionCases(), framingCases(), featureCases(), infoCases(), mappedCases(), irqCases(), irqStateCases(), regionCases(), multiCases(), configCases(), dmaCases(), memoryCases(), settleCases(), lifeCases(), qemuCases())
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
