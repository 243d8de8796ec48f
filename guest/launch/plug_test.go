// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlug: the device goes to its port, and a machine that is off takes none.
func TestPlug(t *testing.T) {
	c := fakeConfig(t, "ok")
	c.Artifacts, c.Ports = t.TempDir(), 2
	m, err := Boot(t.Context(), c)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer m.Kill()
	if err := m.Plug(1, "/run/card"); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Errorf("power off: %+v", err)
	}
	if err := m.Plug(0, "/run/card"); err == nil {
		t.Error("a machine that is off took a device")
	}
	log, err := os.ReadFile(filepath.Join(c.Artifacts, "qmp.log"))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"execute":"device_add","arguments":{"bus":"rp1","driver":"vfio-user-pci","id":"vrnic1","socket":{"path":"/run/card","type":"unix"}}}`
	if strings.Count(string(log), "device_add") != 1 || !strings.Contains(string(log), want) {
		t.Errorf("no %s in\n%s", want, log)
	}
}

// TestPorts: those of the devices and empty ones, in order.
func TestPorts(t *testing.T) {
	var ports []string
	args := deviceArgs([]string{"/a"}, 3)
	for _, a := range args {
		if strings.HasPrefix(a, "pcie-root-port") {
			ports = append(ports, a)
		}
	}
	if len(ports) != 3 || ports[2] != "pcie-root-port,id=rp2,chassis=3,slot=3,pref64-reserve=64M" || len(args) != 2*4 {
		t.Errorf("%q", args)
	}
	if n := len(deviceArgs([]string{"/a", "/b"}, 1)); n != 2*4 {
		t.Errorf("%d arguments for two devices", n)
	}
}
