// SPDX-License-Identifier: Apache-2.0

package fw

import "cmp"

// Firmware logging is configured like the real thing's; this firmware has its
// say through events instead and never writes a log record (0xFF33).
var logCommands = []command{
	{op: 0xff30, name: "fw_logs_config", rd: true, minBuf: logEntry, run: (*Firmware).logConfig, source: "libie fwlog.c:libie_aq_fwlog_set"},
	{op: 0xff31, name: "fw_logs_register", run: (*Firmware).logRegister, source: "libie fwlog.c:libie_aq_fwlog_register"},
	{op: 0xff32, name: "fw_logs_query", minBuf: logModules * logEntry, run: (*Firmware).logQuery, source: "libie fwlog.c:libie_aq_fwlog_get"},
}

const (
	logModules       = 32 // LIBIE_AQC_FW_LOG_ID_MAX
	logEntry         = 4  // sizeof(struct libie_aqc_fw_log_cfg_resp)
	logMaxLevel      = 4  // LIBIE_FWLOG_LEVEL_VERBOSE
	logMaxResolution = 128
	logDflResolution = 10
	logUART          = 1 << 0
	logAQ            = 1 << 1
	logRegistered    = 1 << 2
	logRegister      = 1 << 0
)

type logState struct {
	registered bool
	outputs    uint8 // logUART, logAQ
	resolution uint16
	levels     [logModules]uint8
}

func (f *Firmware) logConfig(r *request) errno {
	p := r.p()
	resolution, n := le.Uint16(p[4:]), int(le.Uint16(p[6:]))
	if resolution == 0 || resolution > logMaxResolution || n > logModules || n*logEntry > len(r.buf) {
		return rcEINVAL
	}
	levels := f.log.levels
	for i := range n {
		e := r.buf[i*logEntry:]
		id, level := le.Uint16(e), e[2]
		if id >= logModules || level > logMaxLevel {
			return rcEINVAL
		}
		levels[id] = level
	}
	f.log.levels, f.log.resolution = levels, resolution
	f.log.outputs = p[0] & (logUART | logAQ)
	return rcOK
}

func (f *Firmware) logRegister(r *request) errno {
	f.log.registered = r.p()[0]&logRegister != 0
	return rcOK
}

func (f *Firmware) logQuery(r *request) errno {
	p := r.p()
	flags := f.log.outputs
	if f.log.registered {
		flags |= logRegistered
	}
	p[0], p[1] = flags, 0
	le.PutUint16(p[4:], cmp.Or(f.log.resolution, logDflResolution))
	le.PutUint16(p[6:], logModules)
	for i, level := range f.log.levels {
		e := r.buf[i*logEntry:]
		le.PutUint16(e, uint16(i))
		e[2] = level
	}
	r.n = logModules * logEntry
	return rcOK
}
