// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"bytes"
	"errors"
	"fmt"
)

// Package is a dynamic device personalization package as 0x0C43 lists it.
type Package struct {
	Version [4]uint8 // major, minor, update, draft
	Name    string
}

// ourPackage is the name and version of the package this driver downloads; the
// drivers want 1.3.
func ourPackage() Package { return Package{[4]uint8{1, 3, 7, 0}, "Mini driver package"} }

// Section types of a package buffer (ice_ddp.h).
const (
	SECTION_TYPE_METADATA       = 1
	ICE_SID_RXPARSER_BOOST_TCAM = 56
	ICE_SID_XLT1_FD             = 32
	ICE_SID_XLT1_RSS            = 42
)

// pkgBuffer makes one 4 KiB buffer of sections.
func pkgBuffer(sections ...pkgSection) []byte {
	b := make([]byte, aqBufSize)
	le.PutUint16(b, uint16(len(sections)))
	off := 4 + 8*len(sections)
	for n, s := range sections {
		off = (off + 3) &^ 3
		e := b[4+8*n:]
		le.PutUint32(e, s.kind)
		le.PutUint16(e[4:], uint16(off))
		le.PutUint16(e[6:], uint16(len(s.data)))
		off += copy(b[off:], s.data)
	}
	le.PutUint16(b[2:], uint16(off))
	return b
}

type pkgSection struct {
	kind uint32
	data []byte
}

// downloadBuffer is the one buffer of our package that goes to the device: the
// metadata, and a boost TCAM with an entry for each of two tunnel ports.
func downloadBuffer() []byte {
	p := ourPackage()
	meta := make([]byte, 36)
	copy(meta, p.Version[:])
	copy(meta[4:32], p.Name)
	le.PutUint32(meta[32:], 0xc0000001)
	const entries = 2
	boost := make([]byte, 4+entries*boostEntrySize)
	le.PutUint16(boost, entries)
	for n := range entries {
		le.PutUint16(boost[4+n*boostEntrySize:], uint16(boostTunnel+n))
	}
	return pkgBuffer(pkgSection{SECTION_TYPE_METADATA, meta}, pkgSection{ICE_SID_RXPARSER_BOOST_TCAM, boost})
}

// initPackage is ice_main.c:ice_init_dev_hw: netlist queries and the download.
func (i *ICE) initPackage() error {
	if i.Kernel.QueriesNetlist {
		for range 2 {
			const nodePHY, contextPort = 0, 2
			c := &Command{Op: ice_aqc_opc_get_link_topo}
			c.P[2] = nodePHY | contextPort<<4
			if err := tolerate(i.aq.do(c)); err != nil {
				return err
			}
		}
	}
	if _, err := i.packages(); err != nil {
		return err
	}
	if err := i.download(); err != nil {
		return err
	}
	list, err := i.packages()
	if err != nil {
		return err
	}
	if len(list) != 1 || list[0] != ourPackage() {
		return broken("0x0C43 lists %v as active after the download of %v", list, ourPackage())
	}
	i.Pkg = list[0]
	i.F.Write32(GL_PREEXT_L2_PMASK0, 0xffffffff)
	i.F.Write32(GL_PREEXT_L2_PMASK1, 0x0000ffff)
	if i.Kernel.ReadsFWSM {
		for n := 2; n < 64; n++ {
			i.F.Read32(GLFLXP_RXDID_FLAGS(n))
		}
	}
	return i.F.Err()
}

// download is ice_ddp.c:ice_download_pkg. After a PF reset the package is still
// there, and the lock says so.
func (i *ICE) download() error {
	switch err := i.lock(ICE_GLOBAL_CFG_LOCK_RES_ID, ICE_RES_WRITE); {
	case errors.Is(err, errAlready):
	case err != nil:
		return err
	default:
		err := i.sendPackage()
		if e := i.unlock(ICE_GLOBAL_CFG_LOCK_RES_ID); e != nil && err == nil {
			err = e
		}
		if err != nil {
			return err
		}
	}
	if err := i.vlanMode(); err != nil {
		return err
	}
	if err := i.probeDVM(); err != nil {
		return err
	}
	return i.vlanMode()
}

func (i *ICE) sendPackage() error {
	const lastBuffer = 1
	c := &Command{Op: ice_aqc_opc_download_pkg, RD: true, Buf: downloadBuffer()}
	c.P[0] = lastBuffer
	if err := i.aq.do(c); err != nil {
		return err
	}
	if c.u32(0) != 0 || c.u32(4) != 0 {
		return c.wrong("error offset %#x, info %#x", c.u32(0), c.u32(4))
	}
	return i.probeDVM()
}

// probeDVM asks by an upload whether the package does double VLANs
// (ice_vlan_mode.c:ice_is_dvm_supported).
func (i *ICE) probeDVM() error {
	const metaInit = 58 // ICE_SID_RXPARSER_METADATA_INIT
	c := &Command{Op: ice_aqc_opc_upload_section, RD: true,
		Buf: pkgBuffer(pkgSection{metaInit, make([]byte, 16*8+4)})}
	return tolerate(i.aq.do(c))
}

func (i *ICE) vlanMode() error {
	c := &Command{Op: ice_aqc_opc_get_vlan_mode, Buf: make([]byte, 100)}
	err := i.aq.do(c)
	if err == nil && c.Buf[0]&1 != 0 {
		return c.wrong("double VLAN mode without anybody having set it")
	}
	return tolerate(err)
}

// packages returns the active packages.
func (i *ICE) packages() ([]Package, error) {
	const record, most = 40, 4
	c := &Command{Op: ice_aqc_opc_get_pkg_info_list, Buf: make([]byte, 4+most*record)}
	if err := i.aq.do(c); err != nil {
		return nil, err
	}
	n := int(le.Uint32(c.Buf))
	if n > most || c.Len != 4+n*record {
		return nil, c.wrong("%d packages in %d bytes", n, c.Len)
	}
	var active []Package
	for k := range n {
		r := c.Buf[4+k*record:]
		if r[37] != 0 {
			active = append(active, Package{[4]uint8(r[:4]), string(bytes.TrimRight(r[4:32], "\x00"))})
		}
	}
	return active, nil
}

// profile is a flow profile: an id and a TCAM entry.
type profile struct{ idType, id, tcamType, tcam uint16 }

// addProfile allocates a profile and writes it to the package's tables
// (ice_flex_pipe.c:ice_add_prof and ice_upd_prof_hw).
func (i *ICE) addProfile(idType, tcamType uint16, section uint32) error {
	p := profile{idType: idType, tcamType: tcamType}
	var err error
	if p.id, err = i.allocResource(idType, 1); err != nil {
		return err
	}
	if p.tcam, err = i.allocResource(tcamType|ICE_AQC_RES_TYPE_FLAG_SCAN_BOTTOM, 1); err != nil {
		return err
	}
	const profiles, entries = 128, 512
	if p.id >= profiles || p.tcam >= entries {
		return broken("profile %d, TCAM entry %d: they index arrays of %d and %d in the driver", p.id, p.tcam, profiles, entries)
	}
	i.profiles = append(i.profiles, p)
	return i.updatePackage(pkgSection{section, make([]byte, 8)})
}

func (i *ICE) updatePackage(sections ...pkgSection) error {
	if err := i.lock(ICE_CHANGE_LOCK_RES_ID, ICE_RES_WRITE); err != nil {
		return err
	}
	b := pkgBuffer(sections...)
	c := &Command{Op: ice_aqc_opc_update_pkg, RD: true, Buf: b[:le.Uint16(b[2:])]}
	c.P[0] = 1
	err := i.aq.do(c)
	if e := i.unlock(ICE_CHANGE_LOCK_RES_ID); e != nil && err == nil {
		err = e
	}
	return err
}

// dropProfiles frees the profiles of one kind.
func (i *ICE) dropProfiles(idType uint16, section uint32) error {
	var keep []profile
	for n, p := range i.profiles {
		if p.idType != idType {
			keep = append(keep, p)
			continue
		}
		if err := i.updatePackage(pkgSection{section, make([]byte, 8)}); err != nil {
			return fmt.Errorf("profile %d: %w", n, err)
		}
		if err := i.freeResource(p.tcamType, p.tcam); err != nil {
			return fmt.Errorf("profile %d: %w", n, err)
		}
		if err := i.freeResource(p.idType, p.id); err != nil {
			return fmt.Errorf("profile %d: %w", n, err)
		}
	}
	i.profiles = keep
	return nil
}
