// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/vrnic/vrnic/devmodel/cqp"
)

const cqpWords = 8

// chooseCQP picks the layout of a control WQE by its opcode.
func chooseCQP(w *Words) (*Layout, error) {
	if !w.Has(3) {
		return &Layout{Name: "CQP WQE of unknown operation: word 3 is not given"}, nil
	}
	op := uint8(w.Bits(3, 37, 32))
	for _, o := range cqp.Opcodes() {
		if o.Op != op {
			continue
		}
		row, ok := cqpOperations[op]
		if !ok {
			return nil, fmt.Errorf("%s has no field table", o.Name)
		}
		notes := row.notes
		if why := o.Absent; why != "" || !o.Built {
			notes = func(w *Words) (out []string) {
				if row.notes != nil {
					out = row.notes(w)
				}
				if why == "" {
					why = "this device does not have it"
				}
				return append(out, "the operation fails: "+why)
			}
		}
		return &Layout{Name: o.Name, Source: o.Source, Fields: join(cqpHeader, row.fields), Notes: notes}, nil
	}
	return &Layout{Name: fmt.Sprintf("CQP opcode 0x%02x, which no driver has", op), Source: "defs.h:IRDMA_CQP_OP_*", Fields: cqpHeader}, nil
}

// region puts a registration together.
func stagNotes(w *Words) (out []string) {
	op := w.Bits(3, 37, 32)
	if w.Has(2) {
		stag := w.Bits(2, 31, 8)<<8 | w.Bits(2, 7, 0)
		what := "region"
		if !w.Flag(3, 43) {
			what = "window"
		}
		s := fmt.Sprintf("%s with STag 0x%08x", what, stag)
		if op == 0x0D || op == 0x09 || op == 0x0B {
			s = fmt.Sprintf("%s with STag 0x%08x, whatever its key", what, stag)
		}
		if w.Has(1) {
			s += fmt.Sprintf(", PD %d", w.Bits(2, 59, 54)<<18|w.Bits(1, 63, 46))
		}
		out = append(out, s)
	}
	if op == 0x0D || op == 0x0B || !w.Flag(3, 43) {
		return out
	}
	level, code := w.Bits(3, 45, 44), w.Bits(3, 47, 46)
	if code == 3 || level == 2 {
		return append(out, "no driver sends this LPBLSIZE or HPAGESIZE: the operation fails")
	}
	if !w.Has(1) {
		return out
	}
	length, shift := w.Bits(1, 45, 0), [...]uint8{12, 21, 30}[code]
	if length == 0 {
		return append(out, "length 0: all of memory")
	}
	if op == 0x09 {
		return append(out, fmt.Sprintf("room for %d pages of %s", pagesOf(0, length, shift), pageSize(shift)))
	}
	if !w.Has(0) {
		return out
	}
	start := w.V[0]
	base := uint64(0)
	if w.Flag(3, 59) {
		base = start
	}
	pages := pagesOf(start, length, shift)
	out = append(out, fmt.Sprintf("accesses from %#x to %#x, which is byte %#x of the first of %d pages of %s",
		base, base+length-1, start&mask(shift-1), pages, pageSize(shift)))
	switch first := w.Bits(6, 27, 0); {
	case level == 1 && w.Has(6):
		out = append(out, fmt.Sprintf("their addresses are PBLEs %d to %d", first, first+pages-1))
	case level == 3 && w.Has(6):
		roots := (pages + 511) / 512
		out = append(out, fmt.Sprintf("PBLEs %d to %d are the root: indices of %d leaves of 512 PBLEs", first, first+roots-1, roots))
	}
	return out
}

// pagesOf is the number of pages under length bytes, length > 0.
func pagesOf(start, length uint64, shift uint8) uint64 {
	return (start&mask(shift-1) + length + mask(shift-1)) >> shift
}

func pageSize(shift uint8) string {
	return map[uint8]string{12: "4 KiB", 21: "2 MiB", 30: "1 GiB"}[shift]
}

// qpNotes says which QP goes where.
func qpNotes(w *Words) []string {
	s := fmt.Sprintf("QP %d", w.Bits(3, 23, 0))
	if w.Bits(3, 37, 32) != 2 {
		s += fmt.Sprintf(" to state %s", qpStates.text(w.Bits(3, 62, 60)))
	}
	return []string{s}
}

func cqNotes(w *Words) (out []string) {
	s := fmt.Sprintf("CQ %d", w.Bits(3, 18, 0))
	if w.Has(0) && w.Bits(3, 37, 32) != 5 {
		s += fmt.Sprintf(", %d entries", w.Bits(0, 20, 0))
	}
	out = append(out, s)
	if w.Bits(3, 37, 32) == 5 || !w.Has(0) || !w.Flag(3, 47) || !w.Has(6) {
		return out
	}
	pages := (w.Bits(0, 20, 0)*32 + 4095) / 4096
	if pages == 0 {
		return out
	}
	first := w.Bits(6, 27, 0)
	return append(out, fmt.Sprintf("the ring's %d pages of 4 KiB are PBLEs %d to %d", pages, first, first+pages-1))
}

func arpNotes(w *Words) []string {
	i := w.Bits(3, 11, 0)
	switch {
	case w.Flag(3, 44):
		return []string{fmt.Sprintf("asks for entry %d", i)}
	case !w.Flag(3, 42):
		return []string{fmt.Sprintf("deletes entry %d", i)}
	case !w.Has(2):
		return []string{fmt.Sprintf("adds entry %d", i)}
	}
	return []string{fmt.Sprintf("adds entry %d: frames to %s", i, macText(w.Bits(2, 47, 0)))}
}

// ipText is an address of two words, of IPv4 in the lowest part.
func ipText(lo, hi uint64, v4 bool) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], hi)
	binary.BigEndian.PutUint64(b[8:], lo)
	if v4 {
		return netip.AddrFrom4([4]byte(b[12:])).String()
	}
	return netip.AddrFrom16(b).String()
}

func ahNotes(w *Words) (out []string) {
	out = append(out, fmt.Sprintf("address handle %d", w.Bits(3, 23, 0)))
	if w.Has(1, 2) {
		out[0] += fmt.Sprintf(", PD %d", w.Bits(2, 27, 20)<<16|w.Bits(1, 63, 48))
	}
	if w.Has(4, 5, 6, 7) {
		v4 := w.Flag(3, 59)
		out = append(out, fmt.Sprintf("from %s to %s", ipText(w.V[6], w.V[7], v4), ipText(w.V[4], w.V[5], v4)))
	}
	return out
}

func flushNotes(w *Words) (out []string) {
	id := w.Bits(3, 23, 0)
	if w.Flag(3, 59) {
		s := fmt.Sprintf("IRDMA_CQP_OP_GEN_AE: raises an asynchronous event of QP %d", id)
		if w.Has(1) {
			s += ": " + aeName(uint16(w.Bits(1, 15, 0)))
		}
		out = append(out, s)
	}
	sq, rq := w.Flag(3, 61), w.Flag(3, 62)
	if !sq && !rq {
		return out
	}
	which := map[[2]bool]string{{true, true}: "send and receive queue", {true, false}: "the send queue", {false, true}: "the receive queue"}[[2]bool{sq, rq}]
	return append(out, fmt.Sprintf("flushes %s of QP %d: one CQE for each that has WQEs", which, id))
}

// sdEntry tells what one entry of UPDATE_PE_SDS does.
func sdEntry(cmd, data uint64) string {
	sd := cmd & 0x7FFF
	what := "paged, page descriptors"
	if data>>1&1 != 0 {
		what = "direct, 2 MiB"
	}
	s := fmt.Sprintf("SD %d becomes valid: %s at %#x", sd, what, data&^0xFFF)
	if data&1 == 0 {
		s = fmt.Sprintf("SD %d is cleared", sd)
	}
	if cmd>>31&1 == 0 {
		s += " (PMSDWR is not set)"
	}
	return s
}

func sdUpdateNotes(w *Words) (out []string) {
	if w.Has(0, 1) && !w.Flag(3, 7) {
		out = append(out, "entry 0: "+sdEntry(w.Bits(0, 31, 0), w.V[1]))
	}
	for n, i := range []int{4, 6} {
		if w.Has(i, i+1) && w.Flag(i, 63) {
			out = append(out, fmt.Sprintf("entry %d: %s", n+1, sdEntry(w.Bits(i, 31, 0), w.V[i+1])))
		}
	}
	if n := w.Bits(3, 3, 0); n > 0 {
		s := fmt.Sprintf("%d more entries of 16 bytes (vrnic decode sd)", n)
		if w.Has(2) {
			s += fmt.Sprintf(" at %#x", w.V[2]&^0x7F)
		}
		if n > 8 {
			s += ", more than the 8 that there can be"
		}
		out = append(out, s)
	}
	return out
}
