// SPDX-License-Identifier: Apache-2.0

package fw

var nvmCommands = []command{
	{op: 0x0701, name: "nvm_read", minBuf: 1, run: (*Firmware).nvmRead, source: "ice_nvm.c:ice_aq_read_nvm, ice_read_flat_nvm"},
	{op: 0x0706, name: "nvm_checksum", run: (*Firmware).nvmChecksum, source: "ice_nvm.c:ice_nvm_validate_checksum", inferred: true},
	// New firmware is never pending; the reset that would load it is one all
	// the same.
	{op: 0x0709, name: "nvm_update_empr", run: (*Firmware).updateEMPR, source: "ice_nvm.c:ice_aq_nvm_update_empr", inferred: true},
}

const checksumVerify = 1 << 0 // ICE_AQC_NVM_CHECKSUM_VERIFY

// nvmChecksum adds up the shadow RAM, which gives checksumCorrect if it is
// whole. Nothing here writes the flash, so there is no checksum to renew.
func (f *Firmware) nvmChecksum(r *request) errno {
	f.wantLock(r, resNVM)
	p := r.p()
	if p[0] != checksumVerify {
		return rcEPERM
	}
	var sr [shadowRAMSize]byte
	f.flash.read(0, sr[:])
	le.PutUint16(p[2:], sum16(sr[:]))
	return rcOK
}

const nvmFlashOnly = 1 << 7 // ICE_AQC_NVM_FLASH_ONLY

// nvmRead reads the flash, or the shadow RAM without nvmFlashOnly. The driver
// finds the size of the flash by what fails with EINVAL
// (ice_nvm.c:ice_discover_flash_size).
func (f *Firmware) nvmRead(r *request) errno {
	f.wantLock(r, resNVM)
	p := r.p()
	off := int(le.Uint16(p[0:])) | int(p[2])<<16
	module, n := le.Uint16(p[4:]), int(le.Uint16(p[6:]))
	end := flashSize
	if p[3]&nvmFlashOnly == 0 {
		end = shadowRAMSize
	}
	// Modules are read by flat offset only (ICE_AQC_NVM_START_POINT), and
	// no read crosses a sector.
	if module != 0 || n == 0 || n > len(r.buf) || off+n > end || off/sector != (off+n-1)/sector {
		return rcEINVAL
	}
	f.flash.read(off, r.buf[:n])
	r.n = n
	return rcOK
}

// updateEMPR answers, and then the embedded processor begins anew.
func (f *Firmware) updateEMPR(r *request) errno {
	r.then = f.cfg.EMPR
	return rcOK
}
