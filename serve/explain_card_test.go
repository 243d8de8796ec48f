// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/guest/minidriver"
	"github.com/vrnic/vrnic/serve"
)

// card is a served card with a driver on it.
type card struct {
	t       *testing.T
	control string
	r       *minidriver.IRDMA
	g       *minidriver.Guest
}

// newCard boots the drivers of a kernel on a card of a personality.
func newCard(t *testing.T, personality string, k minidriver.Kernel) *card {
	t.Helper()
	dir := t.TempDir()
	p, err := hmc.LoadPersonality(personality)
	must(t, err)
	o := serve.Options{Sockets: []string{filepath.Join(dir, "s")}, Control: filepath.Join(dir, "c"), Personality: p}
	h, err := serve.Start(t.Context(), o)
	must(t, err)
	t.Cleanup(h.Close)
	const size = 64
	g, err := minidriver.NewGuest(size)
	must(t, err)
	t.Cleanup(func() { g.Close() })
	f, err := minidriver.Attach(t.Context(), o.Sockets[0], g)
	must(t, err)
	t.Cleanup(f.Detach)
	ice, err := minidriver.Probe(f, k, minidriver.Options{})
	must(t, err)
	r, err := minidriver.ProbeRDMA(ice, minidriver.Options{})
	must(t, err)
	must(t, ice.Open())
	return &card{t, o.Control, r, g}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ask asks for an object and decodes its data.
func (c *card) ask(v any, what string, args ...string) string {
	c.t.Helper()
	r := serve.Request{What: what}
	for i, f := range []*string{&r.Name, &r.Address, &r.Length}[:len(args)] {
		*f = args[i]
	}
	if len(args) == 3 {
		r.Bytes = 16
	}
	resp, err := serve.Ask(c.t.Context(), c.control, r)
	if err != nil {
		c.t.Fatalf("%s %v: %v", what, args, err)
	}
	if err := json.Unmarshal(resp.Data, v); err != nil {
		c.t.Fatalf("%s: %v", resp.Data, err)
	}
	for line := range strings.Lines(resp.Text) {
		if len(line) > 81 {
			c.t.Errorf("%s %v: %d columns: %s", what, args, len(line)-1, line)
		}
	}
	return resp.Text
}

func (c *card) has(text string, want ...string) {
	c.t.Helper()
	flat := strings.Join(strings.Fields(text), " ")
	for _, w := range want {
		if !strings.Contains(flat, w) {
			c.t.Errorf("no %q in\n%s", w, text)
		}
	}
}

// From an STag through a two-level list on a paged segment to the bytes, every
// word by its address.
func TestExplainChain(t *testing.T) {
	c := newCard(t, "paged-pbles", minidriver.Linux73())
	const (
		va    = 0x7F00_0000_0F00
		pages = 600
		pd    = 4
	)
	root, err := c.r.AllocPBLEs(2)
	must(t, err)
	first, err := c.r.AllocPBLEs(512)
	must(t, err)
	second, err := c.r.AllocPBLEs(pages - 512)
	must(t, err)
	c.r.SetPBLE(root, first)
	c.r.SetPBLE(root+1, second)
	var bufs []*minidriver.Buf
	for range pages {
		b, err := c.g.Alloc(4096)
		must(t, err)
		bufs = append(bufs, b)
	}
	slices.Reverse(bufs) // no two are one run
	for i, b := range bufs {
		i := uint64(i)
		at := first + i
		if i >= 512 {
			at = second + i - 512
		}
		c.r.SetPBLE(at, b.IOVA)
	}
	const stag = 5<<8 | 0x77
	_, err = c.r.Exec(minidriver.IRDMA_CQP_OP_REG_MR, minidriver.WQE{0: va, 1: pd<<46 | (pages-1)*4096, 2: stag, 3: 0x882F380000000000, 6: root})
	must(t, err)
	bufs[511].Store64(4088, 0x3736353433323130)
	bufs[512].Store64(0, 0x4646454443424139)

	var w serve.Walk
	at := uint64(va - 0xF00 + 511*4096 + 4088)
	text := c.ask(&w, "mr", fmt.Sprint(stag), fmt.Sprintf("%#x", at), "16")
	if w.Bytes != "30313233343536373941424344454646" {
		t.Errorf("bytes %s", w.Bytes)
	}
	if len(w.Pieces) != 2 || w.Pieces[0] != (serve.Piece{Address: bufs[511].IOVA + 4088, Length: 8}) || w.Pieces[1] != (serve.Piece{Address: bufs[512].IOVA, Length: 8}) {
		t.Errorf("pieces %+v", w.Pieces)
	}
	if len(w.PBLEs) != 4 {
		t.Fatalf("words %+v", w.PBLEs)
	}
	for i, want := range []struct {
		role         string
		index, value uint64
	}{{"root", root, first}, {"page", first + 511, bufs[511].IOVA}, {"root", root + 1, second}, {"page", second, bufs[512].IOVA}} {
		p := w.PBLEs[i]
		if p.Role != want.role || uint64(p.Index) != want.index || p.Value != want.value || !p.Paged || p.PDVal&1 == 0 || p.At != p.PDVal&^0xFFF+p.FPM&0xFFF || p.Stale {
			t.Errorf("word %d: %+v, want %+v", i, p, want)
		}
		c.has(text, fmt.Sprintf("%s PBLE %d %#x %#x %#x", p.Role, p.Index, p.FPM, p.At, p.Value),
			fmt.Sprintf("SD %d in the device %#x paged", p.SD, p.SDAddr), fmt.Sprintf("PD %d %#x %#x", p.PD, p.PDAt, p.PDVal))
	}
	c.has(text, "level 2, PBLEs", "pages 600 of 4K, the first byte is 0xf00 of the first", "is MR, VALID, by REG_MR, CQP WQE")

	// Alone, the region tells where it lies.
	var mrs []serve.MR
	c.ask(&mrs, "mr", fmt.Sprint(stag))
	total := uint64(0)
	for _, p := range mrs[0].Memory {
		total += p.Length
	}
	if mrs[0].Pages != pages || mrs[0].PBLEs != 2 || total != mrs[0].Length || mrs[0].MemoryError != "" {
		t.Errorf("%+v", mrs[0])
	}

	// The segment knows what it is needed for, and its pages.
	sd := w.PBLEs[0].SD
	var h serve.HMC
	text = c.ask(&h, "hmc", fmt.Sprint(sd))
	if len(h.SDs) != 1 || h.SDs[0].Type != "paged" || h.Users == nil || !slices.Contains(h.Users.STags, stag) {
		t.Errorf("segment %+v", h)
	}
	shown := slices.ContainsFunc(h.SDs[0].PDs, func(p hmc.PD) bool {
		return p.Index == w.PBLEs[0].PD && p.Valid && p.Address == w.PBLEs[0].PDVal&^0xFFF && !p.Stale
	})
	if !shown {
		t.Errorf("page descriptor %d is not shown", w.PBLEs[0].PD)
	}
	c.has(text, "type paged", "STag 0x00000577", "PBLE")
	if n := strings.Count(text, "\n"); n > 60 {
		t.Errorf("%d lines about one segment:\n%s", n, text)
	}
	c.has(c.ask(&h, "hmc"), "SD PD TYPE VALID ADDRESS DEVICE USES", "OBJECT COUNT SIZE FPM BASE")
	if _, err := serve.Ask(t.Context(), c.control, serve.Request{What: "hmc", Name: "4000"}); err == nil || !strings.Contains(err.Error(), "segment descriptor 4000 is not valid") {
		t.Errorf("segment 4000: %v", err)
	}
}

// Queues by number: all there is to know of them.
func TestExplainQueues(t *testing.T) {
	c := newCard(t, "default", minidriver.Linux73())
	cq, err := c.r.CreateCQ(64, 0, false)
	must(t, err)
	rcq, err := c.r.CreateCQ(300, 0, true)
	must(t, err)
	q, err := c.r.NewQP(minidriver.QPConfig{Send: cq, Recv: rcq, PD: 9, SendWRs: 16, RecvWRs: 16, SendSGEs: 1, RecvSGEs: 2, User: true})
	must(t, err)
	for i := range uint64(3) {
		must(t, q.PostRecv(minidriver.RecvWR{ID: i, SGEs: []minidriver.SGE{{Addr: 0x1000, Len: 100, LKey: 0x500}, {Addr: 0x2000, Len: 28, LKey: 0x500}}}))
	}
	must(t, q.PostSend(minidriver.SendWR{Op: minidriver.IRDMA_OP_TYPE_SEND, Signalled: true, Inline: []byte("hello")}))

	var qps []serve.QP
	text := c.ask(&qps, "qp", fmt.Sprint(q.ID))
	p := &qps[0]
	if len(qps) != 1 || p.ID != q.ID || p.State != "IDLE" || p.Type != "RC" || p.PD != 9 || p.SendCQ != cq.ID || p.RecvCQ != rcq.ID || p.Privileged {
		t.Errorf("%+v", p)
	}
	if len(p.RQ.WQEs) != 3 || p.RQ.Pending != 3 || p.RQ.WQEs[1].Index != 2 || p.RQ.WQEs[1].InWork || !slices.Contains(p.RQ.WQEs[1].WQE.Notes, "room for 128 bytes") {
		t.Errorf("receive queue %+v", p.RQ)
	}
	if len(p.SQ.WQEs) != 1 || p.SQ.WQEs[0].WQE.Name != "IRDMA_OP_TYPE_SEND" || !p.SQ.Buf.Virtual {
		t.Errorf("send queue %+v", p.SQ)
	}
	c.has(text, fmt.Sprintf("QP %d, RC, state IDLE", q.ID), "5 bytes inline: 68 65 6c 6c 6f", "pages in PBLEs from", "ORDSIZE 255", "room for 128 bytes")
	var list []serve.QP
	c.has(c.ask(&list, "qp"), "QP TYPE STATE PD SEND CQ RECV CQ MTU DEST QP")
	if len(list) == 0 || list[len(list)-1].Context != nil {
		t.Errorf("%d QPs", len(list))
	}

	// What flushing it leaves in the CQs.
	_, err = q.Modify(minidriver.IRDMA_QP_STATE_ERROR)
	must(t, err)
	_, err = q.Flush()
	must(t, err)
	var cqs []serve.CQ
	text = c.ask(&cqs, "cq", fmt.Sprint(rcq.ID))
	if len(cqs) != 1 || cqs[0].ID != rcq.ID || cqs[0].Unread != 1 || len(cqs[0].Entries) != 1 || !slices.Equal(cqs[0].Receivers, []uint32{q.ID}) || cqs[0].HeadNow == nil {
		t.Errorf("%+v", cqs)
	}
	c.has(text, fmt.Sprintf("QP %d, receive WQE at quantum 0: IRDMA_FLUSH_MAJOR_ERR", q.ID), "events CEQ 0", "ENCEQEMASK", fmt.Sprintf("receive queues of QPs %d", q.ID))

	var state serve.CQP
	c.has(c.ask(&state, "cqp"), "2048 WQEs at", "FLUSH_WQES", "flushes send and receive queue of QP")
	if !state.Live || len(state.Last) != 8 || state.Last[0].WQE.Name != "IRDMA_CQP_OP_FLUSH_WQES" {
		t.Errorf("%+v", state)
	}
	var eqs serve.EQs
	c.has(c.ask(&eqs, "eq"), "CEQ 0", "AEQ")
	if eqs.AEQ == nil || len(eqs.CEQs) == 0 {
		t.Errorf("%+v", eqs)
	}
	var nodes []serve.Node
	c.ask(&nodes, "ws")
	if len(nodes) != 3 || !nodes[2].Leaf || !slices.Contains(nodes[2].QPs, q.ID) {
		t.Errorf("%+v", nodes)
	}
	must(t, c.r.SetARP(7, [6]byte{2, 3, 4, 5, 6, 7}))
	_, err = c.r.Exec(minidriver.IRDMA_CQP_OP_NOP, minidriver.WQE{}) // commands are executed in order
	must(t, err)
	var arps []serve.ARP
	c.has(c.ask(&arps, "arp", "7"), "7 02:03:04:05:06:07 false")
	var tables serve.Tables
	c.has(c.ask(&tables, "tables"), "accepted ports none", "push pages none", "statistics instances none")
	instance, err := c.r.AllocStats()
	must(t, err)
	c.has(c.ask(&tables, "tables"), fmt.Sprintf("statistics instances %d", instance))
	if len(tables.Instances) != 1 || uint32(tables.Instances[0]) != instance {
		t.Errorf("%+v", tables)
	}
	for _, what := range []string{"ah", "mcast", "regs", "mr"} {
		var any []any
		c.ask(&any, what)
	}
	if _, err := serve.Ask(t.Context(), c.control, serve.Request{What: "cq", Name: "2000"}); err == nil || !strings.Contains(err.Error(), "no CQ 2000") {
		t.Errorf("CQ 2000: %v", err)
	}
}

// What a queue pair has in work lies before what the device will look at next.
func TestExplainWork(t *testing.T) {
	c := newCard(t, "default", minidriver.Linux73())
	cq, err := c.r.CreateCQ(64, 0, false)
	must(t, err)
	q, err := c.r.NewQP(minidriver.QPConfig{Send: cq, Recv: cq, PD: 9, SendWRs: 16, RecvWRs: 16, SendSGEs: 1, RecvSGEs: 1, Inline: 64, User: true})
	must(t, err)
	q.Attr.Retries = 7
	const nobody = 900
	must(t, q.Connect(nobody))
	for i := range 3 {
		must(t, q.PostSend(minidriver.SendWR{Op: minidriver.IRDMA_OP_TYPE_SEND, Signalled: true, Inline: []byte(strings.Repeat("x", 9+i))}))
	}
	var qps []serve.QP
	for len(qps) == 0 || qps[0].State == "RTS" && (qps[0].SQ.Pending != 3 || qps[0].SQ.Next != 6) {
		c.ask(&qps, "qp", fmt.Sprint(q.ID)) // until the engine has come to them; nobody answers for 3 s
	}
	p := &qps[0]
	for i, w := range p.SQ.WQEs {
		if w.Index != uint32(2*i) || !w.InWork || !slices.Contains(w.WQE.Notes, fmt.Sprintf("%d bytes inline: %s", 9+i, strings.TrimSpace(strings.Repeat("78 ", 9+i)))) {
			t.Errorf("WQE %d: %+v", i, w)
		}
	}
	if p.State != "RTS" || len(p.SQ.WQEs) != 3 || p.SendPSN != p.UnackedPSN+3 || p.DestQP != nobody || !p.Loopback {
		t.Errorf("%+v", p)
	}
}

// Windows with their regions, and STags without memory yet.
func TestExplainWindows(t *testing.T) {
	c := newCard(t, "paged-pbles", minidriver.Linux61())
	rnd := rand.New(rand.NewPCG(3, 4))
	cq, err := c.r.CreateCQ(64, 0, false)
	must(t, err)
	q, err := c.r.NewQP(minidriver.QPConfig{Send: cq, Recv: cq, PD: 9, SendWRs: 16, RecvWRs: 16, SendSGEs: 1, RecvSGEs: 1, User: true})
	must(t, err)
	must(t, q.Connect(q.ID))
	region, err := c.g.NewRegion(rnd, 0x7F00_0000_0800, 3*4096, minidriver.Page4K)
	must(t, err)
	parent, err := c.r.RegMR(9, region, minidriver.Everything|minidriver.BindWindow, minidriver.MROptions{Rand: rnd})
	must(t, err)
	fast, err := c.r.AllocSTag(9, 8)
	must(t, err)
	window, err := c.r.AllocMW(9, true, rnd)
	must(t, err)
	bound := minidriver.NextKey(window.STag)
	must(t, q.PostSend(q.BindWR(1, minidriver.Bind{MW: window, STag: bound, Parent: parent, Addr: 0x7F00_0000_1000, Len: 256, Access: minidriver.RemoteRead})))
	must(t, cq.PollFor(1, func(w minidriver.WC) error {
		if w.Status != minidriver.Success {
			return fmt.Errorf("the bind ends with %v", w.Status)
		}
		return nil
	}))

	name := func(stag uint32) string { return fmt.Sprintf("0x%08x", stag) }
	var mrs []serve.MR
	text := c.ask(&mrs, "mr")
	if len(mrs) != 3 {
		t.Fatalf("%d STags\n%s", len(mrs), text)
	}
	byTag := map[uint32]serve.MR{}
	for _, m := range mrs {
		byTag[m.STag] = m
	}
	if w := byTag[bound]; w.Kind != "MW type 1" || w.Parent != parent.STag || w.Length != 256 || w.Start != 0x7F00_0000_1000 {
		t.Errorf("window %+v", w)
	}
	if p := byTag[parent.STag]; !slices.Equal(p.Bound, []uint32{bound}) {
		t.Errorf("region %+v", p)
	}
	c.has(c.ask(&mrs, "mr", name(bound)), "MW type 1, VALID, by", "bound to region "+name(parent.STag))
	c.has(c.ask(&mrs, "mr", name(fast.STag)), "MR, ALLOCATED, by ALLOC_STAG", "room 0x8000 bytes for fast registrations")
	c.has(c.ask(&mrs, "mr", name(parent.STag)), "windows "+name(bound))
	var w serve.Walk
	c.has(c.ask(&w, "mr", name(bound), "0x7f0000001000"), "the window's region", "page PBLE")
	if w.Parent == nil || w.Parent.STag != parent.STag || len(w.Pieces) != 1 {
		t.Errorf("walk through a window: %+v", w)
	}
}
