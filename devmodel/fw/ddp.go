// SPDX-License-Identifier: Apache-2.0

package fw

import (
	"bytes"
	"fmt"
)

var ddpCommands = []command{
	{op: 0x0c40, name: "download_pkg", rd: true, minBuf: pkgHeader, run: (*Firmware).downloadPackage, source: "ice_ddp.c:ice_aq_download_pkg"},
	{op: 0x0c41, name: "upload_section", rd: true, minBuf: pkgHeader, run: (*Firmware).uploadSection, source: "ice_vlan_mode.c:ice_pkg_get_supported_vlan_mode", inferred: true},
	{op: 0x0c42, name: "update_pkg", rd: true, minBuf: pkgHeader, run: (*Firmware).updatePackage, source: "ice_ddp.c:ice_aq_update_pkg"},
	{op: 0x0c43, name: "get_pkg_info_list", minBuf: 4, run: (*Firmware).packageInfo, source: "ice_ddp.c:ice_aq_get_pkg_info_list"},
}

// Layout of a package buffer (ice_ddp.h:struct ice_buf_hdr).
const (
	pkgHeader      = 4 // section count, end of data
	pkgEntry       = 8 // type, offset, size
	pkgMaxSections = 511

	sectionMetadata = 1  // ICE_SID_METADATA
	metadataSize    = 36 // version, name, track id

	pkgInfoSize   = 40 // sizeof(struct ice_aqc_get_pkg_info)
	pkgLastBuffer = 1  // ICE_AQC_DOWNLOAD_PKG_LAST_BUF
)

// ddpPackage is what a package says of itself.
type ddpPackage struct {
	version [4]byte
	name    [28]byte
	trackID uint32
}

func (p *ddpPackage) text() string {
	name, _, _ := bytes.Cut(p.name[:], []byte{0})
	return string(name)
}

// ddpState is the active package, nil if none, and the one that is coming.
type ddpState struct {
	active *ddpPackage
	coming *ddpPackage
	// buffers counts those of the running download.
	buffers int
	// tunnels are the ports of tunnels by their boost TCAM entry.
	tunnels map[uint16]uint16
}

// Package is the DDP package in effect: its name and version (major, minor,
// update, draft). ok is false if there is none.
func (f *Firmware) Package() (name string, version [4]uint8, ok bool) {
	if f.ddp.active == nil {
		return "", version, false
	}
	return f.ddp.active.text(), f.ddp.active.version, true
}

// section is one section of a package buffer.
type section struct {
	kind uint32
	data []byte
}

// parseBuffer splits a package buffer into its sections. Where that fails it
// returns the offset of the word that is wrong.
func parseBuffer(b []byte) (s []section, at int, err error) {
	n := int(le.Uint16(b[0:]))
	if n == 0 || n > pkgMaxSections || pkgHeader+n*pkgEntry > len(b) {
		return nil, 0, fmt.Errorf("%d sections", n)
	}
	for i := range n {
		at := pkgHeader + i*pkgEntry
		kind := le.Uint32(b[at:])
		off, size := int(le.Uint16(b[at+4:])), int(le.Uint16(b[at+6:]))
		if off < pkgHeader+n*pkgEntry || off+size > len(b) {
			return nil, at, fmt.Errorf("section type %#x at %#x with %d bytes is not in the buffer", kind, off, size)
		}
		s = append(s, section{kind, b[off : off+size]})
	}
	return s, 0, nil
}

// badBuffer answers a buffer that does not parse: where, and why.
func (f *Firmware) badBuffer(r *request, at int, err error) errno {
	f.emit(BadPackage{le.Uint16(r.desc[2:]), at, err.Error()})
	le.PutUint32(r.p()[0:], uint32(at)) // error offset
	le.PutUint32(r.p()[4:], 1)          // error information: not zero
	return rcEINVAL
}

// downloadPackage takes the next buffer of a package. The package is active
// when the last one is here.
func (f *Firmware) downloadPackage(r *request) errno {
	f.wantLock(r, resGlobal)
	last := r.p()[0]&pkgLastBuffer != 0
	sections, at, err := parseBuffer(r.buf)
	if err == nil {
		for _, s := range sections {
			if s.kind == sectionMetadata && f.ddp.coming == nil {
				f.ddp.coming, err = parseMetadata(s.data)
			}
		}
		f.ddp.buffers++
		if err == nil && last && f.ddp.coming == nil {
			err = fmt.Errorf("the package has no metadata")
		}
	}
	if err != nil {
		f.ddp.coming, f.ddp.buffers = nil, 0
		return f.badBuffer(r, at, err)
	}
	if last {
		p := f.ddp.coming
		f.emit(PackageLoaded{p.text(), p.version, f.ddp.buffers})
		f.ddp = ddpState{active: p}
		f.sw.touch(stalePort)
	}
	clear(r.p()[:8])
	r.n = 0
	return rcOK
}

func parseMetadata(b []byte) (*ddpPackage, error) {
	if len(b) < metadataSize {
		return nil, fmt.Errorf("metadata section of %d bytes", len(b))
	}
	return &ddpPackage{[4]byte(b[0:4]), [28]byte(b[4:32]), le.Uint32(b[32:])}, nil
}

// updatePackage takes changes that the driver makes to the tables at run time
// (flow profiles and their TCAM entries, ports of tunnels). They must be well
// formed; of the package's tables only those ports mean anything to this device.
func (f *Firmware) updatePackage(r *request) errno {
	f.wantLock(r, resChange)
	if f.ddp.active == nil {
		return rcENOENT
	}
	sections, at, err := parseBuffer(r.buf)
	if err != nil {
		return f.badBuffer(r, at, err)
	}
	for n, s := range sections {
		if s.kind != sectionRxBoost {
			continue
		}
		changed, err := f.ddp.updateBoost(s.data)
		if changed {
			f.sw.touch(stalePort)
		}
		if err != nil {
			return f.badBuffer(r, pkgHeader+n*pkgEntry, err)
		}
	}
	clear(r.p()[:8])
	r.n = 0
	return rcOK
}

// uploadSection reads a section back. Firmware of this age has none to give,
// from which the driver concludes that there is no double VLAN mode.
func (f *Firmware) uploadSection(*request) errno { return rcEINVAL }

// packageInfo lists the active package.
func (f *Firmware) packageInfo(r *request) errno {
	r.n = 4
	p := f.ddp.active
	if p == nil {
		return rcOK
	}
	if len(r.buf) < 4+pkgInfoSize {
		return rcENOMEM
	}
	le.PutUint32(r.buf[0:], 1)
	e := r.buf[4:]
	copy(e[0:], p.version[:])
	copy(e[4:32], p.name[:])
	le.PutUint32(e[32:], p.trackID)
	e[37] = 1 // active; not in the NVM, not at boot, not modified
	r.n += pkgInfoSize
	return rcOK
}
