// SPDX-License-Identifier: Apache-2.0

package vfiouser_test

import (
	"testing"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
	"github.com/vrnic/vrnic/vfio-user/conformance"
	"golang.org/x/sys/unix"
)

func TestConformance(t *testing.T) {
	path, _ := serve(t, vfiouser.Options{})
	before := descriptors(t)
	names := make(map[string]bool)
	for _, c := range conformance.Cases() {
		if names[c.Name] {
			t.Errorf("two cases %q", c.Name)
		}
		names[c.Name] = true
		t.Run(c.Name, func(t *testing.T) {
			if err := c.Run(t.Context(), path); err != nil {
				t.Error(err)
			}
		})
	}
	settles(t, "descriptors left", 0, func() int { return max(0, descriptors(t)-before) })
}

// TestConformanceNotices runs cases with a wrong expectation: a runner that
// passes everything would pass the others too.
func TestConformanceNotices(t *testing.T) {
	path, _ := serve(t, vfiouser.Options{})
	info := conformance.Message(7, vfiouser.CmdDeviceGetInfo, 0, conformance.U32(16, 0, 0, 0))
	reply := conformance.Want{ID: 7, Command: vfiouser.CmdDeviceGetInfo}
	wrong := map[string]conformance.Step{
		"reply not expected": {Send: info},
		"wrong id":           {Send: info, Want: []conformance.Want{{ID: 8, Command: vfiouser.CmdDeviceGetInfo}}},
		"wrong errno":        {Send: info, Want: []conformance.Want{{ID: 7, Command: vfiouser.CmdDeviceGetInfo, Errno: unix.EINVAL}}},
		"wrong payload":      {Send: info, Want: []conformance.Want{{ID: 7, Command: vfiouser.CmdDeviceGetInfo, Payload: []byte{1}}}},
		"not closed":         {Send: append(info, info...), Want: []conformance.Want{reply}, Closed: true},
		"wrong count": {Send: info, Want: []conformance.Want{reply}, FDs: []conformance.FD{{Name: "e", Value: 3}},
			Checks: []conformance.Check{{Name: "e", Count: 4}}},
	}
	for name, step := range wrong {
		if err := (conformance.Case{Name: name, Steps: []conformance.Step{step}}).Run(t.Context(), path); err == nil {
			t.Errorf("%s: not noticed", name)
		}
	}
}

