// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"encoding/binary"
	"fmt"
)

const (
	quantumWords = 4
	maxWQEWords  = 8 * quantumWords
)

// shape is how a send WQE uses its words.
type shape uint8

const (
	shapeMessage  shape = iota // fragments, or inline data
	shapeBind                  // BIND_MW
	shapeRegister              // FAST_REG_NSMR
	shapeInval                 // INV_STAG
	shapeEmpty                 // nothing but the header
)

// sendOperation is a row of the send opcodes (user.h:IRDMA_OP_TYPE_*,
// defs.h:IRDMAQP_OP_*).
type sendOperation struct {
	op    uint8
	name  string
	shape shape
	// low names bits 31:0 of the header.
	low    []Field
	remote bool // word 2 is the remote address
	source string
}

var (
	remSTag   = []Field{{"IRDMAQPSQ_REMSTAG", 3, 31, 0, hexa}}
	invSTag   = []Field{{"IRDMAQPSQ_REMSTAGINV", 3, 31, 0, hexa}}
	ahOfUD    = []Field{{"IRDMAQPSQ_AHID (UD)", 3, 24, 0, decimal}}
	datagrams = []Field{{"IRDMAQPSQ_DESTQPN (UD)", 2, 55, 32, decimal}, {"IRDMAQPSQ_DESTQKEY (UD)", 2, 31, 0, hexa}}
)

var sendOperations = [...]sendOperation{
	{0x00, "IRDMA_OP_TYPE_RDMA_WRITE", shapeMessage, remSTag, true, "uk.c:irdma_uk_rdma_write"},
	{0x01, "IRDMA_OP_TYPE_RDMA_READ", shapeMessage, remSTag, true, "uk.c:irdma_uk_rdma_read"},
	{0x03, "IRDMA_OP_TYPE_SEND", shapeMessage, ahOfUD, false, "uk.c:irdma_uk_send"},
	{0x04, "IRDMA_OP_TYPE_SEND_INV", shapeMessage, invSTag, false, "uk.c:irdma_uk_send"},
	{0x05, "IRDMA_OP_TYPE_SEND_SOL", shapeMessage, ahOfUD, false, "uk.c:irdma_uk_send"},
	{0x06, "IRDMA_OP_TYPE_SEND_SOL_INV", shapeMessage, invSTag, false, "uk.c:irdma_uk_send"},
	{0x08, "IRDMA_OP_TYPE_BIND_MW", shapeBind, nil, false, "rdma-core uk.c:irdma_uk_mw_bind"},
	{0x09, "IRDMA_OP_TYPE_FAST_REG_NSMR", shapeRegister, nil, false, "ctrl.c:irdma_sc_mr_fast_register"},
	{0x0A, "IRDMA_OP_TYPE_INV_STAG", shapeInval, nil, false, "uk.c:irdma_uk_stag_local_invalidate"},
	{0x0B, "IRDMA_OP_TYPE_RDMA_READ_INV_STAG", shapeMessage, remSTag, true, "uk.c:irdma_uk_rdma_read"},
	{0x0C, "IRDMA_OP_TYPE_NOP", shapeEmpty, nil, false, "uk.c:irdma_nop_1"},
	{0x0D, "IRDMA_OP_TYPE_RDMA_WRITE_SOL", shapeMessage, remSTag, true, "uk.c:irdma_uk_rdma_write"},
	{0x0F, "IRDMA_OP_TYPE_ATOMIC_FETCH_AND_ADD", shapeMessage, remSTag, true, "uk.c:irdma_uk_atomic_fetch_add"},
	{0x11, "IRDMA_OP_TYPE_ATOMIC_COMPARE_AND_SWAP", shapeMessage, remSTag, true, "uk.c:irdma_uk_atomic_compare_swap"},
	{0x30, "IRDMAQP_OP_GEN_RTS_AE", shapeEmpty, nil, false, "uk.c:irdma_setup_connection_wqes"},
}

var sendOps = Kind{"send opcode", func(v uint64) string {
	if o := sendOperationOf(uint8(v)); o != nil {
		return fmt.Sprintf("0x%02x %s", v, o.name)
	}
	return fmt.Sprintf("0x%02x (no driver sends it)", v)
}}

func sendOperationOf(op uint8) *sendOperation {
	for i := range sendOperations {
		if sendOperations[i].op == op {
			return &sendOperations[i]
		}
	}
	return nil
}

var (
	sqHeader = []Field{
		{"IRDMAQPSQ_VALID", 3, 63, 63, flag},
		{"IRDMAQPSQ_SIGCOMPL", 3, 62, 62, flag},
		{"IRDMAQPSQ_LOCALFENCE", 3, 61, 61, flag},
		{"IRDMAQPSQ_READFENCE", 3, 60, 60, flag},
		{"IRDMAQPSQ_OPCODE", 3, 37, 32, sendOps},
	}
	sqMessage = []Field{
		{"IRDMAQPSQ_WAITFORRCVPDU", 3, 59, 59, unused},
		{"IRDMAQPSQ_STREAMMODE", 3, 58, 58, unused},
		{"IRDMAQPSQ_INLINEDATAFLAG", 3, 57, 57, flag},
		{"IRDMAQPSQ_PUSHWQE", 3, 56, 56, flag},
		{"IRDMAQPSQ_INLINEDATALEN", 3, 55, 48, decimal},
		{"IRDMAQPSQ_IMMDATAFLAG", 3, 47, 47, flag},
		{"IRDMAQPSQ_REPORTRTT", 3, 46, 46, flag},
		{"IRDMAQPSQ_L4LEN", 3, 45, 42, decimal},
		{"IRDMAQPSQ_ADDFRAGCNT", 3, 41, 38, decimal},
	}
	sqBind = []Field{
		{"IRDMAQPSQ_BASEVA_TO_FBO", 0, 63, 0, address},
		{"IRDMAQPSQ_PARENTMRSTAG", 1, 63, 32, hexa},
		{"IRDMAQPSQ_MWSTAG", 1, 31, 0, hexa},
		{"IRDMAQPSQ_MWLEN", 2, 63, 0, hexa},
		{"IRDMAQPSQ_REMOTE_ATOMICS_EN", 3, 55, 55, unused},
		{"IRDMAQPSQ_MEMWINDOWTYPE", 3, 54, 54, enum("type 2", "type 1")},
		{"IRDMAQPSQ_VABASEDTO", 3, 53, 53, flag},
		{"IRDMAQPSQ_STAGRIGHTS", 3, 52, 48, rights},
	}
	sqRegister = []Field{
		{"IRDMAQPSQ_BASEVA_TO_FBO", 0, 63, 0, address},
		{"IRDMAQPSQ_PBLADDR", 1, 63, 12, shifted(12)},
		{"IRDMAQPSQ_FIRSTPMPBLIDXHI", 1, 11, 0, hexa},
		{"IRDMAQPSQ_FIRSTPMPBLIDXLO", 2, 63, 48, hexa},
		{"IRDMAQPSQ_STAGLEN", 2, 40, 0, hexa},
		{"IRDMAQPSQ_REMOTE_ATOMICS_EN", 3, 55, 55, unused},
		{"IRDMAQPSQ_VABASEDTO", 3, 53, 53, flag},
		{"IRDMAQPSQ_STAGRIGHTS", 3, 52, 48, rights},
		{"IRDMAQPSQ_HPAGESIZE", 3, 47, 46, pageSizes},
		{"IRDMAQPSQ_LPBLSIZE", 3, 45, 44, levels},
		{"IRDMAQPSQ_COPYHOSTPBLS", 3, 43, 43, flag},
		{"IRDMAQPSQ_STAGINDEX", 3, 31, 8, hexa},
		{"IRDMAQPSQ_STAGKEY", 3, 7, 0, hexa},
	}
	sqInvalidate = []Field{{"IRDMAQPSQ_LOCSTAG", 1, 31, 0, hexa}}
)

// fragment are the fields of a fragment at words at and at+1.
func fragment(at int) []Field {
	return []Field{
		{"IRDMAQPSQ_FRAG_TO", at, 63, 0, address},
		{"IRDMAQPSQ_FRAG_VALID", at + 1, 63, 63, flag},
		{"IRDMAQPSQ_FRAG_LEN", at + 1, 62, 32, decimal},
		{"IRDMAQPSQ_FRAG_STAG", at + 1, 31, 0, hexa},
	}
}

// fragments are the fields of n fragments behind the header.
func fragments(n int) (out []Field) {
	for i := range n {
		out = append(out, fragment(quantumWords+2*i)...)
	}
	return out
}

// inlineBytes is how many bytes of inline data the WQE names.
func inlineBytes(header uint64) int { return int(header >> 48 & 0xFF) }

// inlineQuanta is uk.c:irdma_inline_data_size_to_quanta.
func inlineQuanta(n int) int {
	if n <= 8 {
		return 1
	}
	return 1 + (n-8+30)/31
}

// sendLength is how many words the send WQE at the start of w takes.
func sendLength(w []uint64) int {
	if len(w) <= 3 {
		return quantumWords
	}
	h := w[3]
	o := sendOperationOf(uint8(h >> 32 & 0x3F))
	if o == nil || o.shape != shapeMessage {
		return quantumWords
	}
	quanta := 1 + (int(h>>38&0xF)+1)/2
	if h>>57&1 != 0 {
		quanta = inlineQuanta(inlineBytes(h))
	}
	return min(quanta*quantumWords, maxWQEWords)
}

func chooseWQE(w *Words) (*Layout, error) {
	if !w.Has(3) {
		return &Layout{Name: "Send WQE of unknown operation: word 3 is not given"}, nil
	}
	h := w.V[3]
	o := sendOperationOf(uint8(h >> 32 & 0x3F))
	if o == nil {
		return &Layout{Name: "Send WQE with an opcode that no driver has", Source: "user.h:IRDMA_OP_TYPE_*", Fields: sqHeader,
			Notes: func(*Words) []string { return []string{"ends in " + aeName(0x020A)} }}, nil
	}
	l := &Layout{Name: o.name, Source: o.source, Notes: sendNotes}
	switch o.shape {
	case shapeBind:
		l.Fields = join(sqHeader, sqBind)
	case shapeRegister:
		l.Fields = join(sqHeader, sqRegister)
	case shapeInval:
		l.Fields = join(sqHeader, sqInvalidate)
	case shapeEmpty:
		l.Fields = sqHeader
	default:
		l.Fields = join(sqHeader, sqMessage, o.low, messageWords(o, h))
	}
	return l, nil
}

// messageWords are the words of a message beside the header.
func messageWords(o *sendOperation, h uint64) (out []Field) {
	immediate, inline := h>>47&1 != 0, h>>57&1 != 0
	switch {
	case immediate:
		out = append(out, Field{"IRDMAQPSQ_IMMDATA", 0, 63, 0, hexa})
	case !inline:
		out = append(out, fragment(0)...)
	default:
		out = append(out, Field{"not used", 0, 63, 0, hexa})
	}
	if o.remote {
		out = append(out, Field{"IRDMAQPSQ_REMTO", 2, 63, 0, address})
	} else {
		out = append(out, datagrams...)
	}
	if inline {
		out = append(out, Field{"inline data", 1, 63, 0, hexa})
		for i := quantumWords; i < quantumWords*inlineQuanta(inlineBytes(h)); i++ {
			out = append(out, Field{"inline data", i, 63, 0, hexa})
		}
		return out
	}
	if immediate {
		out = append(out, Field{"not used", 1, 63, 0, hexa})
	}
	return append(out, fragments(int(h>>38&0xF))...)
}

func sendNotes(w *Words) (out []string) {
	h := w.V[3]
	o := sendOperationOf(uint8(h >> 32 & 0x3F))
	switch o.shape {
	case shapeBind:
		if w.Has(0, 1, 2) {
			out = append(out, fmt.Sprintf("window 0x%08x on region 0x%08x, from %#x on, %#x bytes", uint32(w.V[1]), w.V[1]>>32, w.V[0], w.V[2]))
		}
	case shapeRegister:
		out = append(out, registerNotes(w)...)
	case shapeMessage:
		out = append(out, messageNotes(w, h)...)
	}
	if h>>62&1 == 0 && o.shape != shapeEmpty {
		out = append(out, "no CQE of its own")
	}
	return out
}

func registerNotes(w *Words) []string {
	out := []string{fmt.Sprintf("region with STag 0x%08x", uint32(w.V[3]))}
	if !w.Has(0, 1, 2) {
		return out
	}
	length, shift, level := w.Bits(2, 40, 0), [...]uint8{12, 21, 30, 12}[w.Bits(3, 47, 46)], w.Bits(3, 45, 44)
	if length == 0 {
		return out
	}
	first, pages := w.Bits(1, 11, 0)<<16|w.Bits(2, 63, 48), pagesOf(w.V[0], length, shift)
	out[0] += fmt.Sprintf(", %#x bytes in %d pages of %s", length, pages, pageSize(shift))
	switch level {
	case 0:
		out = append(out, fmt.Sprintf("the page is at %#x", w.V[1]&^0xFFF))
	case 1:
		out = append(out, fmt.Sprintf("the pages' addresses are PBLEs %d to %d", first, first+pages-1))
		if pages > 512 {
			out = append(out, "drivers may have made a level 2 list here, and name its root as level 1 (verbs.c:irdma_alloc_mr)")
		}
	}
	return out
}

func messageNotes(w *Words, h uint64) (out []string) {
	if h>>57&1 != 0 {
		n := inlineBytes(h)
		if w.Has(1) && len(w.V) >= quantumWords*inlineQuanta(n) && w.Has(len(w.V)-1) {
			out = append(out, fmt.Sprintf("%d bytes inline: % x", n, inlineData(w.V, n)))
		}
		return out
	}
	total, known := uint64(0), true
	count := func(i int) {
		if !w.Has(i) {
			known = false
			return
		}
		total += w.Bits(i, 62, 32)
	}
	if h>>47&1 == 0 {
		count(1)
	}
	for i := range int(h >> 38 & 0xF) {
		count(quantumWords + 2*i + 1)
	}
	if known {
		out = append(out, fmt.Sprintf("message of %d bytes", total))
	}
	if n := int(h>>38&0xF)/2 + int(h>>38&1) + 1; n > 8 {
		out = append(out, fmt.Sprintf("takes %d quanta, a WQE has at most 8: ends in %s", n, aeName(0x020B)))
	}
	return out
}

// inlineData collects n bytes: 8 lie before the header, 31 in each quantum
// behind it, whose last byte has the valid bit.
func inlineData(w []uint64, n int) []byte {
	var b []byte
	for _, v := range w {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	out := append([]byte(nil), b[8:16]...)
	for at := 8 * quantumWords; len(out) < n && at < len(b); at += 8 * quantumWords {
		out = append(out, b[at:at+31]...)
	}
	return out[:min(n, len(out))]
}

// receiveLength is how many words the receive WQE at the start of w uses; what
// its slot has behind them is stale.
func receiveLength(w []uint64) int {
	if len(w) <= 3 {
		return quantumWords
	}
	return min(quantumWords*(1+(int(w[3]>>38&0xF)+1)/2), maxWQEWords)
}

func chooseRWQE(w *Words) (*Layout, error) {
	l := &Layout{Name: "Receive WQE", Source: "uk.c:irdma_uk_post_receive", Fields: join([]Field{
		{"IRDMAQPSQ_VALID", 3, 63, 63, flag},
		{"IRDMAQPSQ_ADDFRAGCNT", 3, 41, 38, decimal},
	}, fragment(0))}
	if !w.Has(3) {
		return l, nil
	}
	n := int(w.V[3] >> 38 & 0xF)
	l.Fields = join(l.Fields, fragments(n))
	l.Notes = func(w *Words) []string {
		total := uint64(0)
		for i := range n + 1 {
			at := 1
			if i > 0 {
				at = quantumWords + 2*i - 1
			}
			if !w.Has(at) {
				return nil
			}
			total += w.Bits(at, 62, 32)
		}
		return []string{fmt.Sprintf("room for %d bytes", total)}
	}
	return l, nil
}
