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
		check{5, "bench", false, "go test ./test/bench -measure -run TestEthernet", measuredEthernet},
	)
}

// measuredEthernet holds iperf3 and ping between two guests against QEMU's own
// cards, and takes the ratios into the table.
func measuredEthernet(t *testing.T, e *env) {
	r := e.bench(t, "TestEthernet")
	if err := os.WriteFile(filepath.Join(e.outDir, "bench.txt"), []byte(r.stdout), 0o644); err != nil {
		t.Error(err)
	}
	r.wantStdout(t, "| iperf3, vrnic / e1000e ", "| iperf3, vrnic / virtio-net ", "| ping, vrnic / e1000e ")
	for line := range strings.Lines(r.stdout) {
		cells := strings.Split(line, "|")
		if len(cells) > 6 && strings.Contains(cells[1], "vrnic /") {
			e.part(t, "bench: "+strings.TrimSpace(cells[1]), "in turns", strings.TrimSpace(cells[2])+", bound "+strings.TrimSpace(cells[5]), 0)
		}
	}
}
