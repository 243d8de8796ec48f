// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"fmt"
	"strings"
	"time"

	"github.com/vrnic/vrnic/devmodel"
	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/devmodel/rdma"
	"github.com/vrnic/vrnic/devmodel/roce/wire"
)

// Route is where a connected QP's packets go, and how that goes, in data form.
type Route struct {
	Way          string `json:"way"`      // nowhere, loopback, near (a card of this process, without frames) or wire
	DestMAC      string `json:"dest_mac"` // of the ARP entry when the QP named it; empty: there was none
	TrafficClass uint8  `json:"traffic_class"`
	HopLimit     uint8  `json:"hop_limit"`
	FlowLabel    uint32 `json:"flow_label"`
	VLANTag      int    `json:"vlan_tag"` // -1: none
	Link         bool   `json:"link"`     // of the port
	Peer         string `json:"peer"`     // by loopback and near: why the peer takes nothing; empty: it does

	Sent          uint64 `json:"sent"` // packets
	Retransmitted uint64 `json:"retransmitted"`
	Received      uint64 `json:"received"`
	Waiting       int    `json:"waiting"` // have come and are not looked at

	Outstanding uint32 `json:"outstanding"` // packets not acknowledged; a read counts as one
	Reads       uint32 `json:"reads"`
	Tries       uint8  `json:"tries"`     // since the last progress, again
	RNRTries    uint8  `json:"rnr_tries"` // the same, as the peer had no receive WQE
	NextTry     string `json:"next_try,omitempty"`

	// Why traffic does not flow, or not as one may think.
	Why []string `json:"why"`
}

func newRoute(q *qp.Info, e *rdma.Snapshot, link bool) *Route {
	if q.Route == nil {
		return nil
	}
	p := &q.Route.Path
	r := &Route{Way: q.Route.Way.String(), TrafficClass: p.TrafficClass, HopLimit: p.HopLimit, FlowLabel: p.FlowLabel, VLANTag: -1, Link: link,
		Sent: q.Stats.TxPackets, Retransmitted: q.Stats.Retransmitted, Received: q.Stats.RxPackets, Waiting: q.Waiting,
		Outstanding: q.Trying.Packets, Reads: q.Trying.Reads, Tries: q.Trying.Retries, RNRTries: q.Trying.RNRs, Why: []string{}}
	if q.Route.Way != qp.Nowhere {
		r.DestMAC = macText(p.DestMAC)
	}
	if p.Tagged {
		r.VLANTag = int(p.TCI)
	}
	if q.Route.Peer != wire.OK {
		r.Peer = q.Route.Peer.String()
	}
	if q.Trying.Deadline != 0 {
		r.NextTry = q.Trying.Deadline.Round(10 * time.Microsecond).String()
	}
	r.explain(q, e)
	return r
}

// explain says what keeps a QP from sending, and what from being answered.
func (r *Route) explain(q *qp.Info, e *rdma.Snapshot) {
	why := func(format string, args ...any) { r.Why = append(r.Why, fmt.Sprintf(format, args...)) }
	switch q.State {
	case "RTS", "SQD":
	case "RTR":
		why("in RTR it answers, and does not send by itself before RTS")
	case "ERROR":
		why("in ERROR it neither sends nor answers")
		return
	default:
		return
	}
	if q.Suspended {
		why("it is suspended (SUSPEND_QP)")
	}
	if q.Draining {
		why("it drains: what was posted later waits")
	}
	now := ""
	for _, a := range e.ARPs {
		if a.Index == q.ARPIndex {
			now = macText(a.MAC)
		}
	}
	switch {
	case r.DestMAC == "":
		why("ARP entry %d did not exist when the QP named it: packets go nowhere", q.ARPIndex)
	case now == "":
		why("ARP entry %d is gone: the QP goes on with its copy", q.ARPIndex)
	case now != r.DestMAC:
		why("ARP entry %d is %s now: the QP goes on with its copy, %s", q.ARPIndex, now, r.DestMAC)
	}
	if r.Way == "wire" && !r.Link {
		why("the port has no link: packets are lost until it has")
	}
	if r.Peer != "" {
		why("QP %d of the peer takes nothing: %s", q.DestQP, r.Peer)
	}
	if q.Trying.Resting {
		why("the peer has no receive WQE: sends rest")
	}
	if r.Tries > 0 {
		why("nobody answers: packets were sent again, %d times of %d", r.Tries, q.Context.RetryCount())
	}
}

// add adds the lines of a QP's text.
func (r *Route) add(d *details) {
	to := r.Way
	if r.DestMAC != "" {
		to += ", to " + r.DestMAC
	}
	if r.VLANTag >= 0 {
		to += fmt.Sprintf(", VLAN tag 0x%04x", r.VLANTag)
	}
	d.add("path", "%s, hop limit %d, traffic class %#x", to, r.HopLimit, r.TrafficClass)
	d.add("packets", "%d sent, %d of them again, %d received, %d wait", r.Sent, r.Retransmitted, r.Received, r.Waiting)
	if r.Outstanding > 0 || r.NextTry != "" {
		next := ""
		if r.NextTry != "" {
			next = ", next try in " + r.NextTry
		}
		d.add("outstanding", "%d packets, %d reads, tried again %d times%s", r.Outstanding, r.Reads, r.Tries+r.RNRTries, next)
	}
	for _, w := range r.Why {
		d.add("!", "%s", w)
	}
}

// explainStats are the counters that `rdma statistic` shows, as they are now.
func explainStats(d *devmodel.Device, r Request) (string, any, error) {
	data, rows := map[string]uint64{}, [][]string{}
	for _, c := range d.RDMA().Counters {
		if r.Name != "" && !strings.EqualFold(r.Name, c.Name) {
			continue
		}
		data[c.Name] = c.Value
		if c.Value != 0 || r.Name != "" {
			rows = append(rows, []string{c.Name, fmt.Sprint(c.Value)})
		}
	}
	if len(data) == 0 {
		return "", nil, fmt.Errorf("no counter %q", r.Name)
	}
	if len(rows) == 0 {
		return "(all counters are 0)\n", data, nil
	}
	text := table([]string{"COUNTER", "VALUE"}, rows)
	if r.Name == "" {
		text += "(the others are 0)\n"
	}
	return text, data, nil
}
