// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vrnic/vrnic/fabric"
)

// Port is a port of the switch in data form: what passed it, and what was lost,
// by why.
type Port struct {
	Name string `json:"name"`
	Link bool   `json:"link"`
	fabric.PortStats
}

// explainPorts shows the segment, which all devices share.
func (h *Host) explainPorts(r Request) (string, any, error) {
	data, rows, impaired := []Port{}, [][]string{}, [][]string{}
	for _, p := range h.segment.sw.Ports() {
		if r.Name != "" && r.Name != p.Name() {
			continue
		}
		s := p.Stats()
		data = append(data, Port{p.Name(), p.Link(), s})
		link := map[bool]string{true: "up", false: "down"}[p.Link()]
		rows = append(rows, numbers([]string{p.Name(), link}, s.TxFrames, s.TxBytes, s.RxFrames, s.RxBytes, s.LinkDown, s.Short+s.Long+s.Filtered))
		for dir, x := range map[string]*fabric.ImpairStats{"tx": s.TxImpair, "rx": s.RxImpair} {
			if x != nil {
				impaired = append(impaired, numbers([]string{p.Name(), dir}, x.Frames, x.Lost, x.Duplicated, x.Corrupted, x.Reordered, x.Overflow, x.Flushed, uint64(x.Held)))
			}
		}
	}
	if r.Name != "" && len(data) == 0 {
		return "", nil, fmt.Errorf("no port %q", r.Name)
	}
	text := table([]string{"PORT", "LINK", "SENT", "BYTES", "RECEIVED", "BYTES", "NO LINK", "REFUSED"}, rows)
	if len(impaired) > 0 {
		slices.SortFunc(impaired, slices.Compare[[]string])
		text += "\n" + table([]string{"IMPAIRED", "DIR", "FRAMES", "LOST", "TWICE", "CORRUPT", "LATE", "OVERFLOW", "FLUSHED", "HELD"}, impaired)
	}
	return text, data, nil
}

func numbers(row []string, values ...uint64) []string {
	for _, v := range values {
		row = append(row, fmt.Sprint(v))
	}
	return row
}

// impair replaces the rules for all cables by those of a text, one a word. What
// earlier ones hold back is lost, and their counters are gone.
func (h *Host) impair(text string) error {
	var n Network
	for _, word := range strings.Fields(text) {
		r, err := fabric.ParseImpair(word)
		if err != nil {
			return err
		}
		n.Impair = append(n.Impair, r)
	}
	for range h.segment.uplinks {
		n.Uplinks = append(n.Uplinks, fabric.UplinkSpec{})
	}
	if err := n.CheckPorts(len(h.cards)); err != nil {
		return fmt.Errorf("impairment: %w", err)
	}
	h.segment.sw.Impair(n.Impair...)
	return nil
}
