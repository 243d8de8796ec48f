// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func init() {
	const programs = "ib_write_bw, ib_read_bw, ib_send_bw, *_lat, rping, in turns with rxe on virtio-net; two guests, and one"
	table = append(table,
		check{8, "speed-1500", false, programs + "; MTU 1500", speedOf("TestGuests", "-mtu", "1500", "-programs", "ib_|rping")},
		check{8, "speed-9000", false, programs + "; MTU 9000", speedOf("TestGuests", "-mtu", "9000", "-programs", "ib_|rping")},
		check{8, "cpu", false, "CPU of vrnic serve: idle, and per Gbit/s", speedOf("TestGuests", "-mtu", "1500", "-programs", "CPU", "-pairs", "vrnic")},
		check{8, "boot", false, "vrnic run -- ibv_rc_pingpong, from start to end", speedOf("TestBoot")},
	)
}

// speedOf runs one of the benchmarks, which fails by itself if a bound is missed
// twice, and takes what it found into the table.
func speedOf(test string, flags ...string) func(*testing.T, *env) {
	return func(t *testing.T, e *env) {
		r := e.measure(t, test, flags...)
		if err := os.WriteFile(filepath.Join(e.outDir, "bench.txt"), []byte(r.stdout), 0o644); err != nil {
			t.Error(err)
		}
		figures := 0
		for line := range strings.Lines(r.stdout) {
			cells := strings.Split(line, "|")
			if len(cells) != 8 || strings.Contains(cells[1], "figure") || strings.HasPrefix(cells[1], " ---") {
				continue
			}
			for i, c := range cells {
				cells[i] = strings.TrimSpace(c)
			}
			value := cells[2] + " (" + cells[3] + ") " + cells[4]
			if cells[5] != "-" {
				figures++
				value += ", bound " + cells[5] + ", " + cells[6]
			}
			e.part(t, "speed: "+cells[1], "in turns", value, 0)
		}
		r.want(t, 0)
		if figures == 0 {
			t.Errorf("no figure has a bound:\n%s", r.stdout)
		}
	}
}
