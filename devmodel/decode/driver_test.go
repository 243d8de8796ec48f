// SPDX-License-Identifier: Apache-2.0

package decode_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vrnic/vrnic/devmodel/decode"
	"github.com/vrnic/vrnic/devmodel/trace"
	"github.com/vrnic/vrnic/guest/minidriver"
	"github.com/vrnic/vrnic/serve"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// boot serves a card and brings both drivers up on it; end ends both and
// returns the events.
func boot(t *testing.T, k minidriver.Kernel) (r *minidriver.IRDMA, g *minidriver.Guest, control string, end func() []byte) {
	t.Helper()
	dir := t.TempDir()
	var events bytes.Buffer
	o := serve.Options{Sockets: []string{filepath.Join(dir, "s")}, Control: filepath.Join(dir, "c"),
		Events: func(context.Context) (io.Writer, error) { return &events, nil }}
	h, err := serve.Start(t.Context(), o)
	must(t, err)
	t.Cleanup(h.Close)
	const size = 64
	g, err = minidriver.NewGuest(size)
	must(t, err)
	t.Cleanup(func() { g.Close() })
	f, err := minidriver.Attach(t.Context(), o.Sockets[0], g)
	must(t, err)
	t.Cleanup(f.Detach)
	ice, err := minidriver.Probe(f, k, minidriver.Options{})
	must(t, err)
	r, err = minidriver.ProbeRDMA(ice, minidriver.Options{})
	must(t, err)
	must(t, ice.Open())
	return r, g, o.Control, func() []byte {
		must(t, r.Remove())
		must(t, ice.Remove())
		f.Detach()
		h.Close()
		return events.Bytes()
	}
}

// results decodes words and wants one structure without unknown bits.
func results(t *testing.T, format string, words []uint64) decode.Result {
	t.Helper()
	f, ok := decode.Lookup(format)
	if !ok {
		t.Fatalf("no format %s", format)
	}
	r, err := f.Decode([]decode.Run{{At: 0, Words: words}})
	if err != nil || len(r) != 1 {
		t.Fatalf("%s %x: %d results, %v", format, words, len(r), err)
	}
	for _, w := range r[0].Words {
		if w.Reserved != 0 {
			t.Errorf("bits of a correct driver are said to belong to no field:\n%s", r[0].Text())
		}
	}
	return r[0]
}

// values are a structure's fields by name.
func values(r *decode.Result) map[string]uint64 {
	m := map[string]uint64{}
	for _, w := range r.Words {
		for _, f := range w.Fields {
			m[f.Name] = uint64(f.Value)
		}
	}
	return m
}

// What a driver commands is what is decoded: every control WQE from probe to
// remove has its name and no bit that nobody knows, and those of a region say
// what was asked for.
func TestControlWQEs(t *testing.T) {
	for _, k := range minidriver.Kernels() {
		t.Run(k.Name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(1, 2))
			r, g, _, end := boot(t, k)
			cq, err := r.CreateCQ(300, 0, true)
			must(t, err)
			q, err := r.NewQP(minidriver.QPConfig{Send: cq, Recv: cq, PD: 9, SendWRs: 16, RecvWRs: 16, SendSGEs: 1, RecvSGEs: 1, User: true})
			must(t, err)
			const va, size, pd = 0x7F00_1234_5678, 3*4096 + 5, 77
			region, err := g.NewRegion(rnd, va, size, minidriver.Page4K)
			must(t, err)
			m, err := r.RegMR(pd, region, minidriver.Everything, minidriver.MROptions{Rand: rnd})
			must(t, err)
			stag := m.STag
			must(t, m.Dereg())
			region.Free()
			fast, err := r.AllocSTag(pd, 20)
			must(t, err)
			must(t, fast.Dereg())
			w, err := r.AllocMW(pd, true, rnd)
			must(t, err)
			must(t, w.Dealloc())
			must(t, r.SetARP(5, [6]byte{2, 0, 0, 0, 0, 9}))
			_, err = q.Modify(minidriver.IRDMA_QP_STATE_ERROR)
			must(t, err)
			must(t, q.Destroy())
			must(t, cq.Destroy())

			seen := map[string][]decode.Result{}
			for line := range bytes.Lines(end()) {
				var l trace.Line
				must(t, json.Unmarshal(line, &l))
				if l.Type != "cqp.Op" {
					continue
				}
				var op struct {
					Name string
					WQE  []json.RawMessage
				}
				must(t, json.Unmarshal(l.Fields, &op))
				words := make([]uint64, len(op.WQE))
				for i, w := range op.WQE { // large ones are strings
					words[i], err = strconv.ParseUint(strings.Trim(string(w), `"`), 0, 64)
					must(t, err)
				}
				res := results(t, "cqp", words)
				if res.Name != op.Name {
					t.Errorf("%s is decoded as %s", op.Name, res.Name)
				}
				seen[strings.TrimPrefix(op.Name, "IRDMA_CQP_OP_")] = append(seen[strings.TrimPrefix(op.Name, "IRDMA_CQP_OP_")], res)
			}
			for _, name := range []string{"CREATE_QP", "MODIFY_QP", "DESTROY_QP", "CREATE_CQ", "DESTROY_CQ", "ALLOC_STAG", "REG_MR", "DEALLOC_STAG", "MANAGE_ARP",
				"QUERY_RDMA_FEATURES", "CREATE_CEQ", "DESTROY_CEQ", "CREATE_AEQ", "DESTROY_AEQ", "UPDATE_PE_SDS", "QUERY_FPM_VAL", "COMMIT_FPM_VAL", "FLUSH_WQES",
				"SHMC_PAGES_ALLOCATED", "WORK_SCHED_NODE"} {
				if len(seen[name]) == 0 {
					t.Errorf("no %s was seen", name)
				}
			}
			reg := seen["REG_MR"][0]
			v := values(&reg)
			for name, want := range map[string]uint64{"IRDMA_CQPSQ_STAG_VA_FBO": va, "IRDMA_CQPSQ_STAG_STAGLEN": size, "IRDMA_CQPSQ_STAG_PDID": pd, "IRDMA_CQPSQ_STAG_IDX": uint64(stag >> 8),
				"IRDMA_CQPSQ_STAG_KEY": uint64(stag & 0xFF), "IRDMA_CQPSQ_STAG_ARIGHTS": 15, "IRDMA_CQPSQ_STAG_LPBLSIZE": 1, "IRDMA_CQPSQ_STAG_REMACCENABLED": 1} {
				if v[name] != want {
					t.Errorf("%s = %#x, want %#x", name, v[name], want)
				}
			}
			if want := fmt.Sprintf("region with STag 0x%08x, PD %d", stag, pd); !slices.Contains(reg.Notes, want) {
				t.Errorf("%q, want %q", reg.Notes, want)
			}
			create := seen["CREATE_QP"][len(seen["CREATE_QP"])-1]
			if v := values(&create); v["IRDMA_CQPSQ_QP_QPID"] != uint64(q.ID) || v["IRDMA_CQPSQ_QP_QPTYPE"] != 3 || v["IRDMA_CQPSQ_QP_VQ"] != 1 {
				t.Errorf("CREATE_QP: %v", v)
			}
			window := seen["ALLOC_STAG"][1]
			if v := values(&window); v["IRDMA_CQPSQ_STAG_MR"] != 0 || v["IRDMA_CQPSQ_STAG_MWTYPE"] != 1 || v["IRDMA_CQPSQ_STAG_PDID"] != pd {
				t.Errorf("ALLOC_STAG of a window: %v", v)
			}
		})
	}
}

// Work requests, found in the ring of a queue pair that does not take them.
func TestPostedWQEs(t *testing.T) {
	kernels := minidriver.Kernels()
	r, g, control, _ := boot(t, kernels[0])
	rnd := rand.New(rand.NewPCG(1, 2))
	cq, err := r.CreateCQ(300, 0, false)
	must(t, err)
	q, err := r.NewQP(minidriver.QPConfig{Send: cq, Recv: cq, PD: 9, SendWRs: 64, RecvWRs: 16, SendSGEs: 13, RecvSGEs: 1, Inline: 101, User: true})
	must(t, err)
	region, err := g.NewRegion(rnd, 0x7F00_0000_0800, 3*4096, minidriver.Page4K)
	must(t, err)
	parent, err := r.RegMR(9, region, minidriver.Everything, minidriver.MROptions{Rand: rnd})
	must(t, err)
	fast, err := r.AllocSTag(9, 8)
	must(t, err)
	window, err := r.AllocMW(9, true, rnd)
	must(t, err)
	sge := func(n int) (out []minidriver.SGE) {
		for i := range n {
			out = append(out, minidriver.SGE{Addr: 0x1000 * uint64(i+1), Len: 10, LKey: 0x500})
		}
		return out
	}
	long := []byte(strings.Repeat("0123456789", 10))
	posted := []struct {
		wr   minidriver.SendWR
		name string
		want map[string]uint64
		note string
	}{
		{minidriver.SendWR{Op: minidriver.IRDMA_OP_TYPE_RDMA_WRITE, SGEs: sge(3), RemoteAddr: 0x7777, RKey: 0xABCDEF01, Signalled: true}, "RDMA_WRITE",
			map[string]uint64{"IRDMAQPSQ_REMTO": 0x7777, "IRDMAQPSQ_REMSTAG": 0xABCDEF01, "IRDMAQPSQ_SIGCOMPL": 1, "IRDMAQPSQ_ADDFRAGCNT": 2}, "message of 30 bytes"},
		{minidriver.SendWR{Op: minidriver.IRDMA_OP_TYPE_RDMA_READ, SGEs: sge(2), RemoteAddr: 0x8888, RKey: 0xABCDEF02, ReadFence: true}, "RDMA_READ",
			map[string]uint64{"IRDMAQPSQ_REMTO": 0x8888, "IRDMAQPSQ_READFENCE": 1, "IRDMAQPSQ_SIGCOMPL": 0}, "message of 20 bytes"},
		{minidriver.SendWR{Op: minidriver.IRDMA_OP_TYPE_SEND, SGEs: sge(13), LocalFence: true}, "SEND", map[string]uint64{"IRDMAQPSQ_LOCALFENCE": 1}, "message of 130 bytes"},
		{minidriver.SendWR{Op: minidriver.IRDMA_OP_TYPE_SEND, SGEs: sge(1), HasImm: true, Imm: 0x11223344}, "SEND", map[string]uint64{"IRDMAQPSQ_IMMDATA": 0x11223344, "IRDMAQPSQ_IMMDATAFLAG": 1}, "message of 10 bytes"},
		{minidriver.SendWR{Op: minidriver.IRDMA_OP_TYPE_SEND_INV, Inline: long, RKey: 0x12345678}, "SEND_INV",
			map[string]uint64{"IRDMAQPSQ_REMSTAGINV": 0x12345678, "IRDMAQPSQ_INLINEDATALEN": 100}, fmt.Sprintf("100 bytes inline: % x", long)},
		{q.LocalInvWR(0, 0x4321), "INV_STAG", map[string]uint64{"IRDMAQPSQ_LOCSTAG": 0x4321}, ""},
		{q.BindWR(0, minidriver.Bind{MW: window, STag: window.STag + 1, Parent: parent, Addr: 0x7F00_0000_0900, Len: 256, Access: minidriver.RemoteRead}), "BIND_MW",
			map[string]uint64{"IRDMAQPSQ_PARENTMRSTAG": uint64(parent.STag), "IRDMAQPSQ_MWSTAG": uint64(window.STag + 1), "IRDMAQPSQ_MWLEN": 256, "IRDMAQPSQ_STAGRIGHTS": 4, "IRDMAQPSQ_MEMWINDOWTYPE": 1, "IRDMAQPSQ_VABASEDTO": 1}, ""},
		{q.FastRegWR(0, minidriver.FastReg{MR: fast, Key: 0x5A, Region: region, Access: minidriver.LocalRead}), "FAST_REG_NSMR",
			map[string]uint64{"IRDMAQPSQ_BASEVA_TO_FBO": 0x7F00_0000_0800, "IRDMAQPSQ_STAGLEN": 3 * 4096, "IRDMAQPSQ_STAGKEY": 0x5A, "IRDMAQPSQ_STAGINDEX": uint64(fast.STag >> 8), "IRDMAQPSQ_LPBLSIZE": 1, "IRDMAQPSQ_STAGRIGHTS": 1}, ""},
	}
	for _, p := range posted {
		must(t, q.PostSend(p.wr))
	}
	resp, err := serve.Ask(t.Context(), control, serve.Request{What: "qp", Name: fmt.Sprint(q.ID)})
	must(t, err)
	var qps []serve.QP
	must(t, json.Unmarshal(resp.Data, &qps))
	var found []decode.Result
	for _, w := range qps[0].SQ.WQEs {
		if w.WQE.Name != "IRDMA_OP_TYPE_NOP" { // fills gaps
			found = append(found, w.WQE)
		}
		for _, word := range w.WQE.Words {
			if word.Reserved != 0 {
				t.Errorf("%s: bits %#x of word %d are said to belong to no field", w.WQE.Name, word.Reserved, word.Index)
			}
		}
	}
	if len(found) != len(posted) {
		t.Fatalf("%d WQEs found, %d posted\n%s", len(found), len(posted), resp.Text)
	}
	for i, p := range posted {
		v := values(&found[i])
		if found[i].Name != "IRDMA_OP_TYPE_"+p.name {
			t.Errorf("WQE %d is %s, want %s", i, found[i].Name, p.name)
		}
		for name, want := range p.want {
			if v[name] != want {
				t.Errorf("%s: %s = %#x, want %#x", p.name, name, v[name], want)
			}
		}
		if p.note != "" && !slices.Contains(found[i].Notes, p.note) {
			t.Errorf("%s: %q, want %q", p.name, found[i].Notes, p.note)
		}
	}
}
