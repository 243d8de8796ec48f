// SPDX-License-Identifier: Apache-2.0

package decode

import "fmt"

// flushCodes are the minor codes of a flush and the status that a work
// completion gets (user.h:enum irdma_flush_opcode;
// verbs.c:irdma_flush_err_to_ib_wc_status).
var flushCodes = [...]struct{ name, status string }{
	{"FLUSH_INVALID", "IB_WC_FATAL_ERR"},
	{"FLUSH_GENERAL_ERR", "IB_WC_WR_FLUSH_ERR"},
	{"FLUSH_PROT_ERR", "IB_WC_LOC_PROT_ERR"},
	{"FLUSH_REM_ACCESS_ERR", "IB_WC_REM_ACCESS_ERR"},
	{"FLUSH_LOC_QP_OP_ERR", "IB_WC_LOC_QP_OP_ERR"},
	{"FLUSH_REM_OP_ERR", "IB_WC_REM_OP_ERR"},
	{"FLUSH_LOC_LEN_ERR", "IB_WC_LOC_LEN_ERR"},
	{"FLUSH_FATAL_ERR", "IB_WC_FATAL_ERR"},
	{"FLUSH_RETRY_EXC_ERR", "IB_WC_RETRY_EXC_ERR"},
	{"FLUSH_MW_BIND_ERR", "IB_WC_MW_BIND_ERR"},
	{"FLUSH_REM_INV_REQ_ERR", "IB_WC_REM_INV_REQ_ERR"},
	{"FLUSH_RNR_RETRY_EXC_ERR", "IB_WC_RNR_RETRY_EXC_ERR"},
}

func flushName(v uint16) string {
	if int(v) < len(flushCodes) {
		return fmt.Sprintf("%d %s", v, flushCodes[v].name)
	}
	return fmt.Sprintf("%d (has no name)", v)
}

// Codes of a control operation's completion.
const (
	majNone     = 0x0000
	majObjCache = 0xF000
	majContext  = 0xF001
	majError    = 0xFFFF
)

// cqpCodes are the codes the driver looks for (defs.h:IRDMA_CQPSQ_MAJ_*,
// IRDMA_CQPSQ_MIN_*; utils.c:irdma_noncrit_err_list, irdma_wait_event;
// main.h:IRDMA_CQP_COMPL_*).
var cqpCodes = [...]struct {
	major, minor uint16
	what         string
}{
	{majNone, 0, "success"},
	{majNone, 1, "IRDMA_CQPSQ_MIN_STAG_INVALID"},
	{majNone, 2, "IRDMA_CQP_COMPL_RQ_WQE_FLUSHED: the receive queue had WQEs, the send queue none (of FLUSH_WQES)"},
	{majNone, 3, "IRDMA_CQP_COMPL_SQ_WQE_FLUSHED: the send queue had WQEs, the receive queue none (of FLUSH_WQES)"},
	{majNone, 4, "both queues had WQEs (of FLUSH_WQES)"},
	{majNone, 5, "IRDMA_CQPSQ_MIN_SUSPEND_PND"},
	{majNone, 6, "IRDMA_CQPSQ_MIN_DEF_CMPL: completes later; not of this generation"},
	{majNone, 7, "IRDMA_CQPSQ_MIN_OOO_CMPL: out of order; not of this generation"},
	{majError, 0x8001, "bad parameter, as this device tells it; the driver logs an error, the verb fails with EIO"},
	{majError, 0x8002, "Invalid State: the verb fails with EBUSY, logged at debug level only"},
	{majError, 0x8006, "Flush No Wqe Pending: not critical to the driver"},
	{majError, 0x8007, "Modify QP Bad Close: not critical to the driver"},
	{majError, 0x8009, "LLP Closed: not critical to the driver"},
	{majError, 0x800A, "Reset Not Sent: not critical to the driver"},
	{majError, 0x8029, "the driver requests a reset of the function"},
}

// cqpCode tells what the codes of a control operation mean to the driver.
func cqpCode(major, minor uint16) string {
	for _, c := range cqpCodes {
		if c.major == major && c.minor == minor {
			return c.what
		}
	}
	switch major {
	case majObjCache:
		return "IRDMA_CQPSQ_MAJ_OBJCACHE_ERROR: the driver logs an error, the verb fails with EIO"
	case majContext:
		return "IRDMA_CQPSQ_MAJ_CNTXTCACHE_ERROR: the driver logs an error, the verb fails with EIO"
	}
	return "has no name: the driver logs an error, the verb fails with EIO"
}

const (
	majFlush    = 1      // user.h:IRDMA_FLUSH_MAJOR_ERR
	majSRQFlush = 0xFFFE // user.h:IRDMA_SRQFLUSH_RSVD_MAJOR_ERR
)

// cqeCode tells what the codes of a completion mean to the driver.
func cqeCode(major, minor uint16) string {
	switch {
	case major == 0 && minor == 0:
		return "IB_WC_SUCCESS"
	case major == majFlush && int(minor) < len(flushCodes):
		return fmt.Sprintf("IRDMA_FLUSH_MAJOR_ERR, %s: %s", flushCodes[minor].name, flushCodes[minor].status)
	case major == majFlush:
		return "IRDMA_FLUSH_MAJOR_ERR with a minor code that has no name: IB_WC_FATAL_ERR"
	case major == majSRQFlush:
		return "IRDMA_SRQFLUSH_RSVD_MAJOR_ERR: not of this generation"
	}
	return fmt.Sprintf("IB_WC_GENERAL_ERR, vendor_err %#x", uint32(major)<<16|uint32(minor))
}
