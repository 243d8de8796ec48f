// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vrnic/vrnic/serve"
)

// explained are what a person may ask of a card.
var explained = []string{"regs", "hmc", "qp", "cq", "mr", "cqp", "eq", "ah", "arp", "mcast", "ws", "stats", "tables", "findings", "ports"}

// FuzzExplain asks a card what it likes that has objects of all kinds, and writes
// what it likes into their queues. Whatever it is, there is an answer.
//
// The input is a list of questions, each of them:
//
//	kind (1)     its lower half: of what, 15 is no question; bits 4 and 5: name and
//	             address are text, not numbers; bit 6: no name; bit 7: no address
//	name         a number (4), or the length of a text (1) and the text
//	address      a number (8), or the same
//	length (4), bytes (4)
//	of kind 15: which queue (1), where in it (2), and 32 bytes for there
func FuzzExplain(f *testing.F) {
	ctx, sockets := serveForFuzz(f, 1)
	for kind := range explained {
		for _, rest := range [][]byte{{0x40, 0xc0}, {0, 0, 0, 0, 1}, {0, 0, 0, 1, 0}, {0xff, 0xff, 0xff, 0xff}} {
			if rest[0] == 0x40 {
				f.Add([]byte{byte(kind) | 0xc0})
				continue
			}
			f.Add(slices.Concat([]byte{byte(kind)}, rest[:4], make([]byte, 16)))
			f.Add(slices.Concat([]byte{byte(kind) | 0x80}, rest[:4], make([]byte, 8)))
		}
	}
	for k := range byte(40) {
		f.Add(slices.Concat([]byte{15, k, 0, 4 * (k & 1)}, []byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), []byte{2, 0, 0, 0, k}))
	}
	f.Add([]byte("\x14\x07pattern\x00\x00\x7f\xee\x00\x00\x01\x00\x00\x00\xff\xff\x00\x00\xff\xff"))
	f.Add([]byte("\x30\x0bPFPE_CCQPLOW\x020x\x00\x00\x00\x00\x00\x00\x00\x00"))
	var leave []func()
	var queues [][]byte
	f.Cleanup(func() {
		for _, end := range leave {
			end()
		}
	})
	f.Fuzz(func(t *testing.T, input []byte) {
		if leave == nil {
			g, err := NewGuest(guestMiB)
			must(t, err)
			fn, err := attachForFuzz(ctx, sockets[0], g)
			must(t, err)
			leave = []func(){fn.Detach, func() { g.Close() }}
			m, err := bringUp(fn, Linux73(), Options{})
			must(t, err)
			queues = everyObject(t, m)
		}
		in := fuzzInput(input)
		for n := 0; len(in) > 0 && n < 16; n++ {
			if in[0]&15 == 15 {
				in.take(1)
				b := queues[int(in.take(1))%len(queues)]
				b = b[int(in.take(2))*8%(len(b)-32):]
				for k := range 4 {
					le.PutUint64(b[8*k:], in.take(8))
				}
				continue
			}
			q := question(&in)
			r, err := serve.Ask(ctx, filepath.Join(filepath.Dir(sockets[0]), "ctl"), q)
			if err != nil && r.Error == "" {
				t.Fatalf("%+v: %v", q, err)
			}
			if r.Error == "" && r.Text == "" || len(r.Data) > 0 && !json.Valid(r.Data) {
				t.Errorf("%+v is answered by %+v", q, r)
			}
		}
	})
}

func question(in *fuzzInput) (q serve.Request) {
	text := func() string {
		n := min(int(in.take(1)), len(*in))
		s := string((*in)[:n])
		*in = (*in)[n:]
		return strings.ToValidUTF8(s, "?")
	}
	kind := in.take(1)
	q.What = explained[kind&15]
	switch {
	case kind>>6&1 != 0:
	case kind>>4&1 != 0:
		q.Name = text()
	default:
		q.Name = fmt.Sprint(in.take(4))
	}
	switch {
	case kind>>7&1 != 0:
	case kind>>5&1 != 0:
		q.Address, q.Length = text(), text()
	default:
		q.Address, q.Length = fmt.Sprintf("%#x", in.take(8)), fmt.Sprint(in.take(4))
	}
	q.Bytes = uint32(in.take(4))
	return q
}

// everyObject makes objects of all kinds, some of them with work, some broken. It
// returns the memory of their queues.
func everyObject(t *testing.T, m *machine) (queues [][]byte) {
	r, rnd := m.r, rand.New(rand.NewPCG(31, 1))
	a, _ := newPair(t, r, rnd, pairOptions{attr: func(a *QPAttr) { a.Retries, a.RNRTries = 7, 7 }})
	must(t, a.qp.PostRecv(RecvWR{ID: 1, SGEs: []SGE{a.sge(0, 100)}}))
	must(t, a.qp.PostSend(a.send(1, 0, 3000))) // no buffer is there
	c, _ := newPair(t, r, rnd, pairOptions{user: true})
	bad := c.send(1, 0, 10)
	bad.SGEs[0].LKey ^= 1
	must(t, c.qp.PostSend(bad))
	faulted(t, c.qp, IRDMA_AE_AMP_BAD_STAG_KEY)
	u := newDatagramSide(t, r, rnd, true)
	must(t, u.qp.PostRecv(RecvWR{ID: 1, SGEs: []SGE{u.sge(0, 2000)}}))
	must(t, r.NewGroup(r.AddressOfGroup(1, pairPD, true)).Attach(u.qp))
	newHandle(t, r, r.AddressOf(r, pairPD, true))
	for _, k := range regionKinds()[:3] {
		_, err := newFlat(r, rnd, k, pairPD, Everything)
		must(t, err)
	}
	_, err := r.AllocSTag(pairPD, 16)
	must(t, err)
	_, err = r.RegAll(pairPD, LocalRead|LocalWrite)
	must(t, err)
	for _, q := range []*QP{a.qp, c.qp, u.qp, r.GSI()} {
		for _, b := range q.mem.bufs {
			queues = append(queues, b.Bytes())
		}
		queues = append(queues, q.ctx.Bytes(), q.Cfg.Send.mem[0].Bytes(), q.Cfg.Send.shadow.Bytes())
	}
	return queues
}
