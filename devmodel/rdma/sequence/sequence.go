// SPDX-License-Identifier: Apache-2.0

// Package sequence makes random sequences of control operations, right and
// wrong ones, and has a model that says of each whether the device has to do it
// or to refuse it, and what the device must have afterwards.
//
// Contract and traps:
//   - The model reads the words of the WQEs itself. It shares no code with the
//     device, but the facts: drivers and what is inferred from them.
//   - A World says what sequences may touch. The rest of the device is the
//     driver's, and stays as it is.
//   - Queues of the sequences lie in memory that stays zero: nothing is posted.
//   - Operations are concrete. Any part of a sequence is one, too, with other
//     answers, so that one that fails can be made shorter.
package sequence

import (
	"fmt"
	"strings"

	"github.com/vrnic/vrnic/devmodel/hmc"
)

// WQE are the words of a control operation, without the valid bit.
type WQE = [8]uint64

// Op is a control operation with what the driver writes to memory before.
type Op struct {
	Name   string
	WQE    WQE
	Addr   uint64   // of Memory; 0: the driver writes nothing
	Memory []uint64 // words
}

func (o Op) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-22s", o.Name)
	for _, q := range o.WQE {
		fmt.Fprintf(&b, " %#x", q)
	}
	if o.Addr != 0 {
		fmt.Fprintf(&b, "; at %#x:", o.Addr)
		for i, q := range o.Memory {
			if q != 0 {
				fmt.Fprintf(&b, " [%d]=%#x", i, q)
			}
		}
	}
	return b.String()
}

func (o *Op) opcode() uint8 { return uint8(o.WQE[3] >> 32 & 0x3f) }

// bits are bits hi..lo of a word.
func (o *Op) bits(word, hi, lo int) uint64 { return o.WQE[word] >> lo & (1<<(hi-lo+1) - 1) }

func (o *Op) flag(word, bit int) bool { return o.WQE[word]>>bit&1 != 0 }

// Range is numbers from First on.
type Range struct{ First, N uint32 }

// Has tells whether n is one of them.
func (r Range) Has(n uint32) bool { return n >= r.First && n-r.First < r.N }

// Extent is where the objects of a type are in the function's private memory.
type Extent struct {
	Base  uint64
	Count uint32
	Size  uint64
}

// World is what sequences may use of a device and its memory.
type World struct {
	Function uint64
	Objects  [hmc.NumObjects]Extent
	FirstSD  uint32
	MaxSDs   uint32
	MaxCEQs  uint32
	MAC      uint64

	// Numbers that are the sequences'.
	QPs, CQs, MRs, AHs, Groups, ARPs, Nodes, CEQs, SDs Range
	AEQ                                                bool   // it is the sequences', too
	Leaf                                               uint16 // inner node that leaves may be made below; 0: only the sequences'

	// Running: QPs do what is posted, by themselves. None is made whose rings
	// are in PBLEs, where there is nothing: it would end itself.
	Running bool

	PBLEs Range // nothing but the sequences names them

	// Guest memory of the sequences: what they fill for each operation; what
	// stays zero, for queues of QPs and private memory, 8 MiB; and what the
	// device may write to, 1 MiB.
	Fill, Zero, Scratch uint64
	Nowhere             uint64 // a MiB that is not mapped, as the first page is not
}

// SlotSize is how much of World.Fill one operation of a sequence needs.
const SlotSize = 512

// Lengths of memory of a World.
const (
	FillSize    = 64 * SlotSize
	ZeroSize    = 8 << 20
	ScratchSize = 1 << 20
)

// Completion is the answer to an operation.
type Completion struct {
	Error        bool
	Major, Minor uint16
	Value        uint32
}

// Answers tells whether the device's answer to an operation is more than yes or
// no: what follows may depend on it.
func (o *Op) Answers() bool {
	switch o.opcode() {
	case opAllocMAC, opManageStats, opPushPages, opNode:
		return true
	case opFlush: // of a virtual queue; events may follow
		return true
	}
	return false
}
