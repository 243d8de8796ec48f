// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vrnic/vrnic/devmodel/frame"
	"github.com/vrnic/vrnic/devmodel/roce"
)

const mtu = 1024

// across sends packet k of a run over the wire and gives the run it is there.
func across(t *testing.T, r *roce.Run, k uint32) (roce.Run, Packet) {
	t.Helper()
	p := Packet{PKey: 0xFFFF, DestQP: 9}
	p.FromRun(r, k)
	f := encode(&p, &v4, int(r.PacketBytes(k)))
	i := frame.Parse(f)
	var q Packet
	if v := q.Parse(f, &i); v != OK {
		t.Fatalf("verdict %v", v)
	}
	var out roce.Run
	if !q.Run(&out, mtu) {
		t.Fatalf("%s is no run", Name(q.Opcode))
	}
	return out, q
}

// What a run of n packets says, n runs of one packet say on the other side.
func TestRunsAcross(t *testing.T) {
	for name, c := range map[string]struct {
		run     roce.Run
		opcodes []uint8
	}{
		"send only":           {roce.Run{Op: roce.Send, First: true, Last: true, Bytes: 100, Solicited: true}, []uint8{SendOnly}},
		"empty send":          {roce.Run{Op: roce.Send, First: true, Last: true}, []uint8{SendOnly}},
		"send":                {roce.Run{Op: roce.Send, First: true, Last: true, Bytes: 2*mtu + 1, AckReq: true}, []uint8{SendFirst, SendMiddle, SendLast}},
		"send imm":            {roce.Run{Op: roce.Send, First: true, Last: true, Bytes: 2 * mtu, HasImm: true, Imm: 7, Solicited: true}, []uint8{SendFirst, SendLastImm}},
		"send only imm":       {roce.Run{Op: roce.Send, First: true, Last: true, Bytes: 4, HasImm: true, Imm: 7}, []uint8{SendOnlyImm}},
		"send inv":            {roce.Run{Op: roce.Send, First: true, Last: true, Bytes: 2 * mtu, HasInv: true, Inv: 7}, []uint8{SendFirst, SendLastInv}},
		"send only inv":       {roce.Run{Op: roce.Send, First: true, Last: true, Bytes: 4, HasInv: true, Inv: 7}, []uint8{SendOnlyInv}},
		"piece of a send":     {roce.Run{Op: roce.Send, Bytes: 3 * mtu, AckReq: true}, []uint8{SendMiddle, SendMiddle, SendMiddle}},
		"write":               {roce.Run{Op: roce.Write, First: true, Last: true, Bytes: 3 * mtu, VA: 1 << 40, Key: 5, DMALen: 3 * mtu}, []uint8{WriteFirst, WriteMiddle, WriteLast}},
		"write only":          {roce.Run{Op: roce.Write, First: true, Last: true, Bytes: 1, VA: 3, Key: 5, DMALen: 1, AckReq: true}, []uint8{WriteOnly}},
		"write imm":           {roce.Run{Op: roce.Write, First: true, Last: true, Bytes: mtu + 1, VA: 3, Key: 5, DMALen: mtu + 1, HasImm: true, Imm: 3, Solicited: true}, []uint8{WriteFirst, WriteLastImm}},
		"write only imm":      {roce.Run{Op: roce.Write, First: true, Last: true, VA: 3, Key: 5, HasImm: true, Imm: 3}, []uint8{WriteOnlyImm}},
		"end of a write":      {roce.Run{Op: roce.Write, Last: true, Bytes: mtu + 9}, []uint8{WriteMiddle, WriteLast}},
		"read request":        {roce.Run{Op: roce.ReadRequest, First: true, Last: true, AckReq: true, VA: 8, Key: 4, DMALen: 1 << 31}, []uint8{ReadRequest}},
		"responses":           {roce.Run{Op: roce.ReadResponse, First: true, Last: true, Bytes: 2*mtu + 5, Syndrome: 0x1F, MSN: 4}, []uint8{ReadRespFirst, ReadRespMiddle, ReadRespLast}},
		"first responses":     {roce.Run{Op: roce.ReadResponse, First: true, Bytes: 2 * mtu, Syndrome: 0x1F, MSN: 4}, []uint8{ReadRespFirst, ReadRespMiddle}},
		"empty response":      {roce.Run{Op: roce.ReadResponse, First: true, Last: true, Syndrome: 0x1F, MSN: 4}, []uint8{ReadRespOnly}},
		"ACK":                 {roce.Run{Op: roce.Acknowledge, First: true, Last: true, Syndrome: 0x1F, MSN: 4}, []uint8{Acknowledge}},
		"RNR NAK":             {roce.Run{Op: roce.Acknowledge, First: true, Last: true, Syndrome: 0x2C, MSN: 4}, []uint8{Acknowledge}},
		"beyond the last PSN": {roce.Run{Op: roce.Send, First: true, Last: true, Bytes: 2 * mtu, PSN: 1<<24 - 1}, []uint8{SendFirst, SendLast}},
	} {
		t.Run(name, func(t *testing.T) {
			r := c.run
			r.N, r.Size = uint32(len(c.opcodes)), mtu
			for k := range r.N {
				first, last := r.First && k == 0, r.Last && k+1 == r.N
				got, p := across(t, &r, k)
				if p.Opcode != c.opcodes[k] {
					t.Errorf("packet %d is %s, want %s", k, Name(p.Opcode), Name(c.opcodes[k]))
				}
				want := roce.Run{Op: r.Op, First: first, Last: last, PSN: (r.PSN + k) & psnMask, N: 1, Size: mtu, Bytes: r.PacketBytes(k)}
				want.AckReq = r.AckReq && k+1 == r.N
				if last {
					want.Solicited, want.HasImm, want.HasInv, want.Imm, want.Inv = r.Solicited, r.HasImm, r.HasInv, r.Imm, r.Inv
				}
				if first && (r.Op == roce.Write || r.Op == roce.ReadRequest) {
					want.VA, want.Key, want.DMALen = r.VA, r.Key, r.DMALen
				}
				if r.Op == roce.Acknowledge || r.Op == roce.ReadResponse && (first || last) {
					want.Syndrome, want.MSN = r.Syndrome, r.MSN
				}
				if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(roce.SGL{})); d != "" {
					t.Errorf("packet %d: %s", k, d)
				}
			}
		})
	}
}

func TestNoRunOfOtherServices(t *testing.T) {
	for _, op := range []uint8{UDSendOnly, UDSendOnlyImm, CNP, AtomicAck, 0x15, 0x24} {
		if p := (Packet{Opcode: op}); p.Run(new(roce.Run), mtu) {
			t.Errorf("%s is a run", Name(op))
		}
	}
}

// host is as much of a queue pair as a responder needs to refuse.
type host struct {
	roce.Host
	out  []roce.Run
	fail roce.Code
}

func (h *host) Now() time.Duration                        { return 0 }
func (h *host) Transmit(r *roce.Run) bool                 { h.out = append(h.out, *r); return true }
func (h *host) Fail(c roce.Code, _ roce.Source, _ uint32) { h.fail = c }

// Requests of cards that can more are refused as invalid, where their PSN is
// expected. Before it there never was one.
func TestUnsupportedRequests(t *testing.T) {
	for _, op := range []uint8{CompareSwap, FetchAdd, Flush, AtomicWrite} {
		t.Run(Name(op), func(t *testing.T) {
			h := &host{}
			e := roce.New(h, new(roce.Store))
			e.Lend(new(roce.Scratch))
			e.StartResponder(roce.ResponderConfig{PSN: 5, MTU: mtu, Reads: 1}, false)
			for _, psn := range []uint32{6, 4, 5} {
				p := Packet{Opcode: op, PSN: psn}
				f := encode(&p, &v4, 8)
				q, v := parse(f)
				var r roce.Run
				if v != OK || !q.Run(&r, mtu) {
					t.Fatalf("verdict %v", v)
				}
				e.Handle(&r)
				e.Progress()
			}
			var got []string
			for _, r := range h.out {
				got = append(got, fmt.Sprintf("%#x %d", r.Syndrome, r.PSN))
			}
			if d := cmp.Diff([]string{"0x60 5", "0x61 5"}, got); d != "" || h.fail != roce.InvalidRequest {
				t.Errorf("failed with %#x; %s", h.fail, d)
			}
		})
	}
}
