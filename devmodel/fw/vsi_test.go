// SPDX-License-Identifier: Apache-2.0

package fw

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vrnic/vrnic/devmodel/reg"
)

// pfContext is a VSI context as the driver adds one: most sections filled,
// few of them flagged (ice_lib.c:ice_vsi_init).
func pfContext() []byte {
	b := make([]byte, 128)
	copy(b, u16(1<<1|1<<11)) // SECURITY, FLOW_DIR
	b[2] = swid
	b[3] = 1<<5 | 1<<7 // ALLOW_LB, SRC_PRUNE
	b[4] = 1 << 4      // LAN_ENA
	b[6] = 1           // ALLOW_DEST_OVRD
	b[12] = 3 | 3<<3   // all tags, left in place
	copy(b[30:], u16(0, 4))
	copy(b[62:], u16(0|2<<11))
	b[78] = 2 // PF table
	copy(b[90:], u16(9))
	return b
}

var pfVSI = slices.Concat(make([]byte, 6), u16(2))

func (b *bench) addVSI() uint16 {
	b.t.Helper()
	p, _ := b.must(0x0210, pfVSI, pfContext())
	return get16(p, 0)
}

func named(n uint16, more ...byte) []byte { return append(u16(n|1<<15), more...) }

const peControl = 0x414000 // VSIQF_PE_CTL1

func TestVSIAddUpdateFree(t *testing.T) {
	b := newBench(t)
	p, out := b.must(0x0210, pfVSI, pfContext())
	n := get16(p, 0)
	if n != 1 || get16(p, 4) != 1 || get16(p, 6) != 766 || len(out) != 128 {
		t.Fatalf("number %d, %d used, %d free, %d bytes", n, get16(p, 4), get16(p, 6), len(out))
	}
	if n2 := b.addVSI(); n2 != 2 {
		t.Errorf("second VSI %d, want 2", n2)
	}
	v, ok := b.f.VSI(n)
	c := &v.Context
	offset, log2 := c.TCQueues(0)
	if !ok || v.Type != 2 || !c.AllowLoopback() || !c.SourcePrune() || !c.LANEnable() || c.RxVLANPrune() ||
		!c.AllowDestOverride() || c.InnerVLANTxMode() != 3 || c.InnerVLANStripMode() != 3 || c.QueuesScattered() ||
		c.RxQueue(0) != 0 || c.RxQueue(1) != 4 || offset != 0 || log2 != 2 || c.RSSTable() != 2 ||
		c.RDMAFilter() || !c.FlowDirector() {
		t.Errorf("all sections of an Add count: % x", c[:])
	}

	// What irdma does: only the queueing options, everything else zero
	// (ice_switch.c:ice_cfg_rdma_fltr).
	u := make([]byte, 128)
	copy(u, u16(1<<7))
	u[78], u[80] = 2, 1
	p, _ = b.must(0x0211, named(n), u)
	if get16(p, 0) != n || get16(p, 4) != 2 || get16(p, 6) != 765 {
		t.Errorf("answer % x", p)
	}
	want := pfContext()
	copy(want, u16(1<<1|1<<7|1<<11))
	want[80] = 1
	v, _ = b.f.VSI(n)
	if d := cmp.Diff(want, v.Context[:]); d != "" || !v.Context.RDMAFilter() {
		t.Errorf("update of the queueing options (-want +got):\n%s", d)
	}
	if other, _ := b.f.VSI(2); other.Context.RDMAFilter() {
		t.Error("the other VSI was updated too")
	}

	if on, off := b.regs.Read32(peControl+4*uint32(n)), b.regs.Read32(peControl+8); on != 1 || off != 0 {
		t.Errorf("VSIQF_PE_CTL1 reads %d, that of the other VSI %d", on, off)
	}

	b.must(0x0213, named(n), nil)
	if on := b.regs.Read32(peControl + 4*uint32(n)); on != 0 {
		t.Errorf("VSIQF_PE_CTL1 of no VSI reads %d", on)
	}
	if _, ok := b.f.VSI(n); ok {
		t.Error("VSI is still there")
	}
	b.want(rcENOENT, 0x0213, named(n), nil)
	b.want(rcENOENT, 0x0211, named(n), u)
	if again := b.addVSI(); again != n {
		t.Errorf("next VSI %d, want the freed %d", again, n)
	}
	if v, _ := b.f.VSI(n); v.Context.RDMAFilter() {
		t.Error("a new VSI inherited options")
	}
}

// Every section of an update, alone, covers its bytes and no others.
func TestVSIUpdateSections(t *testing.T) {
	for bit, bytes := range map[int][2]int{
		0: {2, 6}, 1: {6, 8}, 2: {8, 16}, 3: {24, 28}, 4: {16, 20}, 5: {20, 24},
		6: {28, 78}, 7: {78, 84}, 8: {84, 88}, 11: {90, 100}, 12: {100, 104},
		9: {}, 10: {}, 13: {}, 14: {}, 15: {},
	} {
		b := newBench(t)
		n := b.addVSI()
		u := slices.Repeat([]byte{0xA5}, 128)
		copy(u, u16(1<<bit))
		b.must(0x0211, named(n), u)
		want := pfContext()
		copy(want, u16(1<<1|1<<11|1<<bit))
		for i := bytes[0]; i < bytes[1]; i++ {
			want[i] = 0xA5
		}
		if v, _ := b.f.VSI(n); cmp.Diff(want, v.Context[:]) != "" {
			t.Errorf("section %d (-want +got):\n%s", bit, cmp.Diff(want, v.Context[:]))
		}
	}
}

func TestVSIRefused(t *testing.T) {
	b := newBench(t)
	n := b.addVSI()
	typed := func(first []byte, kind uint16) []byte {
		return slices.Concat(first, make([]byte, 6-len(first)), u16(kind))
	}
	otherSwitch := pfContext()
	otherSwitch[2] = swid + 1
	b.want(rcEINVAL, 0x0210, pfVSI, pfContext()[:127])
	b.want(rcEINVAL, 0x0210, pfVSI, otherSwitch)
	b.want(rcEINVAL, 0x0210, typed(nil, 0), pfContext()) // VF
	b.want(rcEINVAL, 0x0210, typed(nil, 3), pfContext()) // management
	b.want(rcEEXIST, 0x0210, typed(named(n), 2), pfContext())
	b.want(rcEINVAL, 0x0210, typed(named(0), 2), pfContext())
	b.want(rcEINVAL, 0x0210, typed(named(768), 2), pfContext())
	b.want(rcEINVAL, 0x0210, typed(named(1023), 2), pfContext())
	b.want(rcEINVAL, 0x0211, u16(n), pfContext()) // number not valid
	b.want(rcENOENT, 0x0211, named(n+1), pfContext())
	b.want(rcEINVAL, 0x0211, named(n), pfContext()[:100])
	b.want(rcEINVAL, 0x0213, u16(n), nil)
	b.want(rcENOENT, 0x0213, named(1023), nil)
	if got := len(b.f.VSIs()); got != 1 {
		t.Errorf("%d VSIs, want 1", got)
	}
}

// A number freed with KEEP_ALLOC is nobody else's until it is freed again.
func TestVSIKeepAlloc(t *testing.T) {
	b := newBench(t)
	n := b.addVSI()
	p, _ := b.must(0x0213, named(n, 1, 0), nil)
	if get16(p, 4) != 1 {
		t.Errorf("%d used, want 1", get16(p, 4))
	}
	b.want(rcENOENT, 0x0211, named(n), pfContext())
	if other := b.addVSI(); other == n {
		t.Errorf("kept number %d handed out", n)
	}
	b.must(0x0210, slices.Concat(named(n), make([]byte, 4), u16(2)), pfContext())
	b.must(0x0213, named(n, 1, 0), nil)
	b.must(0x0213, named(n), nil)
	if again := b.addVSI(); again != n {
		t.Errorf("VSI %d, want %d", again, n)
	}
}

func TestVSIFull(t *testing.T) {
	b := newBench(t)
	rc, highest := rcOK, uint16(0)
	for range 2000 {
		var p []byte
		if rc, p, _ = b.do(0x0210, pfVSI, pfContext()); rc != rcOK {
			break
		}
		highest = get16(p, 0)
	}
	if rc != rcENOSPC || highest != 767 {
		t.Errorf("%v after VSI %d, want ENOSPC after 767", rc, highest)
	}
	b.f.Reset(reg.PFR) // the driver adds again and frees nothing
	if n := b.addVSI(); n != 1 {
		t.Errorf("VSI %d after PFR, want 1", n)
	}
}

// Each accessor reads its own bits: a context of ones but for the field, and
// of zeroes but for it.
func TestVSIContextFields(t *testing.T) {
	flag := func(f func(*VSIContext) bool) func(*VSIContext) int {
		return func(c *VSIContext) int {
			if f(c) {
				return 1
			}
			return 0
		}
	}
	for name, f := range map[string]struct {
		at, shift, width int
		get              func(*VSIContext) int
	}{
		"sw_id":            {2, 0, 8, func(c *VSIContext) int { return int(c.SwitchID()) }},
		"ALLOW_LB":         {3, 5, 1, flag((*VSIContext).AllowLoopback)},
		"LOCAL_LB":         {3, 6, 1, flag((*VSIContext).LocalLoopback)},
		"SRC_PRUNE":        {3, 7, 1, flag((*VSIContext).SourcePrune)},
		"RX_VLAN_PRUNE":    {4, 0, 1, flag((*VSIContext).RxVLANPrune)},
		"LAN_ENA":          {4, 4, 1, flag((*VSIContext).LANEnable)},
		"ALLOW_DEST_OVRD":  {6, 0, 1, flag((*VSIContext).AllowDestOverride)},
		"MAC_ANTI_SPOOF":   {6, 2, 1, flag((*VSIContext).MACAntiSpoof)},
		"TX_VLAN_PRUNE":    {6, 4, 1, flag((*VSIContext).TxVLANPrune)},
		"port VLAN":        {8, 0, 16, func(c *VSIContext) int { return int(c.PortVLAN()) }},
		"INNER TX_MODE":    {12, 0, 2, func(c *VSIContext) int { return int(c.InnerVLANTxMode()) }},
		"INSERT_PVID":      {12, 2, 1, flag((*VSIContext).InnerVLANInsertPVID)},
		"INNER EMODE":      {12, 3, 2, func(c *VSIContext) int { return int(c.InnerVLANStripMode()) }},
		"outer_vlan_flags": {26, 0, 8, func(c *VSIContext) int { return int(c.OuterVLANFlags()) }},
		"NONCONTIG":        {28, 0, 1, flag((*VSIContext).QueuesScattered)},
		"q_mapping[15]":    {60, 0, 11, func(c *VSIContext) int { return int(c.RxQueue(15)) }},
		"tc offset":        {76, 0, 11, func(c *VSIContext) int { o, _ := c.TCQueues(7); return int(o) }},
		"tc log2":          {76, 11, 4, func(c *VSIContext) int { _, l := c.TCQueues(7); return int(l) }},
		"RSS LUT":          {78, 0, 2, func(c *VSIContext) int { return int(c.RSSTable()) }},
		"RSS HASH":         {78, 6, 2, func(c *VSIContext) int { return int(c.RSSHash()) }},
		"PE_FLTR_EN":       {80, 0, 1, flag((*VSIContext).RDMAFilter)},
		"FD_ENABLE":        {90, 0, 1, flag((*VSIContext).FlowDirector)},
	} {
		mask := (1<<f.width - 1) << f.shift
		var ones, zeroes VSIContext
		copy(ones[:], slices.Repeat([]byte{0xFF}, 128))
		for i := range 2 {
			zeroes[f.at+i] = byte(mask >> (8 * i))
			ones[f.at+i] ^= byte(mask >> (8 * i))
		}
		if got, want := f.get(&zeroes), mask>>f.shift; got != want {
			t.Errorf("%s: %#x, want %#x", name, got, want)
		}
		if got := f.get(&ones); got != 0 {
			t.Errorf("%s: %#x, want 0", name, got)
		}
	}
}

// No flow filter can be had: what ice_fdir_num_avail_fltr computes is 0.
func TestNoFlowFilters(t *testing.T) {
	b := newBench(t)
	size := b.regs.Read32(0x460010)
	guaranteed, bestEffort := uint16(size&0x7FFF), uint16(size>>16&0x7FFF)
	if guaranteed == 0 || bestEffort == 0 {
		t.Fatalf("GLQF_FD_SIZE reads %#x", size)
	}
	c := pfContext()
	copy(c[92:], u16(guaranteed, bestEffort))
	p, _ := b.must(0x0210, pfVSI, c)
	n := uint32(get16(p, 0))
	guaranteed -= uint16(b.regs.Read32(0x464000+4*n) & 0x3FFF)
	bestEffort -= uint16(b.regs.Read32(0x460018) >> 16 & 0x7FFF)
	if guaranteed+bestEffort != 0 || guaranteed != 0 {
		t.Errorf("%d and %d filters are free", guaranteed, bestEffort)
	}
	if got := b.regs.Read32(0x462000 + 4*n); got != size {
		t.Errorf("VSIQF_FD_SIZE reads %#x, want %#x", got, size)
	}
	if got := b.regs.Read32(0x464000 + 4*(n+1)); got != 0 {
		t.Errorf("VSIQF_FD_CNT of no VSI reads %#x", got)
	}
}
