// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

type alarm struct{}

func (alarm) Alarm()         {}
func (alarm) String() string { return "do something" }

func TestAlarmsAreErrors(t *testing.T) {
	var out bytes.Buffer
	log := Log(hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: &out}))
	log("an event")
	log(alarm{})
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "[ERROR] do something") {
		t.Errorf("logged %q", got)
	}
}
