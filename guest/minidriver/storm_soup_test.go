// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"

	"golang.org/x/sys/unix"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
)

// Where the soup lies for the device, and how much of it there is between its
// two canary pages.
const (
	soupIOVA  = 0x7_0000_0000
	soupPages = 512
	soupSlot  = 64 // bytes that look like one thing
)

// soup is memory full of what looks like descriptors, contexts, WQEs and page
// lists, with addresses that are no good. It is a file that nobody here maps:
// it may be truncated at any time.
type soup struct {
	rnd  *rand.Rand
	g    *Guest
	file *os.File
}

func newSoup(rnd *rand.Rand, g *Guest) (*soup, error) {
	fd, err := unix.MemfdCreate("soup", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("soup: %w", err)
	}
	s := &soup{rnd: rnd, g: g, file: os.NewFile(uintptr(fd), "soup")}
	if err := s.seal(); err != nil {
		s.file.Close()
		return nil, err
	}
	return s, s.stir(soupPages * pageSize / soupSlot)
}

func (s *soup) maps() vfiouser.DMARange {
	return vfiouser.DMARange{IOVA: soupIOVA, Size: soupPages * pageSize, File: s.file, Offset: pageSize, Flags: vfiouser.DMARead | vfiouser.DMAWrite}
}

// seal makes the file whole and puts the canaries around what is mapped.
func (s *soup) seal() error {
	if err := s.file.Truncate((soupPages + 2) * pageSize); err != nil {
		return fmt.Errorf("soup: %w", err)
	}
	for _, at := range []int64{0, soupPages + 1} {
		if _, err := s.file.WriteAt(s.g.poison, at*pageSize); err != nil {
			return fmt.Errorf("soup: %w", err)
		}
	}
	return nil
}

// check looks at the canaries of a file that is whole.
func (s *soup) check() error {
	page := make([]byte, pageSize)
	for _, at := range []int64{0, soupPages + 1} {
		if _, err := s.file.ReadAt(page, at*pageSize); err != nil {
			return fmt.Errorf("soup: %w", err)
		}
		if !bytes.Equal(page, s.g.poison) {
			return broken("canary page %d beside a map of the soup is overwritten", at)
		}
	}
	return nil
}

// shrink truncates the file, and gives the cut pages back as holes.
func (s *soup) shrink() error {
	if err := s.file.Truncate(int64(s.rnd.IntN((soupPages + 2) * pageSize))); err != nil {
		return fmt.Errorf("soup: %w", err)
	}
	return nil
}

// stir writes n things anywhere.
func (s *soup) stir(n int) error {
	var b [soupSlot]byte
	for range n {
		s.fill(&b)
		if _, err := s.file.WriteAt(b[:], pageSize+s.rnd.Int64N(soupPages*pageSize/soupSlot)*soupSlot); err != nil {
			return fmt.Errorf("soup: %w", err)
		}
	}
	return nil
}

// address is one that a device must cope with: unmapped, across an end,
// wrapping, misaligned, read-only, without descriptor, of the soup, in use for
// something else.
func (s *soup) address() uint64 {
	rnd, g := s.rnd, s.g
	bank := banks[rnd.IntN(len(banks))]
	rom := g.ROM().IOVA
	small := rnd.Uint64N(2 * pageSize)
	switch rnd.IntN(14) {
	case 0:
		return rnd.Uint64()
	case 1:
		return bank + g.mapped() - small
	case 2:
		return bank - small
	case 3:
		return -small
	case 4:
		return bank + rnd.Uint64N(g.mapped())
	case 5:
		return rom + rnd.Uint64N(romPages*pageSize)
	case 6:
		return rom + romPages*pageSize - small
	case 7:
		return rom + (romPages+messagePages)*pageSize - small
	case 8:
		return soupIOVA + soupPages*pageSize - small
	case 9:
		return 1<<rnd.IntN(64) - small&7
	case 10:
		return bank + rnd.Uint64N(g.mapped())&^(pageSize-1)
	default:
		return soupIOVA + rnd.Uint64N(soupPages*pageSize)&^(uint64(1)<<rnd.IntN(13)-1)
	}
}

// word is one of a descriptor: an address, a small number, a few bits, anything.
func (s *soup) word() uint64 {
	switch s.rnd.IntN(6) {
	case 0, 1:
		return s.address()
	case 2:
		return s.rnd.Uint64N(4096)
	case 3:
		one, other := s.rnd.IntN(64), s.rnd.IntN(64)
		return 1<<one | 1<<other
	case 4:
		return 0
	}
	return s.rnd.Uint64()
}

// opcodes of admin commands, known and near them.
var stormOpcodes = []uint16{
	ice_aqc_opc_get_ver, ice_aqc_opc_driver_ver, ice_aqc_opc_q_shutdown, ice_aqc_opc_req_res, ice_aqc_opc_release_res,
	ice_aqc_opc_list_func_caps, ice_aqc_opc_list_dev_caps, ice_aqc_opc_manage_mac_read, ice_aqc_opc_clear_pxe_mode,
	ice_aqc_opc_get_sw_cfg, ice_aqc_opc_set_port_params, ice_aqc_opc_alloc_res, ice_aqc_opc_free_res, ice_aqc_opc_get_vlan_mode,
	ice_aqc_opc_add_vsi, ice_aqc_opc_update_vsi, ice_aqc_opc_free_vsi, ice_aqc_opc_add_sw_rules, ice_aqc_opc_update_sw_rules,
	ice_aqc_opc_remove_sw_rules, ice_aqc_opc_clear_pf_cfg, ice_aqc_opc_set_pfc_mode, ice_aqc_opc_get_dflt_topo,
	ice_aqc_opc_add_sched_elems, ice_aqc_opc_get_sched_elems, ice_aqc_opc_move_sched_elems, ice_aqc_opc_query_port_ets,
	ice_aqc_opc_delete_sched_elems, ice_aqc_opc_query_sched_res, ice_aqc_opc_get_phy_caps, ice_aqc_opc_set_phy_cfg,
	ice_aqc_opc_set_mac_cfg, ice_aqc_opc_get_link_status, ice_aqc_opc_set_event_mask, ice_aqc_opc_get_link_topo,
	ice_aqc_opc_get_port_options, ice_aqc_opc_nvm_read, ice_aqc_opc_lldp_set_local_mib, ice_aqc_opc_set_rss_key,
	ice_aqc_opc_set_rss_lut, ice_aqc_opc_add_txqs, ice_aqc_opc_dis_txqs, ice_aqc_opc_add_rdma_qset, ice_aqc_opc_download_pkg,
	ice_aqc_opc_upload_section, ice_aqc_opc_update_pkg, ice_aqc_opc_get_pkg_info_list, ice_aqc_opc_fw_logs_config,
	ice_aqc_opc_fw_logs_register, ice_aqc_opc_fw_logs_query,
}

// fill makes something that looks as if it were meant.
func (s *soup) fill(b *[soupSlot]byte) {
	rnd := s.rnd
	for n := 0; n < soupSlot; n += 8 {
		le.PutUint64(b[n:], s.word())
	}
	switch rnd.IntN(8) {
	case 0: // admin commands, two of them
		for _, d := range [][]byte{b[:aqDescSize], b[aqDescSize:]} {
			le.PutUint16(d, uint16(rnd.Uint32())&(aqFlagBUF|aqFlagLB|aqFlagRD|aqFlagSI|aqFlagDD))
			le.PutUint16(d[2:], stormOpcodes[rnd.IntN(len(stormOpcodes))])
			le.PutUint16(d[4:], uint16(rnd.Uint32N(aqBufSize+8)))
			putAQAddress(d, s.address())
		}
	case 1: // CQP context
		le.PutUint64(b[0:], protocolRoCE<<3|uint64(rnd.Uint32N(16))<<8)
		le.PutUint64(b[8:], s.address())
		le.PutUint64(b[16:], 1)
		le.PutUint64(b[32:], hwMajVerGen2<<16)
	case 2: // CQP WQE
		le.PutUint64(b[24:], s.word()&^(0x3f<<wqeOpcodeBit|wqeValid)|rnd.Uint64N(0x40)<<wqeOpcodeBit|rnd.Uint64N(2)<<63)
	case 3: // send WQE with fragments
		for _, at := range []int{0, 32, 48} {
			le.PutUint64(b[at:], s.address())
			le.PutUint64(b[at+8:], rnd.Uint64N(1<<31)<<fragLenBit|rnd.Uint64N(2)*uint64(rnd.Uint32()))
		}
		le.PutUint64(b[24:], s.word()&^(0x3f<<sqOpcodeBit)|rnd.Uint64N(16)<<sqOpcodeBit|wqeValid)
	case 4: // receive descriptors, PBLEs
		for n := 0; n < soupSlot; n += 8 {
			le.PutUint64(b[n:], s.address())
		}
	case 5: // page descriptors
		for n := 0; n < soupSlot; n += 8 {
			le.PutUint64(b[n:], s.address()&^(pageSize-1)|rnd.Uint64N(2))
		}
	case 6: // transmit descriptors
		for n := 0; n < soupSlot; n += txDescSize {
			le.PutUint64(b[n:], s.address())
			le.PutUint64(b[n+8:], rnd.Uint64N(2)|rnd.Uint64N(8)<<4|rnd.Uint64N(1<<14)<<34|rnd.Uint64()<<48)
		}
	}
}
