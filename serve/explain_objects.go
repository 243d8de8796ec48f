// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"fmt"
	"strings"

	"github.com/vrnic/vrnic/devmodel"
	"github.com/vrnic/vrnic/devmodel/cqp"
	"github.com/vrnic/vrnic/devmodel/decode"
	"github.com/vrnic/vrnic/devmodel/event"
)

// CQP is the control QP in data form.
type CQP struct {
	Live     bool   `json:"live"`
	Context  uint64 `json:"context"` // guest address of its context
	Ring     uint64 `json:"ring"`
	Size     uint32 `json:"size"`
	Next     uint32 `json:"next"` // index of the next WQE to execute
	Polarity uint64 `json:"polarity"`
	Waiting  bool   `json:"waiting"` // the command before Next waits for the data path
	// Last are the WQEs before Next, as the ring has them now, newest first.
	Last []UsedWQE `json:"last,omitempty"`
}

// UsedWQE is a control WQE that was executed.
type UsedWQE struct {
	Index uint32        `json:"index"`
	WQE   decode.Result `json:"wqe"`
}

// maxLast is how many executed control WQEs are shown.
const maxLast = 8

func explainCQP(d *devmodel.Device, _ Request) (string, any, error) {
	s := d.RDMA().CQP
	c := CQP{Live: s.Live, Context: s.Context, Ring: s.Ring, Size: s.Size, Next: s.Next, Polarity: s.Polarity, Waiting: s.Waiting}
	if !c.Live {
		return "there is no control QP\n", c, nil
	}
	for n := uint32(1); n <= maxLast && n < s.Size; n++ {
		i := (s.Next + s.Size - n) % s.Size
		w, err := readWords(d, s.Ring+64*uint64(i), 8)
		if err != nil {
			break
		}
		polarity := s.Polarity
		if i >= s.Next {
			polarity ^= 1
		}
		if w[3]>>63 != polarity || s.Next < n && polarity == 1 {
			break // of no pass before this one
		}
		for _, r := range decoded("cqp", w) {
			c.Last = append(c.Last, UsedWQE{i, r})
		}
	}
	t := &details{}
	t.add("control QP", "from the context at %#x", c.Context)
	t.add("ring", "%d WQEs at %#x, next %d with valid bit %d", c.Size, c.Ring, c.Next, c.Polarity)
	if c.Waiting {
		t.add("state", "the WQE before that waits for the data path")
	}
	text := t.String()
	if len(c.Last) > 0 {
		rows := [][]string{}
		for _, u := range c.Last {
			rows = append(rows, []string{fmt.Sprint(u.Index), strings.Join(append([]string{strings.TrimPrefix(u.WQE.Name, "IRDMA_CQP_OP_")}, u.WQE.Notes...), "; ")})
		}
		text += "\n" + table([]string{"WQE", "EXECUTED LAST, AS THE RING HAS IT NOW"}, rows)
	}
	return text, c, nil
}

// EQs are the event queues in data form.
type EQs struct {
	CEQs []event.EQ `json:"ceqs"`
	AEQ  *event.EQ  `json:"aeq"` // null: none
}

func explainEQ(d *devmodel.Device, _ Request) (string, any, error) {
	e := d.RDMA()
	rows := [][]string{}
	row := func(name string, q *event.EQ, rest string) {
		rows = append(rows, []string{name, fmt.Sprint(q.Size), fmt.Sprint(q.Next), fmt.Sprint(q.Polarity), place(q.Buf), rest})
	}
	for i := range e.CEQs {
		var cqs []uint32
		for _, c := range e.CQs {
			if c.CEQ == int(e.CEQs[i].ID) {
				cqs = append(cqs, c.ID)
			}
		}
		row(fmt.Sprintf("CEQ %d", e.CEQs[i].ID), &e.CEQs[i], "CQs "+spans(cqs))
	}
	if e.AEQ != nil {
		row("AEQ", e.AEQ, fmt.Sprintf("%d free, %d events wait", e.AEQ.Free, e.AEQ.Backlog))
	}
	return table([]string{"QUEUE", "ENTRIES", "NEXT", "POLARITY", "MEMORY", "USE"}, rows), EQs{e.CEQs, e.AEQ}, nil
}

// AH is an address handle in data form.
type AH struct {
	Index        uint32 `json:"index"`
	PD           uint32 `json:"pd"`
	Source       string `json:"source"`
	Dest         string `json:"dest"`
	SourceMAC    string `json:"source_mac"`
	DestMAC      string `json:"dest_mac,omitempty"` // of the ARP entry when the AH was made; empty: there was none
	ARPIndex     uint16 `json:"arp_index"`
	Loopback     bool   `json:"loopback"` // DOLOOPBACK
	VLANTag      int    `json:"vlan_tag"` // -1: none
	TrafficClass uint8  `json:"traffic_class"`
	HopLimit     uint8  `json:"hop_limit"`
	FlowLabel    uint32 `json:"flow_label"`
}

func explainAH(d *devmodel.Device, r Request) (string, any, error) {
	e := d.RDMA()
	ahs, _, err := chosen(r, "AH", e.AHs, func(a cqp.AH) uint32 { return a.Index })
	if err != nil {
		return "", nil, err
	}
	macs := map[uint32]string{}
	for n, h := range e.Handles {
		if h.Reachable {
			macs[e.AHs[n].Index] = macText(h.Path.DestMAC)
		}
	}
	data := make([]AH, len(ahs))
	rows := [][]string{}
	for i, a := range ahs {
		h := AH{Index: a.Index, PD: a.PD, Source: ipText(a.Source, a.IPv4), Dest: ipText(a.Dest, a.IPv4), SourceMAC: macText(a.SourceMAC), DestMAC: macs[a.Index],
			ARPIndex: a.ARPIndex, Loopback: a.Loopback, VLANTag: -1, TrafficClass: a.TrafficClass, HopLimit: a.HopLimit, FlowLabel: a.FlowLabel}
		vlan := "-"
		if a.InsertVLAN {
			h.VLANTag = int(a.VLANTag)
			vlan = fmt.Sprintf("0x%04x", a.VLANTag)
		}
		mac := h.DestMAC
		if mac == "" {
			mac = "(no such entry: nowhere)"
		}
		data[i] = h
		rows = append(rows, []string{fmt.Sprint(h.Index), fmt.Sprint(h.PD), h.Dest, h.Source, fmt.Sprint(h.ARPIndex), mac, vlan, fmt.Sprint(h.HopLimit), fmt.Sprint(h.Loopback)})
	}
	return table([]string{"AH", "PD", "TO", "FROM", "ARP", "MAC", "VLAN", "HOPS", "LOCAL"}, rows), data, nil
}

// ARP is an ARP table entry in data form.
type ARP struct {
	Index uint16   `json:"index"`
	MAC   string   `json:"mac"`
	Local bool     `json:"local"` // the port's own: loopback
	QPs   []uint32 `json:"qps"`   // that send by it
	AHs   []uint32 `json:"ahs"`
}

func explainARP(d *devmodel.Device, r Request) (string, any, error) {
	e := d.RDMA()
	arps, _, err := chosen(r, "ARP entry", e.ARPs, func(a cqp.ARP) uint32 { return uint32(a.Index) })
	if err != nil {
		return "", nil, err
	}
	data := make([]ARP, len(arps))
	rows := [][]string{}
	for i, a := range arps {
		out := ARP{Index: a.Index, MAC: macText(a.MAC), Local: a.Local, QPs: []uint32{}, AHs: []uint32{}}
		for _, q := range e.QPs {
			if q.ARPIndex == a.Index && q.Type == "RC" && (q.State == "RTR" || q.State == "RTS" || q.State == "SQD") {
				out.QPs = append(out.QPs, q.ID)
			}
		}
		for _, h := range e.AHs {
			if h.ARPIndex == a.Index {
				out.AHs = append(out.AHs, h.Index)
			}
		}
		data[i] = out
		rows = append(rows, []string{fmt.Sprint(a.Index), out.MAC, fmt.Sprint(a.Local), fmt.Sprintf("QPs %s, AHs %s", spans(out.QPs), spans(out.AHs))})
	}
	return table([]string{"ARP", "MAC", "LOCAL", "USED BY"}, rows), data, nil
}

// Multicast is a multicast group in data form.
type Multicast struct {
	Index   uint16   `json:"index"`
	IP      string   `json:"ip"`
	MAC     string   `json:"mac"`
	VLAN    int      `json:"vlan"` // -1: none
	Members []uint32 `json:"members"`
}

func explainMulticast(d *devmodel.Device, r Request) (string, any, error) {
	groups, _, err := chosen(r, "multicast group", d.RDMA().Multicast, func(g cqp.Multicast) uint32 { return uint32(g.Index) })
	if err != nil {
		return "", nil, err
	}
	data := make([]Multicast, len(groups))
	rows := [][]string{}
	for i, g := range groups {
		out := Multicast{Index: g.Index, IP: ipText(g.IP, g.IPv4), MAC: macText(g.MAC), VLAN: g.VLAN, Members: []uint32{}}
		for _, m := range g.Members {
			out.Members = append(out.Members, m.QP)
		}
		vlan := "-"
		if g.VLAN >= 0 {
			vlan = fmt.Sprint(g.VLAN)
		}
		data[i] = out
		rows = append(rows, []string{fmt.Sprint(g.Index), out.IP, out.MAC, vlan, spans(out.Members)})
	}
	return table([]string{"GROUP", "ADDRESS", "MAC", "VLAN", "QPS"}, rows), data, nil
}

// Node is a work scheduler node in data form.
type Node struct {
	ID       uint16   `json:"id"`
	Parent   uint16   `json:"parent"`
	VSI      uint16   `json:"vsi"`
	TC       uint8    `json:"tc"`
	Weight   uint8    `json:"weight"`
	Leaf     bool     `json:"leaf"`
	Enabled  bool     `json:"enabled"`
	QSHandle uint16   `json:"qs_handle"` // leaves only
	QPs      []uint32 `json:"qps"`       // on the leaf
}

func explainNodes(d *devmodel.Device, r Request) (string, any, error) {
	e := d.RDMA()
	nodes, _, err := chosen(r, "work scheduler node", e.WorkNodes, func(n cqp.WorkNode) uint32 { return uint32(n.ID) })
	if err != nil {
		return "", nil, err
	}
	data := make([]Node, len(nodes))
	rows := [][]string{}
	for i, n := range nodes {
		out := Node{ID: n.ID, Parent: n.Parent, VSI: n.VSI, TC: n.TC, Weight: n.Weight, Leaf: n.Leaf, Enabled: n.Enabled, QSHandle: n.QSHandle, QPs: []uint32{}}
		handle := "-"
		if n.Leaf {
			handle = fmt.Sprint(n.QSHandle)
			for _, q := range e.QPs {
				if q.QSHandle == n.QSHandle {
					out.QPs = append(out.QPs, q.ID)
				}
			}
		}
		data[i] = out
		rows = append(rows, []string{fmt.Sprint(n.ID), fmt.Sprint(n.Parent), fmt.Sprint(n.VSI), fmt.Sprint(n.TC), fmt.Sprint(n.Weight), fmt.Sprint(n.Leaf), fmt.Sprint(n.Enabled), handle, spans(out.QPs)})
	}
	return table([]string{"NODE", "PARENT", "VSI", "TC", "WEIGHT", "LEAF", "ENABLED", "HANDLE", "QPS"}, rows), data, nil
}

// Tables are the small ones: of ports and connections, which iWARP has, of push
// pages and statistics.
type Tables struct {
	Ports      []uint16       `json:"ports"` // MANAGE_APBVT
	QuadHashes []QuadHash     `json:"quad_hashes"`
	PushPages  []uint32       `json:"push_pages"`
	Instances  []uint8        `json:"statistics_instances"`
	UPMap      UserPriorities `json:"user_priorities"`
}

// QuadHash is an entry of the quad hash table in data form.
type QuadHash struct {
	Type       uint8  `json:"type"` // type.h:enum irdma_quad_entry_type
	QP         uint32 `json:"qp"`
	Dest       string `json:"dest"`
	DestPort   uint16 `json:"dest_port"`
	Source     string `json:"source"`
	SourcePort uint16 `json:"source_port"`
	VLAN       int    `json:"vlan"` // -1: none
	MAC        string `json:"mac"`
	QSHandle   uint16 `json:"qs_handle"`
}

// UserPriorities are what UP_MAP said.
type UserPriorities struct {
	Map         [8]uint8 `json:"map"`
	VLAN        bool     `json:"vlan"`
	CNP         uint8    `json:"cnp"`
	CNPOverride bool     `json:"cnp_override"`
}

func explainTables(d *devmodel.Device, _ Request) (string, any, error) {
	e := d.RDMA()
	data := Tables{Ports: e.Ports, QuadHashes: []QuadHash{}, PushPages: e.PushPages, Instances: e.Instances,
		UPMap: UserPriorities{e.UPMap.Map, e.UPMap.VLAN, e.UPMap.CNP, e.UPMap.CNPOverride}}
	rows := [][]string{}
	for _, q := range e.QuadHash {
		h := QuadHash{q.Type, q.QP, ipText(q.Dest, q.IPv4), q.DestPort, ipText(q.Source, q.IPv4), q.SourcePort, q.VLAN, macText(q.MAC), q.QSHandle}
		data.QuadHashes = append(data.QuadHashes, h)
		rows = append(rows, []string{fmt.Sprint(h.QP), fmt.Sprint(h.Type), h.Dest, fmt.Sprint(h.DestPort), h.Source, fmt.Sprint(h.SourcePort)})
	}
	t := &details{}
	t.add("accepted ports", "%s", spans(wide(e.Ports)))
	t.add("push pages", "%s", spans(e.PushPages))
	t.add("statistics instances", "%s", spans(wide(e.Instances)))
	t.add("user priorities", "%v, %s", data.UPMap.Map, names("USEVLAN", data.UPMap.VLAN, "USEOVERRIDE", data.UPMap.CNPOverride))
	text := t.String()
	if len(rows) > 0 {
		text += "\n" + table([]string{"QP", "TYPE", "DEST", "PORT", "SOURCE", "PORT"}, rows)
	}
	return text, data, nil
}

func wide[T uint8 | uint16](n []T) []uint32 {
	out := make([]uint32, len(n))
	for i, v := range n {
		out[i] = uint32(v)
	}
	return out
}
