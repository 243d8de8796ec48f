// SPDX-License-Identifier: Apache-2.0

package rdmatest

import (
	"github.com/vrnic/vrnic/devmodel/hmc"
)

// Kernel selects the order in which a driver brings the engine up.
type Kernel int

// Kernels whose orders differ.
const (
	Kernel61 Kernel = iota // 6.1, 6.12: features after the CCQ, QP before its scheduler nodes
	Kernel73               // 7.3
)

// Boot constants the tests refer to.
const (
	CCQSize    = 2050
	GSICQ      = 3
	GSICQSize  = 1024
	GSICQCtx   = 0x4444_8881_0000_1238 // bits 62:0 of what kernels put there
	GSIQP      = 1
	GSIQPCtx   = 0xFFFF_8881_7777_0000
	GSIQuanta  = 512 // send queue
	GSIRecvs   = 512 // receive queue, in quanta and WQEs
	ARPIndex   = 1
	VSI        = 9
	CEQEntries = 2048
	AEQEntries = 3072
)

// Device is what a booted driver holds.
type Device struct {
	G        *Guest
	CEQ      []uint64 // ring addresses
	AEQ      uint64
	SDs      [][2]uint64 // index, address
	GSI      *Consumer
	QPC      uint64
	SQ, RQ   uint64
	QPShadow uint64
	QSHandle uint32
	Stats    uint64
}

// CommitCounts are the counts every kernel computes from the SmallGuest
// profile in RoCE mode (ctrl.c:irdma_cfg_fpm_val).
func CommitCounts() map[hmc.Object]uint64 {
	return map[hmc.Object]uint64{
		hmc.QP: 1024, hmc.CQ: 2048, hmc.HTE: 4096, hmc.ARP: 512, hmc.MR: 16384, hmc.XF: 16384, hmc.XFFL: 4096,
		hmc.Q1: 262144, hmc.Q1FL: 65536, hmc.TIMER: 1536, hmc.FSIMC: 512, hmc.FSIAV: 4096, hmc.PBLE: 2097152,
		hmc.RRF: 32768, hmc.RRFFL: 8192, hmc.HDR: 1024,
	}
}

// commitWord is the offset of each object's word in the commit buffer.
var commitWord = map[hmc.Object]uint64{
	hmc.QP: 0, hmc.CQ: 8, hmc.HTE: 24, hmc.ARP: 32, hmc.MR: 48, hmc.XF: 56, hmc.XFFL: 64, hmc.Q1: 72, hmc.Q1FL: 80,
	hmc.TIMER: 88, hmc.FSIMC: 96, hmc.FSIAV: 104, hmc.PBLE: 112, hmc.RRF: 128, hmc.RRFFL: 136, hmc.HDR: 144,
}

// CommitFPM runs QUERY_FPM_VAL and COMMIT_FPM_VAL; it returns the buffers.
func (g *Guest) CommitFPM(size uint64) (query, commit uint64) {
	query, commit = g.Alloc(256), g.Alloc(256)
	g.Must(WQE{2: 0, 3: 0x8000002000000000, 4: query})
	for o, n := range CommitCounts() {
		g.Store(commit+commitWord[o], n)
	}
	g.Must(WQE{3: 0x8000002100000000 | size, 4: commit})
	return query, commit
}

// AddDirectSD backs segment i and programs it.
func (g *Guest) AddDirectSD(i uint64) (addr uint64) {
	addr = g.Alloc(2 << 20)
	g.Must(WQE{0: 0x80008000 + i, 1: addr + 0x803, 3: 0x8000001F00000000})
	return addr
}

// HMC brings the host memory cache up: layout and three static segments.
func (g *Guest) HMC(commitSize uint64) (sds [][2]uint64) {
	g.CommitFPM(commitSize)
	for i := range uint64(3) {
		sds = append(sds, [2]uint64{i, g.AddDirectSD(i)})
	}
	g.Must(WQE{3: 0x8000002B00000000})
	return sds
}

// CreateCCQ makes CQ 0; its completion is the first entry in it.
func (g *Guest) CreateCCQ() {
	c := g.NewConsumer(CCQSize)
	g.CCQ = c
	g.Must(WQE{0: CCQSize, 2: 0x10, 3: 0x8002400300000000, 4: c.Ring, 5: c.Shadow, 7: VSI << 8})
}

// features asks for the features.
func (g *Guest) features(size uint64) uint64 {
	b := g.Alloc(size)
	g.Must(WQE{3: 0x8000001200000000 | size, 4: b})
	return b
}

// Boot plays a driver's probe up to the GSI QP in RTS.
func (g *Guest) Boot(k Kernel, ceqs int) *Device {
	g.T.Helper()
	d := &Device{G: g}
	for _, r := range []string{"GLPE_CPUSTATUS0", "GLPE_CPUSTATUS1", "GLPE_CPUSTATUS2"} {
		if v := g.Read(r); v != 0x80 {
			g.T.Fatalf("%s = %#x", r, v)
		}
	}
	g.CreateCQP(10)
	if k == Kernel73 {
		g.features(272)
		d.SDs = g.HMC(208)
	} else {
		d.SDs = g.HMC(176)
	}
	g.CreateCCQ()
	if k == Kernel61 {
		g.features(224)
	}
	for i := range uint64(ceqs) {
		ring := g.Alloc(CEQEntries * 8)
		d.CEQ = append(d.CEQ, ring)
		g.Must(WQE{2: CEQEntries, 3: 0x8000001600000000 | i, 4: ring, 7: VSI << 8})
		if i == 0 {
			g.CCQ.Arm(0, false)
		}
	}
	d.AEQ = g.Alloc(AEQEntries * 16)
	g.Must(WQE{2: AEQEntries, 3: 0x8000001900000000, 4: d.AEQ})
	d.Stats = g.Alloc(2048)
	g.Must(WQE{3: 0x8000002E00000000, 4: d.Stats})
	g.Must(WQE{2: 0x5254_0012_3456, 3: 0x80000C0F00000000 + ARPIndex})
	d.createGSI(k)
	return d
}

func (d *Device) createGSI(k Kernel) {
	g := d.G
	d.GSI = g.NewConsumer(GSICQSize)
	g.Must(WQE{0: GSICQSize, 1: GSICQCtx, 2: GSICQSize / 2, 3: 0x8003400300000000 + GSICQ, 4: d.GSI.Ring, 5: d.GSI.Shadow, 7: VSI << 8})
	d.SQ = g.Alloc(GSIQuanta * 32)
	d.RQ = g.Alloc(GSIRecvs * 32)
	d.QPShadow = g.Alloc(64)
	d.QPC = g.Alloc(256)
	if k == Kernel73 {
		d.AddLeaf()
	}
	d.WriteContext()
	g.Must(WQE{2: d.QPC, 3: 0x900C800000000000 + GSIQP, 5: d.QPShadow})
	if k == Kernel61 {
		d.AddLeaf()
	}
	d.WriteContext()
	const modify = 0x8000000100000000 | 4<<48 | GSIQP
	g.Must(WQE{2: d.QPC, 3: modify | 1<<60, 5: d.QPShadow})
	g.Must(WQE{2: d.QPC, 3: modify | 4<<60 | 1<<59 | 1<<47, 5: d.QPShadow})
	g.Must(WQE{2: d.QPC, 3: modify | 2<<60 | 1<<59 | 1<<47 | 1<<42, 5: d.QPShadow})
}

// AddLeaf makes the work scheduler nodes of the first QP.
func (d *Device) AddLeaf() {
	g := d.G
	g.Must(WQE{3: 0xC800002C00000000, 4: VSI<<48 | 1<<32})
	g.Must(WQE{3: 0xC800002C00000001, 4: VSI<<48 | 1<<32})
	d.QSHandle = g.Must(WQE{3: 0xA800002C00010002, 4: VSI<<48 | 1<<32}).Value
	g.Must(WQE{3: 0xE810002C00010002, 4: VSI<<48 | 1<<32})
}

// WriteContext builds the GSI QP's host context.
func (d *Device) WriteContext() {
	g := d.G
	g.Store(d.QPC, make([]uint64, 32)...)
	g.Store(d.QPC, 1<<3)
	g.Store(d.QPC+8, d.SQ, d.RQ)
	g.Store(d.QPC+24, 4791<<48|0xC000<<32|7<<12|7<<8|0x40)
	g.Store(d.QPC+48, 1024<<16)
	g.Store(d.QPC+56, 3<<48|0xFFFF<<32)
	g.Store(d.QPC+64, 0x80010000<<32)
	g.Store(d.QPC+136, GSICQ<<32|GSICQ)
	g.Store(d.QPC+152, 0x525400123456<<16)
	g.Store(d.QPC+160, 1<<25|1<<24|1<<21|1<<20|1<<19)
	g.Store(d.QPC+168, GSIQPCtx)
	g.Store(d.QPC+176, uint64(d.QSHandle)<<16)
}

// PostReceives fills the first n WQEs of the GSI QP's receive queue.
func (d *Device) PostReceives(n int) {
	for i := range uint64(n) {
		at := d.RQ + 32*i
		d.G.Store(at, 0x4000_0000+i*4096, 1<<63|296)
		d.G.Store(at+24, 1<<63)
	}
}

// Teardown plays a driver's removal. After each command that ends an object
// its memory is poisoned; check that it stays so with Poisoned.
func (d *Device) Teardown() (poisoned [][2]uint64) {
	g := d.G
	end := func(at, size uint64) {
		g.Fill(at, size, 0xA5)
		poisoned = append(poisoned, [2]uint64{at, size})
	}
	g.Must(WQE{2: d.QPC, 3: 0xE004000100000000 + GSIQP, 5: d.QPShadow})
	g.Must(WQE{2: 0x0001000100010001, 3: 0xF000002200000000 + GSIQP})
	g.Must(WQE{2: d.QPC, 3: 0x8084000200000000 + GSIQP, 5: d.QPShadow})
	end(d.SQ, GSIQuanta*32)
	end(d.RQ, GSIRecvs*32)
	end(d.QPShadow, 64)
	end(d.QPC, 256)
	g.Must(WQE{3: 0x8820002C00010002 | 1<<61, 4: VSI << 48})
	g.Must(WQE{3: 0x8820002C00000001, 4: VSI << 48})
	g.Must(WQE{3: 0x8820002C00000000, 4: VSI << 48})
	g.Must(WQE{0: GSICQSize, 1: GSICQCtx, 3: 0x8003000500000000 + GSICQ, 5: d.GSI.Shadow})
	end(d.GSI.Ring, 32*GSICQSize)
	end(d.GSI.Shadow, 64)
	g.Must(WQE{3: 0x8000000F00000000 + ARPIndex})
	g.Must(WQE{2: AEQEntries, 3: 0x8000001B00000000})
	end(d.AEQ, AEQEntries*16)
	for i := len(d.CEQ) - 1; i >= 0; i-- {
		g.Must(WQE{2: CEQEntries, 3: 0x8000001800000000 | uint64(i)})
		end(d.CEQ[i], CEQEntries*8)
	}
	ccq := g.CCQ
	g.CCQ = nil
	g.Must(WQE{0: CCQSize, 3: 0x8002000500000000, 5: ccq.Shadow})
	end(ccq.Ring, 32*CCQSize)
	end(ccq.Shadow, 64)
	for _, sd := range d.SDs {
		g.Must(WQE{0: 0x80008000 + sd[0], 1: 0x802, 3: 0x8000001F00000000})
	}
	g.DestroyCQP()
	end(g.ring, uint64(g.size)*64)
	return poisoned
}

// Poisoned tells whether a piece of memory still holds only the poison.
func (g *Guest) Poisoned(at, size uint64) bool {
	p := make([]byte, size)
	if err := g.Mem.Read(at, p); err != nil {
		g.T.Fatal(err)
	}
	for _, b := range p {
		if b != 0xA5 {
			return false
		}
	}
	return true
}
