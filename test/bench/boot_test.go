// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// maxBoot is how long a user waits for a pingpong who has nothing yet.
const maxBoot = 15.0 // seconds

// TestBoot measures the commands of the README from their start to their end: boot,
// pingpong, power off.
func TestBoot(t *testing.T) {
	if !*measure {
		t.Skip("no -measure given: this boots guests, and its figures are worth something on a quiet machine only; make bench passes it")
	}
	vrnic := vrnicBinary(t)
	commands := []struct {
		name  string
		args  []string
		bound bound
	}{
		{"boot to pingpong done, one guest", []string{"--", "sh", "-c", "ibv_rc_pingpong -g 1 & sleep 1; ibv_rc_pingpong -g 1 localhost"}, bound{atMost: maxBoot}},
		{"boot to pingpong done, two guests", []string{"--guests", "2", "--peer", "ibv_rc_pingpong -g 1", "--", "ibv_rc_pingpong", "-g", "1", "peer"}, bound{}},
	}
	var r report
	for _, c := range commands {
		r.take(t, func(t *testing.T) []figure {
			var s samples
			for range rounds {
				cmd := exec.CommandContext(t.Context(), vrnic, append([]string{"run", "--accel", "tcg", "--boot-timeout", "5m"}, c.args...)...)
				began := time.Now()
				out, err := cmd.CombinedOutput()
				s = append(s, time.Since(began).Seconds())
				if err != nil || !strings.Contains(string(out), " iters in ") {
					t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
				}
				t.Logf("%s: %.1f s", c.name, s[len(s)-1])
			}
			return []figure{{name: c.name, unit: "s", samples: s, bound: c.bound}}
		})
	}
	r.close(t)
}
