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

type notice struct{}

func (notice) Notice()        {}
func (notice) String() string { return "see this" }

func TestNoticesAreInformation(t *testing.T) {
	var out bytes.Buffer
	log := Log(hclog.New(&hclog.LoggerOptions{Level: hclog.Info, Output: &out}))
	log("an event")
	log(notice{})
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "[INFO]  see this") {
		t.Errorf("logged %q", got)
	}
}

func TestAlarmsAreErrors(t *testing.T) {
	var out bytes.Buffer
	log := Log(hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: &out}))
	log("an event")
	log(alarm{})
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "[ERROR] do something") {
		t.Errorf("logged %q", got)
	}
}
