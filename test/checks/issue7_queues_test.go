// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"fmt"
	"path/filepath"
	"regexp"
	"testing"
)

func init() {
	for _, k := range worldKernels {
		table = append(table, check{7, "queues-" + k, false, "python3 moves.py: CQs resized under traffic, SQD and back, " + k, queuesOn(k)})
	}
}

// queuesOn changes queues while they work.
func queuesOn(kernel string) func(*testing.T, *env) {
	return func(t *testing.T, e *env) {
		const messages = 6000
		r := e.guest(t, "", "-k", kernel, "--image", "pyverbs", "--copy", filepath.Join(e.root, "test", "checks", "guest"),
			"--boot-timeout", "5m", "--timeout", "5m", "--", "python3", "/root/guest/moves.py").want(t, 0)
		want := fmt.Sprintf(`^case resize %d messages \d{3} resizes\ncase drain [1-8] of 8 writes before, 4 after\n$`, messages)
		if !regexp.MustCompile(want).MatchString(r.stdout) {
			t.Errorf("stdout is not like %q\n%v", want, r)
		}
		e.quietRun(t)
	}
}
