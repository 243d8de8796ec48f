// SPDX-License-Identifier: Apache-2.0

package images

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseQEMUVersion(t *testing.T) {
	for out, want := range map[string][3]int{
		"QEMU emulator version 10.1.1\nCopyright":                                  {10, 1, 1},
		"QEMU emulator version 11.1.3 (Debian 1:11.1.3+ds-1~bpo13+1)\n":            {11, 1, 3},
		"QEMU emulator version 10.2.0-rc1 (v10.2.0-rc1-3-gabc)\n":                  {10, 2, 0},
		"QEMU emulator version 9.2\n":                                              {9, 2, 0},
		"QEMU emulator version 7.2.17 (Debian 1:7.2+dfsg-7+deb12u13)\nCopyright\n": {7, 2, 17},
	} {
		if got, err := parseQEMUVersion(out); err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", out, got, err, want)
		}
	}
	for _, out := range []string{"", "QEMU emulator version", "QEMU emulator version x.y", "version 10"} {
		if v, err := parseQEMUVersion(out); err == nil {
			t.Errorf("%q: %v, want an error", out, v)
		}
	}
}

func TestHostQEMU(t *testing.T) {
	tests := []struct {
		name, version, devices string
		why                    string // "" if it is good
	}{
		{"good", "10.1.1 (x)", `name "vfio-user-pci", bus PCI`, ""},
		{"next major", "11.0.0", `name "vfio-user-pci", bus PCI`, ""},
		{"too old", "10.1.0", `name "vfio-user-pci", bus PCI`, "10.1.1 or newer"},
		{"old major", "9.9.9", `name "vfio-user-pci", bus PCI`, "10.1.1 or newer"},
		{"built without", "10.2.0", `name "vfio-user-pci-x", bus PCI`, "no device vfio-user-pci"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bin := t.TempDir()
			script := "#!/bin/sh\ncase \"$*\" in\n-version) echo 'QEMU emulator version " + tt.version + "';;\n" +
				"'-device help') echo '" + tt.devices + "';;\n*) exit 9;;\nesac\n"
			path := filepath.Join(bin, qemuProgram)
			if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", bin)
			q, err := hostQEMU(t.Context())
			if tt.why != "" {
				if err == nil || !strings.Contains(err.Error(), tt.why) {
					t.Fatalf("error %v, want one with %q", err, tt.why)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			version, _, _ := strings.Cut(tt.version, " ")
			if !q.Host || len(q.Argv) != 1 || q.Argv[0] != path || q.Version != version {
				t.Errorf("got %+v", q)
			}
		})
	}
}
