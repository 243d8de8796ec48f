// SPDX-License-Identifier: Apache-2.0

package fw

import "fmt"

// Command is the event of a completed command.
type Command struct {
	Queue   string // kernel name of the queue, e.g. "PF_FW_ATQ"
	Index   uint32 // descriptor
	Opcode  uint16
	Name    string // ice_aqc_opc_* without its prefix
	Datalen uint16 // as the driver sent it
	Retval  uint16 // ICE_AQ_RC_*
}

func (c Command) String() string {
	return fmt.Sprintf("%s[%d] %#04x %s len %d: %s", c.Queue, c.Index, c.Opcode, c.Name, c.Datalen, errno(c.Retval))
}

// UnknownCommand is the event of an opcode that the firmware does not have.
// Name is empty if no driver knows it either.
type UnknownCommand struct {
	Queue  string
	Index  uint32
	Opcode uint16
	Name   string
}

func (u UnknownCommand) String() string {
	name := u.Name
	if name == "" {
		name = "unknown"
	}
	return fmt.Sprintf("%s[%d] opcode %#04x (%s) is not supported", u.Queue, u.Index, u.Opcode, name)
}

// DescriptorSize is the size of a control queue's descriptor.
const DescriptorSize = descSize

// OpcodeOf is the opcode in a descriptor.
func OpcodeOf(d [DescriptorSize]byte) uint16 { return le.Uint16(d[2:]) }

// BlankDescriptor is the event of a descriptor without a bit set among those
// that the driver posted. It is executed like any other of opcode 0, and says
// that the card may not see what the driver writes.
type BlankDescriptor struct {
	Queue   string
	Index   uint32
	Address uint64
}

func (b BlankDescriptor) String() string {
	return fmt.Sprintf("%s[%d] at %#x is blank", b.Queue, b.Index, b.Address)
}

// BadDescriptor is the event of a descriptor that breaks the rules common to
// all commands.
type BadDescriptor struct {
	Queue   string
	Index   uint32
	Opcode  uint16
	Flags   uint16
	Datalen uint16
	Address uint64 // of the descriptor
	Why     string
}

func (b BadDescriptor) String() string {
	return fmt.Sprintf("%s[%d] opcode %#04x flags %#04x datalen %d at %#x: %s",
		b.Queue, b.Index, b.Opcode, b.Flags, b.Datalen, b.Address, b.Why)
}

// BadIndex is the event of a head or tail outside the ring. Nothing was
// fetched. Entries is 0 if the queue is off.
type BadIndex struct {
	Register string // kernel name, e.g. "PF_FW_ATQT"
	Value    uint32
	Entries  uint32
}

func (b BadIndex) String() string {
	if b.Entries == 0 {
		return fmt.Sprintf("%s = %d while the queue is off", b.Register, b.Value)
	}
	return fmt.Sprintf("%s = %d in a ring of %d", b.Register, b.Value, b.Entries)
}

// QueueFault is the event of a failed access to a ring or a command buffer.
type QueueFault struct {
	Queue   string
	Index   uint32
	Object  string // "descriptor" or "buffer"
	Address uint64
	Err     error
}

func (q QueueFault) String() string {
	return fmt.Sprintf("%s[%d] %s at %#x: %v", q.Queue, q.Index, q.Object, q.Address, q.Err)
}

// LockMissing is the event of a command that wants a resource lock (0x0008)
// which the driver does not hold. The command was executed all the same.
type LockMissing struct {
	Opcode   uint16
	Resource uint16 // ICE_*_RES_ID
}

func (l LockMissing) String() string {
	return fmt.Sprintf("opcode %#04x without resource lock %d", l.Opcode, l.Resource)
}

// LockNotHeld is the event of a release (0x0009) of a lock that is not held.
type LockNotHeld struct{ Resource uint16 }

func (l LockNotHeld) String() string {
	return fmt.Sprintf("release of resource lock %d, which is not held", l.Resource)
}

// DriverVersion is the event of the driver introducing itself (0x0002): Text
// is the kernel release.
type DriverVersion struct {
	Major, Minor, Build, Subbuild uint8
	Text                          string
}

func (d DriverVersion) String() string {
	return fmt.Sprintf("driver version %d.%d.%d.%d %q", d.Major, d.Minor, d.Build, d.Subbuild, d.Text)
}

// PackageLoaded is the event of a complete DDP download.
type PackageLoaded struct {
	Name    string
	Version [4]uint8 // major, minor, update, draft
	Buffers int
}

func (p PackageLoaded) String() string {
	v := p.Version
	return fmt.Sprintf("DDP package %q version %d.%d.%d.%d in %d buffers", p.Name, v[0], v[1], v[2], v[3], p.Buffers)
}

// BadPackage is the event of a DDP buffer that cannot be parsed.
type BadPackage struct {
	Opcode uint16
	Offset int // in the buffer
	Why    string
}

func (b BadPackage) String() string {
	return fmt.Sprintf("opcode %#04x: DDP buffer at %#x: %s", b.Opcode, b.Offset, b.Why)
}

// Notice is the event of a message put on the receive queue.
type Notice struct {
	Index  uint32
	Opcode uint16
	Name   string
}

func (n Notice) String() string {
	return fmt.Sprintf("PF_FW_ARQ[%d] %#04x %s", n.Index, n.Opcode, n.Name)
}

// NoticeLost is the event of a message that could not be delivered.
type NoticeLost struct {
	Opcode uint16
	Why    string
}

func (n NoticeLost) String() string {
	return fmt.Sprintf("event %#04x lost: %s", n.Opcode, n.Why)
}

// PortLED is the event of the port's LED beginning to blink, for someone to
// find the port, or ending it.
type PortLED struct{ Blinking bool }

// Notice marks what a person looks for; see package trace.
func (PortLED) Notice() {}

func (p PortLED) String() string {
	if p.Blinking {
		return "port LED blinks"
	}
	return "port LED shows the link"
}

// LinkChange is the event of the link going up or down.
type LinkChange struct{ Up bool }

func (l LinkChange) String() string {
	if l.Up {
		return "link up"
	}
	return "link down"
}
