// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vrnic/vrnic/devmodel/decode"
	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/hmc"
)

// narrow fails where text for people is wider than it may be.
func narrow(t *testing.T, what, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\n"); len(line) > width {
			t.Errorf("%s: %d columns: %s", what, len(line), line)
		}
		if strings.TrimRight(line, " ") != line {
			t.Errorf("%s: blanks at the end: %q", what, line)
		}
	}
}

func TestTable(t *testing.T) {
	long := strings.Repeat("x", 40)
	for _, c := range []struct {
		name string
		head []string
		rows [][]string
		want string
	}{
		{"fits", []string{"A", "B"}, [][]string{{"1", "two"}, {"300", ""}}, "A    B\n1    two\n300\n"},
		{"stacked", []string{"A", "B", "C"}, [][]string{{"1", long, long}}, "A  B\n    C\n1  " + long + "\n    " + long + "\n"},
		{"wrapped", []string{"A", "B"}, [][]string{{"1", long + " " + long}}, "A  B\n1  " + long + "\n   " + long + "\n"},
		{"bars", []string{"A"}, [][]string{{long + "|" + long}}, "A\n" + long + "|\n" + long + "\n"},
		{"nowhere to break", []string{"A"}, [][]string{{strings.Repeat("y", 100)}}, "A\n" + strings.Repeat("y", 80) + "\n" + strings.Repeat("y", 20) + "\n"},
	} {
		got := table(c.head, c.rows)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
		narrow(t, c.name, got)
	}
}

// The largest values there can be still make lines that fit a mail.
func TestWidth(t *testing.T) {
	const most64, most32 = math.MaxUint64, math.MaxUint32
	ones := [32]uint64{}
	for i := range ones {
		ones[i] = most64
	}
	m := MR{STag: most32, Index: 1<<24 - 1, Kind: "MW type 2", State: "ALLOCATED", By: "IRDMA_OP_TYPE_FAST_REG_NSMR, WQE 32767 of QP 262143", PD: 262143,
		Start: most64, Length: 1<<46 - 1, VABased: true, Level: "contiguous", PageSize: 1 << 30, Pages: 1 << 34, Base: most64, First: 1<<28 - 1, PBLEs: 1 << 28,
		Rights: "LOCAL_READ|LOCAL_WRITE|REMOTE_READ|REMOTE_WRITE|BIND_WINDOW", Remote: true, Shared: true, Limit: most64, Parent: most32, QP: 262143,
		Bound: []uint32{most32, most32, most32, most32, most32, most32, most32, most32, most32, most32}}
	regions := []MR{}
	for _, kind := range []string{"MR", "MW type 1"} {
		for _, state := range []string{"VALID", "ALLOCATED"} {
			for _, level := range []string{"contiguous", "flat", "two-level"} {
				n := m
				n.Kind, n.State, n.Level = kind, state, level
				regions = append(regions, n)
				narrow(t, "mr STAG", n.text())
			}
		}
	}
	narrow(t, "mr", mrTable(regions))
	w := Walk{MR: &m, Parent: &m, TO: most64 - 1<<20, Length: 1 << 20}
	for i := range uint32(600) {
		p := PBLE{Role: []string{"root", "page"}[i%2], Index: 1<<28 - 700 + i, FPM: 1<<41 + uint64(i)*8, SD: 8191 - i%3, SDAddr: most64 - 0xFFF, Paged: true, PD: 511 - i%5,
			PDAt: most64 - 7, PDVal: most64, PDNow: most64 - 1, Kept: true, Stale: true, At: most64 - 0x1000*uint64(i), Value: most64 - uint64(i)}
		w.PBLEs = append(w.PBLEs, p)
		w.Pieces = append(w.Pieces, Piece{most64 - 2*uint64(i), 1 << 45})
	}
	narrow(t, "mr STAG ADDRESS", w.text())
	narrow(t, "dump", dump(most64-32, make([]byte, 32)))

	sd := hmc.SD{Index: 8191, Type: "paged", Valid: true, Address: most64 - 0xFFF}
	for i := range uint32(512) {
		sd.PDs = append(sd.PDs, hmc.PD{Index: i, Valid: true, Address: most64 - 0xFFF, Kept: true, InUse: most64 - 0xFFF, Stale: i%7 == 0})
	}
	narrow(t, "hmc", sdTable([]hmc.SD{sd}))
	if n := strings.Count(sdTable([]hmc.SD{sd}), "\n"); n > 2*(2+74+74) {
		t.Errorf("512 page descriptors take %d lines", n)
	}
	objects := []hmc.Extent{{Object: "OOISCFFL", Count: most32, Max: most32, Size: 1 << 20, Base: 1 << 41}}
	narrow(t, "hmc", objectTable(objects))
	many := []uint32{}
	for i := range uint32(200) {
		many = append(many, 262143-2*i)
	}
	narrow(t, "hmc INDEX", segmentText(&sd, []Lying{{"OOISCFFL", most32 - 1, most32, 1 << 42}}, &Users{QPs: many, CQs: many, AHs: many, STags: many}))

	ring := Ring{Buf: hmc.Buffer{Virtual: true, First: 1<<28 - 1}, Quanta: 32768, WQE: 256, Next: 32767, Polarity: 1, Error: strings.Repeat("long error ", 20)}
	for _, r := range decoded("wqe", ones[:]) {
		ring.WQEs = append(ring.WQEs, WQE{32767, true, r})
	}
	for _, h := range []uint64{0xC3FF0009FFFFFFFF, 0xE2FFFFC0FFFFFFFF, 0xFFFFFFFFFFFFFFFF} {
		ones[3] = h
		for _, r := range decoded("wqe", ones[:]) {
			ring.WQEs = append(ring.WQEs, WQE{32767, true, r})
		}
	}
	ones[3] = most64
	q := QP{ID: 262143, Type: "RC", State: "TERMINATE", PD: 262143, SendCQ: 1<<25 - 1, RecvCQ: 1<<25 - 1, PathMTU: 16383, DestQP: 1<<24 - 1,
		DestIP: "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", DestMAC: "ff:ff:ff:ff:ff:ff", LocalIP: "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", LocalMAC: "ff:ff:ff:ff:ff:ff",
		Loopback: true, VLAN: 4095, ARPIndex: 65535, QKey: most32, PKey: 65535, QSHandle: 1023, SrcPort: 65535, DestPort: 65535, SendPSN: 1<<24 - 1, RecvPSN: 1<<24 - 1,
		ORD: 255, IRD: 256, Retries: 63, RNRRetries: 7, Privileged: true, FastRegister: true, Bind: true, Suspended: true, Draining: true,
		CompletionContext: most64, Shadow: most64, SQTail: 32767, SQ: ring, RQ: ring}
	q.Route = &Route{Way: "loopback", DestMAC: "ff:ff:ff:ff:ff:ff", TrafficClass: 255, HopLimit: 255, FlowLabel: 1<<20 - 1, VLANTag: 65535,
		Sent: most64, Retransmitted: most64, Received: most64, Waiting: 1 << 30, Outstanding: most32, Reads: most32, Tries: 255, RNRTries: 255, NextTry: "10m59.99999s",
		Why: []string{strings.Repeat("long reason ", 20)}}
	for _, r := range decoded("qpc", ones[:]) {
		q.Context = r.Words
	}
	if len(q.Context) != 32 {
		t.Errorf("%d words of context", len(q.Context))
	}
	narrow(t, "qp N", q.text())
	q.Type = "UD"
	narrow(t, "qp N", q.text())

	n := uint32(1<<20 - 1)
	c := CQ{CQInfo: event.CQInfo{ID: 1<<19 - 1, Size: n, Buf: ring.Buf, Shadow: most64, Context: most64 >> 1, CEQ: 1023, Next: n, Polarity: 1, Unread: uint64(n), Armed: "solicited",
		Masked: true, Stopped: true, Head: n, CEQMask: true, Owed: true, Unacked: true, Resizes: 16383}, Senders: many, Receivers: many, HeadNow: &n, ArmNow: &n, Error: ring.Error}
	for _, r := range append(decoded("cqe", ones[:8]), decoded("ccqe", ones[:4])...) {
		c.Entries = append(c.Entries, UnreadEntry{n, r})
	}
	narrow(t, "cq N", c.text())
	if got := spans([]uint32{7, 3, 1, 2}); got != "1-3 7" {
		t.Errorf("spans: %s", got)
	}
}

// Every format that explain names words by exists.
func TestFormats(t *testing.T) {
	for _, name := range []string{"cqp", "wqe", "rwqe", "cqe", "ccqe", "qpc"} {
		if _, ok := decode.Lookup(name); !ok {
			t.Errorf("no format %s", name)
		}
	}
}
