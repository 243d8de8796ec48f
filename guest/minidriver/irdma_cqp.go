// SPDX-License-Identifier: Apache-2.0

package minidriver

import "fmt"

// Control QP operations by their kernel names (irdma/defs.h).
const (
	IRDMA_CQP_OP_CREATE_QP                    = 0x00
	IRDMA_CQP_OP_MODIFY_QP                    = 0x01
	IRDMA_CQP_OP_DESTROY_QP                   = 0x02
	IRDMA_CQP_OP_CREATE_CQ                    = 0x03
	IRDMA_CQP_OP_MODIFY_CQ                    = 0x04
	IRDMA_CQP_OP_DESTROY_CQ                   = 0x05
	IRDMA_CQP_OP_ALLOC_STAG                   = 0x09
	IRDMA_CQP_OP_REG_MR                       = 0x0a
	IRDMA_CQP_OP_QUERY_STAG                   = 0x0b
	IRDMA_CQP_OP_REG_SMR                      = 0x0c
	IRDMA_CQP_OP_DEALLOC_STAG                 = 0x0d
	IRDMA_CQP_OP_MANAGE_LOC_MAC_TABLE         = 0x0e
	IRDMA_CQP_OP_MANAGE_ARP                   = 0x0f
	IRDMA_CQP_OP_MANAGE_PUSH_PAGES            = 0x11
	IRDMA_CQP_OP_QUERY_RDMA_FEATURES          = 0x12
	IRDMA_CQP_OP_UPLOAD_CONTEXT               = 0x13
	IRDMA_CQP_OP_ALLOCATE_LOC_MAC_TABLE_ENTRY = 0x14
	IRDMA_CQP_OP_CREATE_CEQ                   = 0x16
	IRDMA_CQP_OP_DESTROY_CEQ                  = 0x18
	IRDMA_CQP_OP_CREATE_AEQ                   = 0x19
	IRDMA_CQP_OP_DESTROY_AEQ                  = 0x1b
	IRDMA_CQP_OP_CREATE_ADDR_HANDLE           = 0x1c
	IRDMA_CQP_OP_MODIFY_ADDR_HANDLE           = 0x1d
	IRDMA_CQP_OP_DESTROY_ADDR_HANDLE          = 0x1e
	IRDMA_CQP_OP_UPDATE_PE_SDS                = 0x1f
	IRDMA_CQP_OP_QUERY_FPM_VAL                = 0x20
	IRDMA_CQP_OP_COMMIT_FPM_VAL               = 0x21
	IRDMA_CQP_OP_FLUSH_WQES                   = 0x22
	IRDMA_CQP_OP_MANAGE_APBVT                 = 0x23
	IRDMA_CQP_OP_NOP                          = 0x24
	IRDMA_CQP_OP_MANAGE_QUAD_HASH_TABLE_ENTRY = 0x25
	IRDMA_CQP_OP_CREATE_MCAST_GRP             = 0x26
	IRDMA_CQP_OP_MODIFY_MCAST_GRP             = 0x27
	IRDMA_CQP_OP_DESTROY_MCAST_GRP            = 0x28
	IRDMA_CQP_OP_SUSPEND_QP                   = 0x29
	IRDMA_CQP_OP_RESUME_QP                    = 0x2a
	IRDMA_CQP_OP_SHMC_PAGES_ALLOCATED         = 0x2b
	IRDMA_CQP_OP_WORK_SCHED_NODE              = 0x2c
	IRDMA_CQP_OP_MANAGE_STATS                 = 0x2d
	IRDMA_CQP_OP_GATHER_STATS                 = 0x2e
	IRDMA_CQP_OP_UP_MAP                       = 0x2f
)

const (
	cqpSize       = 2048 // IRDMA_CQP_SW_SQSIZE_2048
	cqpWQESize    = 64
	cqpCtxSize    = 64
	cqpSDSlice    = 128 // of the SD buffer, per WQE
	cqpContext    = 0xffff_8881_0a5c_6e00
	cqpTailMask   = 0x7ff
	cqpTailOpErr  = 1 << 31
	ccqpDone      = 1 << 0
	ccqpErr       = 1 << 31
	wqeValid      = 1 << 63
	wqeOpcodeBit  = 32
	cqeError      = 1 << 55
	protocolRoCE  = 2
	hwMajVerGen2  = 1
	sqSizeEnc2048 = 10
)

// WQE is a control WQE; the header's opcode and valid bit are filled in when it
// is posted.
type WQE [8]uint64

// Completion is the result of a control operation.
type Completion struct {
	Op           uint8
	Error        bool
	Major, Minor uint16
	RetVal       uint32
}

// request is a posted control operation.
type request struct {
	op   uint8
	done bool
	c    Completion
}

// cqp is the control QP (ctrl.c:irdma_sc_cqp_*).
type cqp struct {
	f          *Function
	ring       *Buf
	ctx        *Buf
	sdBuf      *Buf
	head, tail uint32
	polarity   uint64
	slots      [cqpSize]*request
	trace      []uint8
}

// create is irdma_sc_cqp_init and irdma_sc_cqp_create.
func (q *cqp) create(f *Function, mem *arena) error {
	*q = cqp{f: f}
	q.ring = mem.own(f.alloc(cqpSize * cqpWQESize))
	q.ctx = mem.own(f.alloc(cqpCtxSize))
	q.sdBuf = mem.own(f.alloc(cqpSize * cqpSDSlice))
	f.Write32(PFPE_CQPTAIL, 0)
	f.Write32(PFPE_CQPDB, 0)
	f.Write32(PFPE_CCQPSTATUS, 0)
	q.ctx.Store64(0, protocolRoCE<<3|sqSizeEnc2048<<8)
	q.ctx.Store64(8, q.ring.IOVA)
	q.ctx.Store64(16, 1) // IRDMA_HMC_PROFILE_DEFAULT
	q.ctx.Store64(24, cqpContext)
	q.ctx.Store64(32, hwMajVerGen2<<16)
	f.Write32(PFPE_CCQPHIGH, uint32(q.ctx.IOVA>>32))
	f.Write32(PFPE_CCQPLOW, uint32(q.ctx.IOVA))
	var status uint32
	if err := f.poll("PFPE_CCQPSTATUS", func() bool {
		status = f.Read32(PFPE_CCQPSTATUS)
		return status != 0
	}); err != nil {
		return err
	}
	if status != ccqpDone {
		return fmt.Errorf("PFPE_CCQPSTATUS %#x: %w", status, q.errorCodes(0))
	}
	return nil
}

// destroy is irdma_sc_cqp_destroy; the memory goes at once.
func (q *cqp) destroy(mem *arena) error {
	f := q.f
	f.Write32(PFPE_CCQPHIGH, 0)
	f.Write32(PFPE_CCQPLOW, 0)
	err := f.poll("PFPE_CCQPSTATUS.DONE", func() bool { return f.Read32(PFPE_CCQPSTATUS)&ccqpDone == 0 })
	mem.free(q.ring, q.ctx, q.sdBuf)
	return err
}

func (q *cqp) errorCodes(op uint8) error {
	codes := q.f.Read32(PFPE_CQPERRCODES)
	return &CQPError{Op: op, Major: uint16(codes >> 16), Minor: uint16(codes)}
}

// used is the number of WQEs that the device has not completed.
func (q *cqp) used() uint32 { return (q.head - q.tail) % cqpSize }

// post writes a WQE into the ring, valid bit last, and does not ring.
func (q *cqp) post(op uint8, w WQE) (*request, error) {
	if q.used() == cqpSize-1 {
		return nil, fmt.Errorf("CQP op %#04x: the ring is full", op)
	}
	slot := q.head
	q.head = (q.head + 1) % cqpSize
	if slot == 0 {
		q.polarity ^= wqeValid
	}
	off := int(slot) * cqpWQESize
	for n, word := range w {
		if n != 3 {
			q.ring.Store64(off+8*n, word)
		}
	}
	q.ring.Store64(off+24, w[3]|uint64(op)<<wqeOpcodeBit|q.polarity)
	r := &request{op: op}
	q.slots[slot] = r
	q.trace = append(q.trace, op)
	return r, nil
}

func (q *cqp) doorbell() { q.f.Write32(PFPE_CQPDB, q.head) }

// nextSlot is the ring index that the next WQE gets.
func (q *cqp) nextSlot() uint32 { return q.head }

// registers posts an operation and waits for CQPTAIL to move, as before there
// is a CCQ and after it is gone (irdma_cqp_poll_registers).
func (q *cqp) registers(op uint8, w WQE) error {
	f := q.f
	before := f.Read32(PFPE_CQPTAIL)
	if f.Err() == nil && before&cqpTailOpErr != 0 && op == IRDMA_CQP_OP_QUERY_RDMA_FEATURES {
		return broken("PFPE_CQPTAIL shows an error before CQP op %#x", op)
	}
	r, err := q.post(op, w)
	if err != nil {
		return err
	}
	q.doorbell()
	var now uint32
	if err := f.poll(fmt.Sprintf("PFPE_CQPTAIL for CQP op %#04x", op), func() bool {
		now = f.Read32(PFPE_CQPTAIL)
		return now&cqpTailOpErr != 0 || now&cqpTailMask != before&cqpTailMask
	}); err != nil {
		return err
	}
	if now&cqpTailMask != (before+1)&cqpTailMask {
		return broken("PFPE_CQPTAIL went from %#x to %#x for one operation", before, now)
	}
	q.tail = (q.tail + 1) % cqpSize
	r.done = true
	if now&cqpTailOpErr != 0 {
		return q.errorCodes(op)
	}
	return nil
}

// complete notes a CQE of the CCQ (irdma_sc_ccq_get_cqe_info).
func (q *cqp) complete(cqe [4]uint64) error {
	if cqe[1] != cqpContext {
		return broken("CCQ entry with context %#x, the CQP's is %#x", cqe[1], uint64(cqpContext))
	}
	slot := uint32(cqe[3] >> 32 & 0x7fff)
	if slot != q.tail || q.used() == 0 {
		return broken("CCQ entry for WQE %d, the oldest of %d is %d", slot, q.used(), q.tail)
	}
	r := q.slots[slot]
	q.slots[slot] = nil
	q.tail = (q.tail + 1) % cqpSize
	r.done = true
	r.c = Completion{Op: r.op, Error: cqe[3]&cqeError != 0, RetVal: uint32(cqe[2]), Minor: uint16(cqe[3])}
	if r.c.Error {
		r.c.Major = uint16(cqe[3] >> 16)
	}
	return nil
}

// err is the completion as an error. An ordinary success has no minor code;
// that of a flush says which queues had work.
func (c Completion) err() error {
	if c.Error {
		return &CQPError{c.Op, c.Major, c.Minor}
	}
	if c.Minor != 0 && c.Op != IRDMA_CQP_OP_FLUSH_WQES {
		return broken("CQP op %#04x succeeded with minor code %#x", c.Op, c.Minor)
	}
	return nil
}
