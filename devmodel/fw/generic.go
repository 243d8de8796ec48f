// SPDX-License-Identifier: Apache-2.0

package fw

import "bytes"

// maxAdminBuf is the longest command buffer (adminq.h:LIBIE_AQ_MAX_BUF_LEN).
const maxAdminBuf = 4096

// GetVersion is the opcode with which a driver begins with new firmware.
const GetVersion = 0x0001

var genericCommands = []command{
	{op: GetVersion, name: "get_ver", run: (*Firmware).getVersion, source: "ice_common.c:ice_aq_get_fw_ver, ice_controlq.c:ice_aq_ver_check"},
	{op: 0x0002, name: "driver_ver", rd: true, run: (*Firmware).driverVersion, source: "ice_common.c:ice_aq_send_driver_ver"},
	{op: 0x0003, name: "q_shutdown", run: (*Firmware).queueShutdown, source: "ice_common.c:ice_aq_q_shutdown"},
	{op: 0x0008, name: "req_res", run: (*Firmware).requestResource, source: "ice_common.c:ice_aq_req_res"},
	{op: 0x0009, name: "release_res", run: (*Firmware).releaseResource, source: "ice_common.c:ice_aq_release_res", inferred: true},
	{op: 0x02a4, name: "clear_pf_cfg", run: (*Firmware).clearPF, source: "ice_common.c:ice_clear_pf_cfg"},
}

// The driver refuses an API of another major number, and asks for more
// commands the higher the minor one is (ice_type.h:ICE_FW_API_*). 1.5 is what
// it expects of E810 (ice_controlq.h:EXP_FW_API_VER_*).
const (
	fwMajor, fwMinor, fwPatch    = 7, 3, 0
	apiMajor, apiMinor, apiPatch = 1, 5, 0
)

func (f *Firmware) getVersion(r *request) errno {
	p := r.p()
	clear(p)
	p[9], p[10], p[11] = fwMajor, fwMinor, fwPatch
	p[13], p[14], p[15] = apiMajor, apiMinor, apiPatch
	return rcOK
}

func (f *Firmware) driverVersion(r *request) errno {
	p := r.p()
	text, _, _ := bytes.Cut(r.buf, []byte{0})
	f.driver = DriverVersion{p[0], p[1], p[2], p[3], string(text)}
	f.emit(f.driver)
	r.n = 0
	return rcOK
}

// DriverVersion is what the driver said of itself since the last reset; the
// zero value if nothing.
func (f *Firmware) DriverVersion() DriverVersion { return f.driver }

func (f *Firmware) queueShutdown(r *request) errno {
	f.atq.stopped = true // once this command is answered
	if r.p()[0]&1 != 0 { // ICE_AQC_DRIVER_UNLOADING
		f.link.listen(false)
		f.log.registered = false
		// The next driver takes loopback to be off.
		f.link.loopback = false
		f.sw.touch(stalePort)
	}
	return rcOK
}

// clearPF forgets the function's LAN side. The control queues, one of which
// brought this command, and the locks stay.
func (f *Firmware) clearPF(r *request) errno {
	r.grace = true
	if f.cfg.LAN != nil {
		f.cfg.LAN.ResetQueues()
	}
	f.clearFunction()
	return rcOK
}

// clearFunction drops the objects that the function's driver made.
func (f *Firmware) clearFunction() {
	f.sched.reset()
	f.sw.reset()
}

// Resource ids and access types (adminq.h:enum libie_aq_res_id).
const (
	resNVM    = 1
	resChange = 3
	resGlobal = 4

	accessRead  = 1
	accessWrite = 2

	// Status of a request for the global configuration lock.
	globalSuccess    = 0
	globalInProgress = 1
	globalDone       = 2
)

// locks is who holds which resource: there is one function, so a bit each.
type locks [resGlobal + 1]bool

// holdLimit is how long in ms a driver may hold a resource
// (adminq.h:LIBIE_AQ_RES_*_DFLT_TIMEOUT_MS), 0 if there is no such resource.
func holdLimit(res, access uint16) uint32 {
	switch {
	case access != accessRead && access != accessWrite:
		return 0
	case res == resNVM && access == accessWrite:
		return 180000
	case res == resNVM || res == resGlobal:
		return 3000
	case res == resChange:
		return 1000
	}
	return 0 // resSDP: no software-definable pins here
}

func (f *Firmware) requestResource(r *request) errno {
	p := r.p()
	res := le.Uint16(p[0:])
	limit := holdLimit(res, le.Uint16(p[2:]))
	if limit == 0 {
		return rcEINVAL
	}
	le.PutUint32(p[4:], limit)
	// The driver reads only this status for the global lock, and only the
	// return code for the others.
	status := uint16(globalSuccess)
	rc := rcOK
	switch {
	case f.locks[res]:
		status, rc = globalInProgress, rcEBUSY
	case res == resGlobal && f.ddp.active != nil:
		status = globalDone // the package is there: nothing to lock for
	default:
		f.locks[res] = true
	}
	if res == resGlobal {
		le.PutUint16(p[12:], status)
	}
	return rc
}

func (f *Firmware) releaseResource(r *request) errno {
	res := le.Uint16(r.p()[0:])
	if int(res) >= len(f.locks) || !f.locks[res] {
		f.emit(LockNotHeld{res})
		return rcEINVAL
	}
	f.locks[res] = false
	return rcOK
}

// wantLock reports a command that came without its lock.
func (f *Firmware) wantLock(r *request, res uint16) {
	if !f.locks[res] {
		f.emit(LockMissing{le.Uint16(r.desc[2:]), res})
	}
}
