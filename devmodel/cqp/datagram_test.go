// SPDX-License-Identifier: Apache-2.0

package cqp_test

import (
	"bytes"
	"testing"

	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/devmodel/rdma"
	. "github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// services is a booted driver whose GSI QP talks to itself.
type services struct {
	*Device
	engine *engine.Engine
	sends  uint64
	recvs  uint64
	data   uint64
}

const (
	ownMAC   = 0x525400123456
	gsiPD    = 3
	createAH = 0x1C << 32
	modifyAH = 0x1D << 32
	endAH    = 0x1E << 32
	ahFlags  = 1<<59 | 1<<62 // IPv4, DOLOOPBACK
	someAH   = 9
)

func bootServices(t *testing.T, g *Guest, e *engine.Engine) *services {
	s := &services{Device: g.Boot(Kernel73, 1), engine: e}
	s.data = g.Alloc(4096)
	return s
}

func newServices(t *testing.T) *services {
	e := engine.New(engine.Config{Manual: true})
	t.Cleanup(e.Close)
	return bootServices(t, New(t, hmc.Profile{}, func(c *rdma.Config) {
		c.Engine = e
		c.MAC = func() [6]byte { return [6]byte{0x52, 0x54, 0, 0x12, 0x34, 0x56} }
	}), e)
}

func handleWQE(op, i, pd uint64) WQE {
	return WQE{0: ownMAC << 16, 1: pd << 48, 2: ARPIndex<<48 | 64<<32, 3: op | ahFlags | i, 4: 0xC0000201, 6: 0xC0000201}
}

// send sends eight bytes by an AH to a QP, to a receive WQE that is there for it.
// It tells what was received, nil for nothing, and the asynchronous event.
func (s *services) send(ah, dest uint64) (got []byte, ae uint16) {
	g := s.G
	text := []byte("datagram")
	if err := g.Mem.Write(s.data, text); err != nil {
		g.T.Fatal(err)
	}
	at := s.RQ + 32*s.recvs
	g.Store(at, s.data+1024, 1<<63|100<<32)
	g.Store(at+24, 1<<63)
	at = s.SQ + 32*s.sends
	s.sends++
	g.Store(at, s.data, 8<<32, dest<<32|0x80010000)
	g.Store(at+24, 1<<63|1<<62|3<<32|ah)
	g.Write("PFPE_WQEALLOC", GSIQP)
	s.engine.Drain(100)
	for {
		cqe, ok := s.GSI.Poll()
		if !ok {
			break
		}
		if cqe[3]>>62&1 == 0 { // of the receive queue
			s.recvs++
			got = make([]byte, len(text))
			if err := g.Mem.Read(s.data+1024+40, got); err != nil {
				g.T.Fatal(err)
			}
		}
		if cqe[3]>>50&1 != 0 {
			s.GSI.Poll() // the extension
		}
	}
	return got, uint16(g.Load(s.AEQ+8) >> 34 & 0xFFF)
}

func (s *services) arrives(ah, dest uint64) {
	s.G.T.Helper()
	if got, ae := s.send(ah, dest); !bytes.Equal(got, []byte("datagram")) || ae != 0 {
		s.G.T.Errorf("received %q, event %#x", got, ae)
	}
}

func (s *services) fails(ah, dest uint64, want uint16) {
	s.G.T.Helper()
	if got, ae := s.send(ah, dest); got != nil || ae != want {
		s.G.T.Errorf("received %q, event %#x, want %#x", got, ae, want)
	}
}

// The data path goes by the address handles as the last command left them, and
// by the address that the ARP entry had then.
func TestHandleInUse(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *services)
		want   uint16 // event; 0: datagrams arrive
	}{
		"as made":           {func(*services) {}, 0},
		"ARP entry deleted": {func(s *services) { s.G.Must(WQE{3: 0x0F<<32 | ARPIndex}) }, 0},
		"modified to its PD": {func(s *services) {
			s.G.Must(handleWQE(createAH, someAH+1, gsiPD+1))
			s.G.Must(handleWQE(modifyAH, someAH+1, gsiPD))
		}, 0},
		"modified to another PD": {func(s *services) { s.G.Must(handleWQE(modifyAH, someAH, gsiPD+1)) }, 0x0133},
		"destroyed":              {func(s *services) { s.G.Must(WQE{3: endAH | someAH}) }, 0x0406},
		"destroyed and made anew": {func(s *services) {
			s.G.Must(WQE{3: endAH | someAH})
			s.G.Must(handleWQE(createAH, someAH, gsiPD))
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServices(t)
			s.G.Must(handleWQE(createAH, someAH, gsiPD))
			s.arrives(someAH, GSIQP)
			c.change(s)
			if c.want == 0 {
				s.arrives(someAH, GSIQP)
			} else {
				s.fails(someAH, GSIQP, c.want)
			}
		})
	}
}

// A group's datagrams reach its members as the last command left them.
func TestGroupInUse(t *testing.T) {
	s := newServices(t)
	g := s.G
	const all, groupIP = 0xFFFFFF, 0xEF010203
	group := WQE{0: 0x01005E010203, 2: uint64(s.QSHandle), 3: 1<<60 | 5, 4: g.Alloc(4096), 6: groupIP}
	g.Store(group[4], 4791<<32|1<<31|GSIQP)
	create, modify, end := group, group, group
	create[3] |= 0x26 << 32
	modify[3] |= 0x27 << 32
	end[3] |= 0x28 << 32
	g.Must(WQE{2: 0x01005E010203, 3: 0x80000C0F00000000 + ARPIndex + 1})
	ah := handleWQE(createAH, someAH, gsiPD)
	ah[2], ah[4] = (ARPIndex+1)<<48|64<<32, groupIP
	g.Must(ah)
	s.fails(someAH, all, 0)
	g.Must(create)
	s.arrives(someAH, all)
	g.Store(group[4], 4791<<32|1<<31|77)
	g.Must(modify)
	s.fails(someAH, all, 0)
	g.Store(group[4], 4791<<32|1<<31|77, 4791<<32|1<<31|GSIQP)
	g.Must(modify)
	s.arrives(someAH, all)
	g.Must(end)
	s.fails(someAH, all, 0)
}

// What a driver made is gone with its control QP, or by a reset: the next one's
// datagrams find none of it.
func TestHandlesEnd(t *testing.T) {
	for name, end := range map[string]func(g *Guest){
		"control QP destroyed": func(g *Guest) { g.DestroyCQP() },
		"reset": func(g *Guest) {
			g.Engine.Reset(reg.PFR)
			g.Space.Reset(reg.PFR)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServices(t)
			s.G.Must(handleWQE(createAH, someAH, gsiPD))
			s.arrives(someAH, GSIQP)
			end(s.G)
			s.engine.Drain(100)
			s.G.Rewind()
			s.G.CCQ = nil
			next := bootServices(t, s.G, s.engine)
			next.fails(someAH, GSIQP, 0x0406)
			found := false
			for _, e := range next.G.Events {
				_, absent := e.(qp.HandleAbsent)
				found = found || absent
			}
			if !found {
				t.Error("no event tells of it")
			}
		})
	}
}
