// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func init() {
	table = append(table,
		check{8, "engine", false, "go test ./test/bench -measure -run TestTraffic; ./devmodel/qp -run TestAllocations", measuredEngine},
		check{8, "scale", false, "go test ./test/bench -measure -run TestScale; ./guest/minidriver -run 'TestMillionPages|TestChurn' -full -long", measuredScale},
	)
}

// measuredEngine holds RDMA writes between two cards of a process against copies of
// the same bytes and against the clock, and takes the figures into the table.
func measuredEngine(t *testing.T, e *env) {
	e.suite(t, "engine-allocations", "./devmodel/qp", []string{"TestAllocations"})
	e.figures(t, "TestTraffic", "| RDMA write by bursts in one process, 1 MiB, MTU 4096 / memcpy ", "| RDMA write by bursts in one process, 4 KiB ",
		"| RDMA write by bursts in one process, 64 B, 32 with a doorbell ", "| RDMA write by frames in one process, 1 MiB, MTU 4096 ",
		"| RDMA write by frames over an uplink, 1 MiB, MTU 4096 ")
}

// measuredScale holds the cost of an operation with many queue pairs and pages
// against that with few, and has them come and go under traffic.
func measuredScale(t *testing.T, e *env) {
	e.suite(t, "scale-memory", miniDriverPackage, []string{"TestMillionPages", "TestChurn"}, "-full", "-long")
	e.figures(t, "TestScale", "| QPs: 10,000, time of a write / ", "| QPs: 10,000, memory of one that is idle ", "| registered pages: 1,000,000, time of a write / ")
}

// figures runs a measurement that must have some rows and whose bounds all must
// hold, and takes all its rows into the table.
func (e *env) figures(t *testing.T, test string, rows ...string) {
	t.Helper()
	r := e.measure(t, test)
	if err := os.WriteFile(filepath.Join(e.outDir, test+".txt"), []byte(r.stdout), 0o644); err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(r.stdout) {
		cells := strings.Split(line, "|")
		if len(cells) > 6 && !strings.Contains(cells[1], "---") && !strings.Contains(cells[1], "figure") {
			e.part(t, "bench: "+strings.TrimSpace(cells[1]), "in turns", strings.TrimSpace(cells[2])+" "+strings.TrimSpace(cells[4])+", bound "+strings.TrimSpace(cells[5]), 0)
		}
	}
	r.want(t, 0).wantStdout(t, rows...)
}
