// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"math/rand/v2"
	"testing"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
)

// A hundred thousand writes of anything anywhere, among them addresses of the
// guest and registers that do something; then a PF reset, and all is well.
func TestRandomRegisterWrites(t *testing.T) {
	const writes, barSize = 100_000, 32 << 20
	ctx, sockets, _ := cards(t, 1)
	g, err := NewGuest(guestMiB) // nobody checks it: the device may write where it was told to
	must(t, err)
	defer g.Close()
	f := attach(t, ctx, sockets[0], g)
	m, err := bringUp(f, Linux73(), Options{})
	must(t, err)

	rnd := rand.New(rand.NewPCG(1, 2))
	known := []uint32{PF_FW_ATQBAL, PF_FW_ATQBAH, PF_FW_ATQLEN, PF_FW_ATQH, PF_FW_ATQT, PF_FW_ARQBAL, PF_FW_ARQLEN,
		PF_FW_ARQH, PF_FW_ARQT, PF_MBX_ATQT, PF_MBX_ARQT, PFINT_OICR, PFINT_OICR_ENA, PFINT_OICR_CTL, PFINT_FW_CTL,
		PFINT_AEQCTL, PFPE_CCQPHIGH, PFPE_CCQPLOW, PFPE_CCQPSTATUS, PFPE_CQPTAIL, PFPE_CQPDB, PFPE_CQARM, PFPE_CQACK,
		PFPE_AEQALLOC, PFPE_WQEALLOC, PFHMC_PDINV}
	resets := []uint32{PFGEN_CTRL, GLGEN_RTRIG}
	arrays := []func(int) uint32{GLINT_DYN_CTL, GLINT_CEQCTL, GLINT_RATE, QINT_RQCTL, QINT_TQCTL, QRX_CTRL, QRX_TAIL, QTX_COMM_DBELL}
	value := func() uint32 {
		switch rnd.IntN(5) {
		case 0:
			return rnd.Uint32N(2048)
		case 1:
			return 1 << rnd.IntN(32)
		case 2:
			bank := banks[rnd.IntN(len(banks))] + rnd.Uint64N(g.mapped())
			return uint32(bank >> (32 * rnd.IntN(2)))
		case 3:
			return rnd.Uint32N(2048) | ctrlqLenEnable
		default:
			return rnd.Uint32()
		}
	}
	var batch []vfiouser.RegionWriteOp
	for range writes {
		off := rnd.Uint32N(barSize/4) * 4
		switch n := rnd.IntN(1000); {
		case n == 0:
			off = resets[rnd.IntN(len(resets))]
		case n < 300:
			off = known[rnd.IntN(len(known))]
		case n < 600:
			off = arrays[rnd.IntN(len(arrays))](rnd.IntN(64))
		}
		data := le.AppendUint32(nil, value())
		if rnd.IntN(50) == 0 { // and of odd widths
			data = append(data, data...)[:1<<rnd.IntN(4)]
		}
		batch = append(batch, vfiouser.RegionWriteOp{Region: bar0, Offset: uint64(off), Data: data})
		if len(batch) == 1000 {
			must(t, f.Client.PostRegions(batch))
			f.flush()
			must(t, f.Err())
			batch = batch[:0]
		}
	}
	must(t, m.f.poll("end of a global reset", func() bool { return f.Read32(GLGEN_RSTAT)&3 == 0 }))
	must(t, m.i.Reset())
	m.abandon()
	must(t, g.wipe())
	check(t, f, Linux73())
}

// wipe makes all memory fresh poison or zeros again, whatever was in it.
func (g *Guest) wipe() error {
	g.Check()
	return g.Check()
}

// The guest takes its memory away while rings are live, and rings on.
func TestUnmapUnderLiveRings(t *testing.T) {
	m, _ := start(t, Linux73(), Options{})
	f, r := m.f, m.r
	req, err := r.post(IRDMA_CQP_OP_NOP, WQE{})
	must(t, err)
	must(t, f.Guest.Unmap(f.Client))
	r.cqp.doorbell()
	f.Write32(PF_FW_ATQT, uint32(m.i.aq.send.next+1)%aqEntries)
	f.Write32(PFPE_CQARM, r.gsiCQ.ID)
	f.Write32(PFPE_WQEALLOC, 1)
	f.Write32(QTX_COMM_DBELL(0), 5)
	f.Write32(QRX_TAIL(0), 16)
	f.Write32(PFHMC_PDINV, 0x8000)
	f.flush()
	must(t, f.Err())
	if _, err := r.drainCCQ(); err != nil || req.done {
		t.Errorf("an operation completed through memory that is not mapped: %v, %v", req.done, err)
	}
	must(t, f.Guest.Map(f.Client))
	must(t, m.i.Reset())
	m.abandon()
	must(t, f.Guest.Check())
	check(t, f, Linux73())
}

// The file behind the guest's memory shrinks under the device. It costs the
// device its state, not the process, and another guest finds it in order.
func TestTruncateUnderLiveRings(t *testing.T) {
	ctx, sockets, _ := cards(t, 1)
	g, err := NewGuest(guestMiB)
	must(t, err)
	defer g.Close()
	f := attach(t, ctx, sockets[0], g)
	m, err := bringUp(f, Linux73(), Options{})
	must(t, err)
	next := uint32(m.i.aq.send.next+1) % aqEntries
	must(t, g.file.Truncate(0))
	f.Write32(PFPE_CQPDB, m.r.cqp.head+1)
	f.Write32(PF_FW_ATQT, next)
	f.Write32(PFPE_CQARM, 0)
	f.Write32(QTX_COMM_DBELL(0), 5)
	f.flush()
	must(t, f.Err())
	f.Detach()
	check(t, plug(t, ctx, sockets[0]), Linux73())
}
