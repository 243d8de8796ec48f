// SPDX-License-Identifier: Apache-2.0

package qp_test

import (
	"encoding/binary"
	"testing"

	"github.com/vrnic/vrnic/devmodel/qp"
)

func field(c *qp.Context, off, hi, lo int) uint64 {
	return binary.LittleEndian.Uint64(c[off:]) >> lo & (1<<(hi-lo+1) - 1)
}

// An uploaded context has the sequence numbers where they have come to, and
// everything else as the driver set it.
func TestUpload(t *testing.T) {
	b, x, y := connected(t)
	y.receive(sge{data + 0x20000, 4096})
	x.post(wr{op: opSend, flags: signalled, sges: []sge{{data, 4000}}}) // four packets
	x.ring()
	b.drain()
	start := field(&x.ctx, 80, 23, 0)
	end := (start + 4) & 0xFFFFFF

	sent, err := b.table.Upload(2, false)
	b.ok(err)
	if next, most, una := field(&sent, 80, 23, 0), field(&sent, 96, 23, 0), field(&sent, 96, 55, 32); next != end || most != end || una != end {
		t.Errorf("sender: PSNNXT %#x PSNMAX %#x PSNUNA %#x, want %#x", next, most, una, end)
	}
	if v := field(&sent, 88, 23, 0); v != field(&x.ctx, 88, 23, 0) {
		t.Errorf("sender: EPSN %#x", v)
	}
	if sent.SQAddr() != x.ctx.SQAddr() || sent.DestQP() != 5 || sent.CompletionContext() != compCtx+2 {
		t.Error("sender: other fields changed")
	}
	took, err := b.table.Upload(5, false)
	b.ok(err)
	if v := field(&took, 88, 23, 0); v != end {
		t.Errorf("receiver: EPSN %#x, want %#x", v, end)
	}
	if _, err := b.table.Upload(77, false); err == nil {
		t.Error("uploads a QP that does not exist")
	}
}

// Before anything was sent the context has the driver's own numbers.
func TestUploadBeforeRTS(t *testing.T) {
	b := newBench(t)
	x := b.newSide(2, 5)
	x.create()
	for _, state := range []qp.State{qp.Idle, qp.RTR} {
		if state == qp.RTR {
			x.modify(state)
		}
		c, err := b.table.Upload(2, false)
		b.ok(err)
		if c != x.ctx {
			t.Errorf("%v: context changed", state)
		}
	}
}

// A frozen QP neither sends nor answers, until the driver changes its state or
// resumes it; then nothing is missing.
func TestFreeze(t *testing.T) {
	for name, thaw := range map[string]func(*bench, *side){
		"MODIFY_QP":       func(_ *bench, s *side) { s.modify(qp.RTS) },
		"a failed upload": func(b *bench, _ *side) { b.table.Thaw(2) },
		"RESUME_QP":       func(b *bench, _ *side) { b.ok(b.table.Resume(2, 5)) },
	} {
		t.Run(name, func(t *testing.T) {
			b, x, y := connected(t)
			p := b.fill(data, 1000, 3)
			y.receive(sge{data + 0x20000, 1000})
			_, err := b.table.Upload(2, true)
			b.ok(err)
			w := x.post(wr{op: opSend, flags: signalled, sges: []sge{{data, 1000}}})
			x.ring()
			b.drain()
			if len(b.cqes[2])+len(b.cqes[6]) != 0 {
				t.Errorf("completions of a frozen QP: %v", b.cqes)
			}
			thaw(b, x)
			x.ring()
			b.drain()
			b.wantCQ(2, x.sent(w, 3))
			b.same(p, data+0x20000)
		})
	}
}

// Counters of an instance are those of the QPs that name it, while it is
// taken; the function counts all.
func TestStatsInstances(t *testing.T) {
	b, x, y := connected(t, func(x, y *side) {
		put(&x.ctx, 144, 1) // STAT_INDEX
		put(&x.ctx, 160, 3<<16|4|1<<26)
	})
	send := func() {
		y.receive(sge{data + 0x20000, 100})
		x.post(wr{op: opSend, sges: []sge{{data, 100}}})
		x.ring()
		b.drain()
	}
	sends := func(buf [qp.StatsSize]byte) (in, out uint64) {
		return binary.LittleEndian.Uint64(buf[256:]), binary.LittleEndian.Uint64(buf[280:])
	}
	send() // the instance is not taken
	for want := range uint8(2) {
		if i, ok := b.table.AllocateInstance(); !ok || i != want {
			t.Fatalf("instance %d, %t, want %d", i, ok, want)
		}
	}
	send()
	send()
	got, ok := b.table.InstanceStats(1)
	if in, out := sends(got); !ok || in != 0 || out != 2 {
		t.Errorf("instance 1: %d sends in, %d out, want 0 and 2", in, out)
	}
	got, ok = b.table.InstanceStats(0)
	if in, out := sends(got); !ok || in+out != 0 {
		t.Errorf("instance 0, which no QP names: %d in, %d out", in, out)
	}
	if in, out := sends(b.table.Stats()); in != 3 || out != 3 {
		t.Errorf("function: %d in, %d out, want 3 and 3", in, out)
	}
	if !b.table.FreeInstance(1) || b.table.FreeInstance(1) {
		t.Error("an instance is freed once")
	}
	send()
	if _, ok := b.table.InstanceStats(1); ok {
		t.Error("counters of a free instance")
	}
	b.table.AllocateInstance()
	got, _ = b.table.InstanceStats(1)
	if _, out := sends(got); out != 0 {
		t.Errorf("a new instance begins with %d", out)
	}
	for range qp.StatsInstances - 2 {
		b.table.AllocateInstance()
	}
	if i, ok := b.table.AllocateInstance(); ok {
		t.Errorf("instance %d beyond the last", i)
	}
}

// What the driver asked for and what became of it are told apart.
func TestTransitionAfterFailure(t *testing.T) {
	b, x, _ := connected(t)
	x.post(wr{op: 0x3F}) // no such opcode: the QP fails
	x.ring()
	b.drain()
	b.events = nil
	if err := b.modify(2, qp.RTS, x.ctx); err == nil {
		t.Error("RTS from ERROR")
	}
	if e, ok := b.events[0].(qp.IllegalTransition); !ok || !e.Failed || e.From != qp.Error {
		t.Errorf("%v", b.events)
	}
	b.events = nil
	b.ok(b.modify(2, qp.Error, x.ctx))
	if err := b.modify(2, qp.RTS, x.ctx); err == nil {
		t.Error("RTS from ERROR")
	}
	if e, ok := b.events[0].(qp.IllegalTransition); !ok || e.Failed {
		t.Errorf("%v", b.events)
	}
}

func TestUsers(t *testing.T) {
	b := newBench(t)
	x := b.newSide(2, 5)
	put(&x.ctx, 0, 1<<8|1<<20|1<<3|1<<47|9<<32) // push page 9
	x.create()
	handle, arpIndex := x.ctx.QSHandle(), x.ctx.ARPIndex()
	check := func(state string, want bool) {
		t.Helper()
		_, h := b.table.UserOfHandle(handle)
		_, a := b.table.UserOfARP(arpIndex)
		if h != want || a != want {
			t.Errorf("%s: user of handle %t, of ARP %t, want %t", state, h, a, want)
		}
	}
	if id, ok := b.table.UserOfPushPage(9); !ok || id != 2 {
		t.Errorf("user of push page: %d, %t", id, ok)
	}
	if _, ok := b.table.UserOfPushPage(8); ok {
		t.Error("another push page has a user")
	}
	check("IDLE", false)
	x.modify(qp.RTR)
	check("RTR", true)
	x.modify(qp.RTS)
	check("RTS", true)
	x.modify(qp.Error)
	check("ERROR", false)
}
