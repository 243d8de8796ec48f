// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"bytes"
	"errors"
	"fmt"
)

// NVM is what the driver learned from the flash (ice_nvm.c).
type NVM struct {
	FlashSize    uint32
	Major, Minor uint8
	EETrack      uint32
	OROM         bool // an option ROM's version was found
	Netlist      bool // a netlist was found
}

// Shadow RAM words (ice_type.h).
const (
	ICE_SR_NVM_CTRL_WORD     = 0x00
	ICE_SR_NVM_DEV_STARTER   = 0x18
	ICE_SR_NVM_EETRACK_LO    = 0x2d
	ICE_SR_NVM_EETRACK_HI    = 0x2e
	ICE_SR_PFA_PTR           = 0x40
	ICE_SR_1ST_NVM_BANK_PTR  = 0x42
	ICE_SR_1ST_OROM_BANK_PTR = 0x44
	ICE_SR_NETLIST_BANK_PTR  = 0x46

	nvmMaxOffset = 0xffffff
	nvmSector    = 4096
	fixedSRCopy  = 352 // words into the NVM bank, for kernels that do not read the header
	linkOverride = 0x134
)

// bank is a pair of flash areas, the second of which may be the active one.
type bank struct {
	base, size uint32 // bytes
	second     bool
}

func (b bank) active() uint32 {
	if b.second {
		return b.base + b.size
	}
	return b.base
}

func (b bank) inactive() uint32 {
	b.second = !b.second
	return b.active()
}

// withNVM does something under the NVM lock.
func (i *ICE) withNVM(do func() error) error {
	if err := i.lock(ICE_NVM_RES_ID, ICE_RES_READ); err != nil {
		return err
	}
	err := do()
	if e := i.unlock(ICE_NVM_RES_ID); e != nil && err == nil {
		err = e
	}
	return err
}

// errAlready says that somebody else did what the lock is for.
var errAlready = errors.New("already done")

// lock is 0x0008 (ice_common.c:ice_aq_req_res). The global configuration lock
// has a status of its own in the answer.
func (i *ICE) lock(res, access uint16) error {
	c := &Command{Op: ice_aqc_opc_req_res}
	c.put16(0, res)
	c.put16(2, access)
	c.put32(4, 3000)
	if err := i.aq.do(c); err != nil {
		return err
	}
	if res != ICE_GLOBAL_CFG_LOCK_RES_ID {
		return nil
	}
	const granted, done = 0, 2
	switch status := c.u16(12); status {
	case granted:
		return nil
	case done:
		return errAlready
	default:
		return c.wrong("global configuration lock: status %d", status)
	}
}

func (i *ICE) unlock(res uint16) error {
	c := &Command{Op: ice_aqc_opc_release_res}
	c.put16(0, res)
	return i.aq.do(c)
}

// readFlat reads n bytes at off in pieces that do not cross a sector. With
// shadow the offset is in the shadow RAM, else in the flash.
func (i *ICE) readFlat(off uint32, n int, shadow bool) ([]byte, error) {
	var data []byte
	read := func() error {
		size := min(nvmSector-int(off%nvmSector), n-len(data))
		c := &Command{Op: ice_aqc_opc_nvm_read, Buf: make([]byte, size)}
		c.put16(0, uint16(off))
		const lastCommand, flashOnly = 1, 1 << 7
		c.P[2] = byte(off >> 16)
		if len(data)+size == n {
			c.P[3] |= lastCommand
		}
		if !shadow {
			c.P[3] |= flashOnly
		}
		c.put16(6, uint16(size))
		if err := i.aq.do(c); err != nil {
			return err
		}
		if c.Len != size {
			return c.wrong("%d bytes of %d", c.Len, size)
		}
		data, off = append(data, c.Buf...), off+uint32(size)
		return nil
	}
	for len(data) < n {
		piece := read
		if i.Kernel.LocksEveryRead {
			piece = func() error { return i.withNVM(read) }
		}
		if err := piece(); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// logical is a read that older kernels do under one lock.
func (i *ICE) logical(do func() error) error {
	if i.Kernel.LocksEveryRead {
		return do()
	}
	return i.withNVM(do)
}

func (i *ICE) read(off uint32, n int, shadow bool) (data []byte, err error) {
	err = i.logical(func() error {
		data, err = i.readFlat(off, n, shadow)
		return err
	})
	return data, err
}

func (i *ICE) shadowWord(w uint32) (uint16, error) {
	b, err := i.read(2*w, 2, true)
	if err != nil {
		return 0, err
	}
	return le.Uint16(b), nil
}

func (i *ICE) initNVM() error {
	if size := i.F.Read32(GLNVM_GENS) >> 5 & 7; i.F.Err() == nil && size >= 7 {
		return broken("GLNVM_GENS.SR_SIZE %d overflows the driver's count of words", size)
	}
	if fla := i.F.Read32(GLNVM_FLA); fla&glnvmFLALocked == 0 {
		return broken("GLNVM_FLA %#x: blank mode", fla)
	}
	if err := i.logical(i.discoverFlashSize); err != nil {
		return err
	}
	ctrl, err := i.shadowWord(ICE_SR_NVM_CTRL_WORD)
	if err != nil {
		return err
	}
	if ctrl>>6&3 != 1 {
		return broken("NVM control word %#x is not valid", ctrl)
	}
	nvm, err := i.bank(ICE_SR_1ST_NVM_BANK_PTR, ctrl>>5&1 != 0)
	if err != nil {
		return err
	}
	orom, err := i.bank(ICE_SR_1ST_OROM_BANK_PTR, ctrl>>3&1 != 0)
	if err != nil {
		return err
	}
	netlist, err := i.bank(ICE_SR_NETLIST_BANK_PTR, ctrl>>4&1 != 0)
	if err != nil {
		return err
	}
	if err := i.readNVMVersion(nvm); err != nil {
		return err
	}
	if err := i.readOROM(orom); err != nil {
		return err
	}
	return i.readNetlist(netlist)
}

// discoverFlashSize is ice_nvm.c:ice_discover_flash_size.
func (i *ICE) discoverFlashSize() error {
	lo, hi := uint32(0), uint32(nvmMaxOffset+1)
	for hi-lo > 1 {
		at := lo + (hi-lo)/2
		switch _, err := i.readFlat(at, 1, false); {
		case err == nil:
			lo = at
		case aqCode(err) == AQEINVAL:
			hi = at
		default:
			return err
		}
	}
	i.NVM.FlashSize = hi
	return nil
}

// bank reads a pointer and a size of the shadow RAM (ice_read_sr_pointer,
// ice_read_sr_area_size).
func (i *ICE) bank(word uint32, second bool) (bank, error) {
	ptr, err := i.shadowWord(word)
	if err != nil {
		return bank{}, err
	}
	size, err := i.shadowWord(word + 1)
	if err != nil {
		return bank{}, err
	}
	if size == 0 {
		return bank{}, broken("shadow RAM word %#x: empty area", word+1)
	}
	const inSectors = 1 << 15
	b := bank{base: uint32(ptr) * 2, size: uint32(size) * nvmSector, second: second}
	if ptr&inSectors != 0 {
		b.base = uint32(ptr&^inSectors) * nvmSector
	}
	if uint64(b.base)+2*uint64(b.size) > uint64(i.NVM.FlashSize) {
		return bank{}, broken("area %#x+2*%#x in a flash of %#x", b.base, b.size, i.NVM.FlashSize)
	}
	return b, nil
}

func (i *ICE) readNVMVersion(b bank) error {
	srCopy := uint32(fixedSRCopy)
	if i.Kernel.ReadsCSSHeader {
		for _, base := range []uint32{b.active(), b.inactive()} {
			var words [2]uint16
			for w := range words {
				data, err := i.read(base+uint32(2*(2+w)), 2, false)
				if err != nil {
					return err
				}
				words[w] = le.Uint16(data)
			}
			header := (uint32(words[1])<<16|uint32(words[0]))*2 + 8
			if base == b.active() {
				srCopy = (header + 31) &^ 31
			}
		}
	}
	var v [3]uint16
	for n, w := range []uint32{ICE_SR_NVM_DEV_STARTER, ICE_SR_NVM_EETRACK_LO, ICE_SR_NVM_EETRACK_HI} {
		data, err := i.read(b.active()+2*(srCopy+w), 2, false)
		if err != nil {
			return err
		}
		v[n] = le.Uint16(data)
	}
	i.NVM.Major, i.NVM.Minor = uint8(v[0]>>12), uint8(v[0])
	i.NVM.EETrack = uint32(v[2])<<16 | uint32(v[1])
	return nil
}

// readOROM scans for the Boot Configuration section's civd record
// (ice_get_orom_civd_data).
func (i *ICE) readOROM(b bank) error {
	data, err := i.read(b.active(), int(b.size), false)
	if err != nil {
		return tolerate(err)
	}
	const record = 74
	for off := 0; off+record <= len(data); off += 512 {
		if !bytes.HasPrefix(data[off:], []byte("$CIV")) {
			continue
		}
		var sum byte
		for _, x := range data[off : off+record] {
			sum += x
		}
		if sum != 0 {
			return broken("OROM civd record: checksum %#x", sum)
		}
		i.NVM.OROM = true
		return nil
	}
	return nil
}

func (i *ICE) readNetlist(b bank) error {
	head, err := i.read(b.active(), 8, false)
	if err != nil {
		return tolerate(err)
	}
	const typeWord, idBlock = 0x011b, 48
	if le.Uint16(head) != typeWord || le.Uint16(head[4:]) < idBlock {
		return nil
	}
	nodes := uint32(le.Uint16(head[6:]) & 0x3ff)
	if _, err := i.read(b.active()+2*(6+2*nodes), 2*idBlock, false); err != nil {
		return tolerate(err)
	}
	i.NVM.Netlist = true
	return nil
}

// findPFA looks for a module in the Preserved Field Array
// (ice_get_pfa_module_tlv) and says whether it is there.
func (i *ICE) findPFA(module uint16) (bool, error) {
	ptr, err := i.shadowWord(ICE_SR_PFA_PTR)
	if err != nil {
		return false, err
	}
	n, err := i.shadowWord(uint32(ptr))
	if err != nil {
		return false, err
	}
	const sane = 256
	for at, end := uint32(ptr)+1, uint32(ptr)+uint32(n)-1; at+1 < end; {
		if at > uint32(ptr)+sane {
			return false, fmt.Errorf("%w: PFA of %d words", ErrDevice, n)
		}
		kind, err := i.shadowWord(at)
		if err != nil {
			return false, err
		}
		size, err := i.shadowWord(at + 1)
		if err != nil {
			return false, err
		}
		if kind == module {
			return true, nil
		}
		at += uint32(size) + 2
	}
	return false, nil
}
