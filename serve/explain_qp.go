// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/vrnic/vrnic/devmodel"
	"github.com/vrnic/vrnic/devmodel/decode"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/devmodel/rdma"
)

// QP is a queue pair in data form.
type QP struct {
	ID     uint32 `json:"id"`
	Type   string `json:"type"`
	State  string `json:"state"`
	PD     uint32 `json:"pd"`
	SendCQ uint32 `json:"send_cq"`
	RecvCQ uint32 `json:"recv_cq"`

	PathMTU  uint32 `json:"path_mtu"`
	DestQP   uint32 `json:"dest_qp"`
	DestIP   string `json:"dest_ip"`
	DestMAC  string `json:"dest_mac,omitempty"` // of the ARP entry as it is now, if there is one
	LocalIP  string `json:"local_ip"`
	LocalMAC string `json:"local_mac"`
	Loopback bool   `json:"loopback"` // the ARP entry is the port's own address
	VLAN     int    `json:"vlan"`     // -1: none
	ARPIndex uint16 `json:"arp_index"`
	QKey     uint32 `json:"qkey"`
	PKey     uint16 `json:"pkey"`
	QSHandle uint16 `json:"qs_handle"`
	SrcPort  uint16 `json:"src_port"`
	DestPort uint16 `json:"dest_port"`

	SendPSN    uint32 `json:"send_psn"`    // of the next packet that is new
	UnackedPSN uint32 `json:"unacked_psn"` // oldest one sent and not acknowledged, or that to be sent
	RecvPSN    uint32 `json:"recv_psn"`    // expected
	ORD        uint8  `json:"ord"`
	IRD        uint32 `json:"ird"`
	Retries    uint8  `json:"retries"`
	RNRRetries uint8  `json:"rnr_retries"` // 7: for ever

	Privileged   bool `json:"privileged"` // PRIVEN
	FastRegister bool `json:"fast_register"`
	Bind         bool `json:"bind"`
	Suspended    bool `json:"suspended"`
	Draining     bool `json:"draining"`

	CompletionContext uint64 `json:"completion_context"`
	Shadow            uint64 `json:"shadow"`
	SQTail            uint32 `json:"sq_tail"` // HW_SQ_TAIL
	SQ                Ring   `json:"sq"`
	RQ                Ring   `json:"rq"`

	Route *Route `json:"route,omitempty"` // of a connected one

	// Of a QP asked for by number: its context, as the device acts on it.
	Context []decode.Word `json:"context,omitempty"`
}

// Ring is a QP's queue in data form.
type Ring struct {
	Buf      hmc.Buffer `json:"buf"`
	Quanta   uint32     `json:"quanta"`
	WQE      uint32     `json:"wqe"`  // bytes from one possible WQE to the next
	Next     uint32     `json:"next"` // index, in units of that, of the next WQE that the device will look at
	Polarity uint64     `json:"polarity"`
	// Of a QP asked for by number: the WQEs that are in work or posted behind
	// them, at most maxWQEs.
	WQEs    []WQE  `json:"wqes,omitempty"`
	Pending int    `json:"pending,omitempty"` // how many there are
	Error   string `json:"error,omitempty"`   // why not all are shown
}

// WQE is one that is not completed.
type WQE struct {
	Index  uint32        `json:"index"` // in quanta
	InWork bool          `json:"in_work"`
	WQE    decode.Result `json:"wqe"`
}

// maxWQEs bounds how many WQEs of a queue are shown.
const maxWQEs = 32

func newQP(q *qp.Info, e *rdma.Snapshot, link bool) QP {
	c := &q.Context
	out := QP{
		ID: q.ID, Type: q.Type, State: q.State, PD: q.PD, SendCQ: q.SendCQ, RecvCQ: q.RecvCQ,
		PathMTU: q.PathMTU, DestQP: q.DestQP, DestIP: ipText(c.DestIP(), c.IPv4()), LocalIP: ipText(c.LocalIP(), c.IPv4()),
		LocalMAC: macText(c.MAC()), VLAN: -1, ARPIndex: q.ARPIndex, QKey: q.QKey, PKey: q.PKey, QSHandle: q.QSHandle,
		SrcPort: c.SourcePort(), DestPort: c.DestPort(), SendPSN: q.SendPSN, UnackedPSN: q.SendPSN, RecvPSN: q.RecvPSN,
		ORD: c.ORD(), IRD: c.IRDEntries(), Retries: c.RetryCount(), RNRRetries: c.RNRRetryCount(),
		Privileged: q.Privileged, FastRegister: c.FastRegister(), Bind: c.Bind(), Suspended: q.Suspended, Draining: q.Draining,
		CompletionContext: c.CompletionContext(), Shadow: q.Shadow, SQTail: q.SQTail, SQ: newRing(&q.SQ), RQ: newRing(&q.RQ),
	}
	if q.Connected {
		out.UnackedPSN = q.Unacked
	}
	if c.InsertVLAN() {
		out.VLAN = int(c.VLANTag() & 0xFFF)
	}
	for _, a := range e.ARPs {
		if a.Index == q.ARPIndex {
			out.DestMAC, out.Loopback = macText(a.MAC), a.Local
		}
	}
	out.Route = newRoute(q, e, link)
	return out
}

func newRing(r *qp.Ring) Ring {
	return Ring{Buf: r.Buf, Quanta: r.Quanta, WQE: r.WQE, Next: r.Next, Polarity: r.Polarity}
}

func ipText(a [16]byte, v4 bool) string {
	if v4 {
		return netip.AddrFrom4([4]byte(a[12:])).String()
	}
	return netip.AddrFrom16(a).String()
}

func explainQP(d *devmodel.Device, r Request) (string, any, error) {
	e := d.RDMA()
	qps, one, err := chosen(r, "QP", e.QPs, func(q qp.Info) uint32 { return q.ID })
	if err != nil {
		return "", nil, err
	}
	data := make([]QP, len(qps))
	for i := range qps {
		data[i] = newQP(&qps[i], &e, d.Open())
	}
	if one {
		q := &data[0]
		q.Context = contextOf(&qps[0])
		q.SQ.fill(d, "wqe", qps[0].Working, qps[0].Oldest)
		q.RQ.fill(d, "rwqe", qps[0].Receiving, qps[0].Receive)
		return q.text(), data, nil
	}
	rows := [][]string{}
	for _, q := range data {
		dest := fmt.Sprint(q.DestQP)
		if q.Type != qp.RoCERC.String() {
			dest = "-" // every datagram has its own
		}
		rows = append(rows, []string{fmt.Sprint(q.ID), q.Type, q.State, fmt.Sprint(q.PD), fmt.Sprint(q.SendCQ), fmt.Sprint(q.RecvCQ), fmt.Sprint(q.PathMTU), dest})
	}
	return table([]string{"QP", "TYPE", "STATE", "PD", "SEND CQ", "RECV CQ", "MTU", "DEST QP"}, rows), data, nil
}

// contextOf names the fields of a QP's context.
func contextOf(q *qp.Info) []decode.Word {
	words := make([]uint64, qp.ContextSize/8)
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(q.Context[8*i:])
	}
	r := decoded("qpc", words)
	if len(r) == 0 {
		return nil
	}
	return r[0].Words
}

// fill reads the WQEs that are not completed: those in work, from oldest on,
// and those that are posted behind them.
func (r *Ring) fill(d *devmodel.Device, format string, working bool, oldest uint32) {
	quanta := max(r.WQE/32, 1) // of one step
	slots := r.Quanta / quanta
	if slots == 0 {
		return
	}
	r.WQEs = []WQE{}
	at, polarity := r.Next, r.Polarity
	if working {
		if at = oldest / quanta; at > r.Next {
			polarity ^= 1
		}
	}
	f, _ := decode.Lookup(format)
	inWork := working
	for range slots {
		if at == r.Next {
			inWork = false
		}
		words, err := r.read(d, at*quanta)
		if err != nil {
			r.Error = err.Error()
			return
		}
		if !inWork && words[3]>>63 != polarity {
			break
		}
		used := min(f.Length(words), len(words))
		if r.Pending++; len(r.WQEs) < maxWQEs {
			if res := decoded(format, words[:used]); len(res) > 0 {
				r.WQEs = append(r.WQEs, WQE{at * quanta, inWork, res[0]})
			}
		}
		step := uint32(1)
		if format == "wqe" {
			step = uint32(used / 4)
		}
		if at += step; at >= slots {
			at, polarity = at-slots, polarity^1
		}
	}
	if r.Pending > len(r.WQEs) {
		r.Error = fmt.Sprintf("only the first %d of %d are shown", len(r.WQEs), r.Pending)
	}
}

// read reads the WQE at an index in quanta, as many words as it can have.
func (r *Ring) read(d *devmodel.Device, quantum uint32) ([]uint64, error) {
	const most = 8
	n := min(most-quantum%most, r.Quanta-quantum)
	at, err := locate(d, r.Buf, uint64(quantum)*32)
	if err != nil {
		return nil, err
	}
	return readWords(d, at, int(4*n))
}

func (q *QP) addFrom(d *details) {
	vlan := ""
	if q.VLAN >= 0 {
		vlan = fmt.Sprintf(", VLAN %d", q.VLAN)
	}
	d.add("from", "%s, %s%s, UDP port %d to %d", q.LocalIP, q.LocalMAC, vlan, q.SrcPort, q.DestPort)
}

func (q *QP) text() string {
	var b strings.Builder
	d := &details{}
	d.add("QP", "%d, %s, state %s", q.ID, q.Type, q.State)
	d.add("protection domain", "%d", q.PD)
	d.add("CQs", "send %d, receive %d", q.SendCQ, q.RecvCQ)
	d.add("flags", "%s", names("PRIVEN", q.Privileged, "FASTREGEN", q.FastRegister, "BINDEN", q.Bind, "suspended", q.Suspended, "draining", q.Draining))
	switch {
	case q.Type != "RC": // each datagram's address handle has its ARP entry
		d.add("datagrams", "Q_Key %#x, MTU %d", q.QKey, q.PathMTU)
		q.addFrom(d)
	case q.State == "IDLE" && q.DestQP == 0: // its context names none before RTR
		d.add("peer", "none yet")
	default:
		d.add("peer", "QP %d at %s, MTU %d", q.DestQP, q.DestIP, q.PathMTU)
		arp := "which does not exist"
		if q.DestMAC != "" {
			arp = q.DestMAC
		}
		if q.Loopback {
			arp += ", the port's own: loopback"
		}
		d.add("ARP entry", "%d, %s", q.ARPIndex, arp)
		q.addFrom(d)
	}
	if q.Route != nil {
		q.Route.add(d)
	}
	d.add("P_Key", "0x%04x", q.PKey)
	d.add("PSNs", "next to send 0x%06x, not acknowledged from 0x%06x on, expected 0x%06x", q.SendPSN, q.UnackedPSN, q.RecvPSN)
	rnr := fmt.Sprint(q.RNRRetries)
	if q.RNRRetries == 7 {
		rnr = "for ever"
	}
	d.add("retries", "%d, receiver not ready %s", q.Retries, rnr)
	d.add("reads", "%d outstanding (ORD), %d from the peer (IRD entries)", q.ORD, q.IRD)
	d.add("work scheduler", "QS handle %d", q.QSHandle)
	d.add("completion context", "%#x", q.CompletionContext)
	d.add("shadow area", "%#x, HW_SQ_TAIL %d", q.Shadow, q.SQTail)
	d.add("send queue", "%s", q.SQ.text())
	d.add("receive queue", "%s", q.RQ.text())
	b.WriteString(d.String())
	q.SQ.list(&b, "SEND WQE")
	q.RQ.list(&b, "RECV WQE")
	rows := [][]string{}
	for _, w := range q.Context {
		for _, f := range w.Fields {
			if f.Value != 0 {
				rows = append(rows, []string{fmt.Sprint(8 * w.Index), strings.TrimPrefix(f.Name, "IRDMAQPC_"), f.Text})
			}
		}
	}
	b.WriteString("\ncontext, what is not 0 of it:\n" + table([]string{"AT", "IRDMAQPC_", "VALUE"}, rows))
	return b.String()
}

func (r *Ring) text() string {
	unit := ""
	if r.WQE > 32 {
		unit = fmt.Sprintf(" in WQEs of %d bytes", r.WQE)
	}
	return fmt.Sprintf("%d quanta%s, %s, next %d with valid bit %d", r.Quanta, unit, place(r.Buf), r.Next*max(r.WQE/32, 1), r.Polarity)
}

// list shows the WQEs that are not completed.
func (r *Ring) list(b *strings.Builder, title string) {
	if len(r.WQEs) == 0 && r.Error == "" {
		return
	}
	rows := [][]string{}
	for _, w := range r.WQEs {
		state := "posted"
		if w.InWork {
			state = "in work"
		}
		rows = append(rows, []string{fmt.Sprint(w.Index), state, strings.Join(append([]string{strings.TrimPrefix(w.WQE.Name, "IRDMA_OP_TYPE_")}, w.WQE.Notes...), "; ")})
	}
	b.WriteString("\n" + table([]string{title, "STATE", "WHAT"}, rows))
	if r.Error != "" {
		wrap(b, "", r.Error)
	}
}
