// SPDX-License-Identifier: Apache-2.0

package suite

func errorCases() (out []*Case) {
	for _, c := range []struct{ name, shows string }{
		{"local-length", "a SEND longer than the receive: LOC_LEN_ERR there, REM_INV_REQ_ERR here"},
		{"local-protection", "a SEND with a wrong key: LOC_PROT_ERR, what is behind it is flushed, nothing leaves"},
		{"local-rights", "a READ into memory that may not be written: LOC_PROT_ERR"},
		{"receive-protection", "a receive with a wrong key: LOC_PROT_ERR there, REM_OP_ERR here"},
		{"remote-key", "a WRITE with a wrong rkey: REM_ACCESS_ERR, QP_ACCESS_ERR there"},
		{"remote-bounds", "a WRITE one byte beyond the region: REM_ACCESS_ERR, nothing is written"},
		{"remote-write-rights", "a WRITE to a region that others may only read: REM_ACCESS_ERR"},
		{"remote-read-rights", "a READ of a region that others may only write: REM_ACCESS_ERR"},
		{"remote-pd", "a WRITE to a region of another protection domain: REM_ACCESS_ERR"},
		{"deregistered", "a WRITE to a region that is no more: REM_ACCESS_ERR"},
		{"retry-exceeded", "a SEND to a QP that is no more: RETRY_EXC_ERR, what is behind it is flushed"},
		{"rnr-exceeded", "a SEND without a receive there ends: RNR_RETRY_EXC_ERR as far as driver and provider know it"},
		{"rnr-patience", "a SEND whose receive comes late arrives"},
		{"flush", "a QP in the error state gives back all that is posted, before and after"},
		{"again", "after an error the program's next QP works"},
	} {
		out = append(out, pythonCase("errors/"+c.name, c.shows, "errors.py "+c.name, "as it should be"))
	}
	return out
}
