// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vrnic/vrnic/guest/minidriver"
	"github.com/vrnic/vrnic/serve"
)

// pairOf boots the drivers on two cards of a process.
func pairOf(t *testing.T, n serve.Network) (cards [2]*card) {
	t.Helper()
	dir := t.TempDir()
	o := serve.Options{Sockets: []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}, Control: filepath.Join(dir, "c"), Network: n}
	h, err := serve.Start(t.Context(), o)
	must(t, err)
	t.Cleanup(h.Close)
	for k, socket := range o.Sockets {
		const size = 64
		g, err := minidriver.NewGuest(size)
		must(t, err)
		t.Cleanup(func() { g.Close() })
		f, err := minidriver.Attach(t.Context(), socket, g)
		must(t, err)
		t.Cleanup(f.Detach)
		ice, err := minidriver.Probe(f, minidriver.Linux73(), minidriver.Options{})
		must(t, err)
		r, err := minidriver.ProbeRDMA(ice, minidriver.Options{})
		must(t, err)
		must(t, ice.Open())
		cards[k] = &card{t, o.Control, r, g}
	}
	return cards
}

// What explain says of where a QP's packets go, and why they do not arrive.
func TestExplainRoute(t *testing.T) {
	for _, way := range []string{"near", "wire"} {
		t.Run(way, func(t *testing.T) {
			var n serve.Network
			if way == "wire" {
				n.Capture = func(context.Context) (io.Writer, error) { return io.Discard, nil }
			}
			cards := pairOf(t, n)
			c := cards[0] // device 0, whom ask asks
			var qps [2]*minidriver.QP
			var cqs [2]*minidriver.CQ
			for k, c := range cards {
				var err error
				cqs[k], err = c.r.CreateCQ(64, 0, false)
				must(t, err)
				qps[k], err = c.r.CreateQP(cqs[k], cqs[k])
				must(t, err)
				qps[k].Attr.Retries, qps[k].Attr.RNRTries = 7, 7
			}
			a, b := qps[0], qps[1]
			must(t, minidriver.ConnectPair(a, b))
			look := func() (*serve.Route, string) {
				t.Helper()
				var list []serve.QP
				text := c.ask(&list, "qp", fmt.Sprint(a.ID))
				if len(list) != 1 || list[0].Route == nil {
					t.Fatalf("no route in\n%s", text)
				}
				return list[0].Route, text
			}
			mac := fmt.Sprintf("%x", cards[1].r.ICE.MAC)
			r, text := look()
			// The switch has learned no address yet.
			if r.Way != "wire" || strings.ReplaceAll(r.DestMAC, ":", "") != mac || r.Sent != 0 || !r.Link || len(r.Why) != 0 || r.VLANTag != -1 || r.HopLimit != 64 {
				t.Errorf("route %+v", r)
			}
			c.has(text, "path wire, to "+r.DestMAC, "packets 0 sent")

			must(t, b.PostRecv(minidriver.RecvWR{ID: 1}))
			send := minidriver.SendWR{ID: 1, Op: minidriver.IRDMA_OP_TYPE_SEND, Signalled: true}
			must(t, a.PostSend(send))
			must(t, cqs[0].PollFor(1, func(wc minidriver.WC) error {
				if wc.Status != minidriver.Success {
					return fmt.Errorf("completion %+v", wc)
				}
				return nil
			}))
			if r, _ := look(); r.Way != way || r.Sent != 1 || r.Received != 1 || r.Retransmitted != 0 || r.Outstanding != 0 {
				t.Errorf("route after a message %+v", r)
			}
			var stats map[string]uint64
			c.has(c.ask(&stats, "stats"), "OutRdmaSends 1", "TxUDP 1")
			if stats["OutRdmaSends"] != 1 || stats["ip4OutPkts"] != 1 || stats["RxUDP"] != 1 {
				t.Errorf("counters %v", stats)
			}

			// The peer's entry is replaced, then it is gone: the QP has its copy.
			must(t, c.r.SetARP(a.Attr.ARP, [6]byte{2, 9, 9, 9, 9, 9}))
			_, err := c.r.ReadCounters() // behind it
			must(t, err)
			if r, _ := look(); r.Way != way || len(r.Why) != 1 || !strings.Contains(r.Why[0], "02:09:09:09:09:09 now") {
				t.Errorf("with another entry: %+v", r)
			}
			must(t, c.r.DropARP(a.Attr.ARP))
			_, err = c.r.ReadCounters()
			must(t, err)
			if r, _ := look(); r.Way != way || len(r.Why) != 1 || !strings.Contains(r.Why[0], "is gone") {
				t.Errorf("without the entry: %+v", r)
			}

			// Nobody there: requests are sent again, and explain says what it knows.
			must(t, b.Destroy())
			must(t, a.PostSend(send))
			for {
				r, text := look()
				if all := strings.Join(r.Why, "; "); r.Tries > 0 {
					if want := map[string]string{"near": "takes nothing: no such QP", "wire": "nobody answers"}[way]; !strings.Contains(all, want) || r.Outstanding == 0 {
						t.Errorf("%+v\n%s", r, text)
					}
					break
				}
			}
			// And without a link.
			_, err = serve.Ask(t.Context(), c.control, serve.Request{What: "link", Name: "down"})
			must(t, err)
			if r, _ := look(); r.Link || r.Way != "wire" || !strings.Contains(strings.Join(r.Why, "; "), "no link") {
				t.Errorf("without a link: %+v", r)
			}
			// One who never had an entry.
			x, err := c.r.CreateQP(cqs[0], cqs[0])
			must(t, err)
			x.Attr.ARP, x.Attr.DestQP = 99, 5
			must(t, x.ToRTS())
			var list []serve.QP
			c.has(c.ask(&list, "qp", fmt.Sprint(x.ID)), "path nowhere", "did not exist")
			data, err := json.Marshal(list[0].Route)
			must(t, err)
			if !strings.Contains(string(data), `"way":"nowhere"`) {
				t.Errorf("%s", data)
			}
		})
	}
}
