// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"
)

// FuzzControl runs a program of admin commands, control WQEs and register writes
// on a device that both drivers have brought up. Whatever it does, the device
// lives, writes to no free memory, and comes up again after a PF reset.
//
// A program is a list of instructions: a byte that tells the kind, then
//
//	0 admin command: opcode (2), parameters (16), bytes of buffer (1), buffer
//	1 control WQE:   opcode (1), the eight words (64)
//	2 register:      offset (4), value (4)
//
// A word of a WQE whose highest byte is 'G' is an address in scratch memory.
func FuzzControl(f *testing.F) {
	admin := func(op uint16, buf ...byte) []byte {
		b := binary.LittleEndian.AppendUint16([]byte{0}, op)
		b = append(b, make([]byte, 16)...)
		return append(append(b, byte(len(buf))), buf...)
	}
	wqe := func(op uint8, w WQE) []byte {
		b := []byte{1, op}
		for _, word := range w {
			b = binary.LittleEndian.AppendUint64(b, word)
		}
		return b
	}
	const scratch = 'G' << 56
	f.Add(append(admin(ice_aqc_opc_update_vsi, make([]byte, vsiPropsSize)...), admin(ice_aqc_opc_free_vsi)...))
	f.Add(admin(ice_aqc_opc_clear_pf_cfg))
	f.Add(append(admin(ice_aqc_opc_q_shutdown), admin(ice_aqc_opc_get_ver)...))
	f.Add(append(wqe(IRDMA_CQP_OP_CREATE_CQ, WQE{0: 64, 3: 9 | cqCEQValid | cqCheckOver, 4: scratch, 5: scratch | 0x4000}),
		wqe(IRDMA_CQP_OP_DESTROY_CQ, WQE{3: 9})...))
	f.Add(wqe(IRDMA_CQP_OP_CREATE_QP, WQE{2: scratch, 3: 9 | 3<<qpTypeBit | 1<<qpStateBit, 5: scratch | 0x1000}))
	f.Add(wqe(IRDMA_CQP_OP_UPDATE_PE_SDS, WQE{0: sdCmdWrite | sdCmdPE | 3, 1: sdPageCount | sdValid, 2: scratch, 3: 8}))
	f.Add(wqe(IRDMA_CQP_OP_COMMIT_FPM_VAL, WQE{3: 208, 4: scratch}))
	f.Add(wqe(IRDMA_CQP_OP_DESTROY_CQ, WQE{}))
	// An STag of each kind, made and ended, twice.
	for _, kind := range []uint64{stagMR, 0, stagWindowType1} {
		alloc := wqe(IRDMA_CQP_OP_ALLOC_STAG, WQE{1: 1<<stagPDBit | 0x4000, 2: 9 << stagIndexBit, 3: kind})
		gone := wqe(IRDMA_CQP_OP_DEALLOC_STAG, WQE{1: 1 << stagPDBit, 2: 9 << stagIndexBit, 3: kind & stagMR})
		f.Add(slices.Concat(alloc, alloc, gone, gone))
	}
	region := WQE{0: 0x1234_5000, 1: 1<<stagPDBit | 0x9000, 2: 9<<stagIndexBit | 7, 3: stagMR | stagVABased | 1<<stagLPBLSizeBit | 31<<stagRightsBit, 6: 100}
	shared := region
	shared[2] = 10<<stagIndexBit | 9<<shareParentBit
	f.Add(slices.Concat(wqe(IRDMA_CQP_OP_REG_MR, region), wqe(IRDMA_CQP_OP_QUERY_STAG, WQE{2: 9 << stagIndexBit}),
		wqe(IRDMA_CQP_OP_REG_SMR, shared), wqe(IRDMA_CQP_OP_DEALLOC_STAG, WQE{1: 1 << stagPDBit, 2: 9 << stagIndexBit, 3: stagMR})))
	region[3] |= 3 << stagLPBLSizeBit
	f.Add(wqe(IRDMA_CQP_OP_REG_MR, region))
	f.Add(slices.Concat(wqe(IRDMA_CQP_OP_UPLOAD_CONTEXT, WQE{2: scratch, 3: 1 | qpTypeUD<<qpTypeBit | uploadFreeze}),
		wqe(IRDMA_CQP_OP_RESUME_QP, WQE{2: 1, 3: 1}), wqe(IRDMA_CQP_OP_SUSPEND_QP, WQE{3: 1})))
	f.Add(slices.Concat(wqe(IRDMA_CQP_OP_MANAGE_APBVT, WQE{2: 4420, 3: portAdd}), wqe(IRDMA_CQP_OP_MANAGE_APBVT, WQE{2: 4420})))
	hash := WQE{1: 5 | 1<<quadQPBit, 3: quadTCPEstablished<<quadTypeBit | quadAdd<<quadOpBit | quadIPv4}
	f.Add(slices.Concat(wqe(IRDMA_CQP_OP_MANAGE_QUAD_HASH_TABLE_ENTRY, hash), wqe(IRDMA_CQP_OP_MANAGE_QUAD_HASH_TABLE_ENTRY, hash)))
	f.Add(slices.Concat(wqe(IRDMA_CQP_OP_MANAGE_PUSH_PAGES, WQE{2: 1, 3: noPushPage}), wqe(IRDMA_CQP_OP_MANAGE_PUSH_PAGES, WQE{2: 1, 3: pushFree})))
	f.Add(slices.Concat(wqe(IRDMA_CQP_OP_MANAGE_STATS, WQE{3: statsAlloc}), wqe(IRDMA_CQP_OP_GATHER_STATS, WQE{3: 1 << 61, 4: scratch}),
		wqe(IRDMA_CQP_OP_UP_MAP, WQE{0: 0x0706050403020100})))
	f.Add(wqe(IRDMA_CQP_OP_CREATE_MCAST_GRP, WQE{3: 3 | groupIPv4, 4: scratch}))
	f.Add(wqe(IRDMA_CQP_OP_CREATE_ADDR_HANDLE, WQE{3: 5 | ahIPv4}))
	f.Add([]byte{2, 0x80, 0xa0, 0x50, 0, 0, 0, 0, 0})

	ctx, sockets := serveForFuzz(f, 1)
	f.Fuzz(func(t *testing.T, program []byte) {
		g, err := NewGuest(guestMiB)
		must(t, err)
		defer g.Close()
		fn, err := attachForFuzz(ctx, sockets[0], g)
		must(t, err)
		defer fn.Detach()
		m, err := bringUp(fn, Linux73(), Options{})
		must(t, err)
		space, err := g.Alloc(64 << 10)
		must(t, err)
		fn.Patience = 20 * time.Millisecond // it may well have stopped the queues
		runProgram(m, space, program)
		fn.Patience = fuzzPatience
		fn.flush()
		must(t, fn.Err())
		must(t, m.i.Reset())
		m.abandon()
		space.Free()
		must(t, g.checkEdges()) // it was told to write anywhere else
		g.Check()
		check(t, fn, Linux73())
	})
}

// runProgram executes at most a few dozen instructions and ignores all answers.
func runProgram(m *machine, space *Buf, p []byte) {
	take := func(n int) []byte {
		b := make([]byte, n)
		p = p[copy(b, p):]
		return b
	}
	for n := 0; len(p) > 0 && n < 32; n++ {
		switch take(1)[0] % 3 {
		case 0:
			c := &Command{Op: le.Uint16(take(2)), P: [16]byte(take(16))}
			if size := int(take(1)[0]); size > 0 {
				c.Buf, c.RD = take(size), true
			}
			if m.i.aq.send.alive() {
				_ = m.i.Do(c)
			}
		case 1:
			op := take(1)[0] & 0x3f
			var w WQE
			for k := range w {
				w[k] = le.Uint64(take(8))
				if w[k]>>56 == 'G' {
					w[k] = space.IOVA + w[k]&0x7fc0
				}
			}
			w[3] &^= 0x3f<<wqeOpcodeBit | wqeValid
			if _, err := m.r.post(op, w); err == nil {
				m.r.cqp.doorbell()
				_, _ = m.r.drainCCQ()
			}
		case 2:
			m.f.Write32(le.Uint32(take(4))&0x1fffffc, le.Uint32(take(4)))
		}
	}
}
