// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/binary"
	"slices"
	"syscall"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
)

// Case is one conversation.
type Case struct {
	Name string
	// Raw: the connection is as it was opened. Otherwise VERSION has been agreed
	// on with QEMU's text before the first step.
	Raw bool
	// Needs is what the server must have for the case to mean anything.
	Needs Needs
	Steps []Step
}

// Step is something sent and what must come of it.
//
// The replies may come in any order, as the protocol has it, those to one id
// among themselves excepted: a case that wants an order has a step for each. No
// reply may come that the step does not want.
type Step struct {
	Send  []byte // one message or several, or a part of one
	Split int    // bytes per write; 0 means all in one
	FDs   []FD   // sent with the first byte
	Want  []Want
	// DMA are the commands of the server that must come, in this order. They are
	// answered once all replies are there, as QEMU does, which holds its big lock
	// until then.
	DMA []DMA
	// Checks are made after the replies.
	Checks []Check
	// Signal adds 1 to the eventfd of this name, before Send.
	Signal string
	// Release sends the answers held back under these names, before Send.
	Release []string
	// Closed: the server ends the connection after that.
	Closed bool
	// Reconnect drops the connection before Send and takes a new one, with
	// VERSION agreed on.
	Reconnect bool
}

// Want is a reply.
type Want struct {
	ID      uint16
	Command vfiouser.Command
	Errno   syscall.Errno // 0: success
	// Or is another errno that is right too.
	Or syscall.Errno
	// Payload is compared if it is not nil; Check has a look of its own.
	Payload []byte
	Check   func(payload []byte) error
	// Save keeps the payload under this name, Like wants the one kept.
	Save, Like string
	// File is the name to keep the reply's one descriptor under; without it the
	// reply has none.
	File string
	// AnyFile: whether it has one does not matter here.
	AnyFile bool
	// Long: the reply may be longer than its request has room for. Only for
	// VERSION of a client that gave no room at all.
	Long bool
}

// DMA is a DMA_READ or DMA_WRITE of the server's, and the answer to it.
type DMA struct {
	Command        vfiouser.Command
	Address, Count uint64
	Data           []byte // of DMA_WRITE what must come, of DMA_READ the answer
	// Answers are sent instead of the one correct answer: none at all if it is
	// empty and not nil.
	Answers []Answer
	// Hold keeps the answers under this name until a step releases them.
	Hold string
}

// Answer is an answer to a DMA command. The zero value is the correct one.
type Answer struct {
	OtherID bool // under an id that the server did not use
	Command vfiouser.Command
	Flags   uint32 // 0: those of a reply
	Errno   syscall.Errno
	Payload []byte // nil: what the command asked for, or nothing with an Errno
	FDs     []FD
}

// FD is a descriptor to send. Several may have the same name: the last one is
// meant then.
type FD struct {
	Name string
	Kind FDKind
	// Value is what an eventfd starts with, and the first 8 bytes of a file.
	Value uint64
}

// FDKind says what to send.
type FDKind int

// The kinds of descriptors.
const (
	EventFD FDKind = iota // an eventfd
	Pipe                  // the write end of a pipe; Check.Hangup tells when it is closed
	File                  // a memfd of 64 KiB
	Same                  // one more descriptor of a file sent before under this name
)

// Check looks at something other than replies.
type Check struct {
	Name string // of a descriptor sent or kept before
	// Count is what the eventfd has counted; it is read, and so set to 0.
	Count uint64
	// Hangup: the server has closed the pipe.
	Hangup bool
	// Bytes are what the file holds at Offset, through a mapping of it. With Store they
	// are put there instead.
	Bytes  []byte
	Offset int64
	Store  bool
}

// Message builds a message.
func Message(id uint16, cmd vfiouser.Command, flags uint32, payload ...[]byte) []byte {
	body := slices.Concat(payload...)
	b := make([]byte, 16, 16+len(body))
	vfiouser.Header{ID: id, Command: cmd, Size: uint32(16 + len(body)), Flags: flags}.Put(b)
	return append(b, body...)
}

// U32 puts numbers behind each other.
func U32(v ...uint32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

// U64 puts numbers behind each other.
func U64(v ...uint64) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return b
}
