// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vrnic/vrnic/guest/wire"
)

// Identity of the function that devmodel implements (ice_devids.h:
// ICE_DEV_ID_E810C_QSFP).
const (
	vendorID = "0x8086"
	deviceID = "0x1592"
)

// expectation is what a device must reach before commands run.
type expectation struct {
	ice   bool // a netdev with carrier
	irdma bool // an RDMA device with an active port
}

// devices looks at our functions on the PCI bus. missing names what an
// expectation lacks; pending is true if waiting may still help: a probe runs
// inside modprobe, so a function without a driver or RDMA device after it stays
// that way, while link and port state come later by themselves.
func devices(sys string, want expectation) (found []wire.Device, missing []string, pending bool) {
	vendors, _ := filepath.Glob(filepath.Join(sys, "bus/pci/devices/*/vendor"))
	for _, v := range vendors {
		dir := filepath.Dir(v)
		if readAttr(v) != vendorID || readAttr(dir, "device") != deviceID {
			continue
		}
		d := wire.Device{
			PCI:    filepath.Base(dir),
			Netdev: firstEntry(filepath.Join(dir, "net")),
			IBDev:  firstEntry(filepath.Join(dir, "infiniband")),
		}
		found = append(found, d)
		_, unbound := os.Lstat(filepath.Join(dir, "driver"))
		switch {
		case !want.ice:
		case unbound != nil:
			missing = append(missing, fmt.Sprintf("%s: no driver took the device", d.PCI))
		case d.Netdev == "":
			missing = append(missing, fmt.Sprintf("%s: no netdev", d.PCI))
			pending = true
		case readAttr(dir, "net", d.Netdev, "carrier") != "1":
			missing = append(missing, fmt.Sprintf("%s: %s has no carrier", d.PCI, d.Netdev))
			pending = true
		}
		switch {
		case !want.irdma || unbound != nil:
		case d.IBDev == "":
			missing = append(missing, fmt.Sprintf("%s: no RDMA device", d.PCI))
		case !strings.Contains(readAttr(dir, "infiniband", d.IBDev, "ports/1/state"), "ACTIVE"):
			missing = append(missing, fmt.Sprintf("%s: port 1 of %s is not active", d.PCI, d.IBDev))
			pending = true
		}
	}
	return found, missing, pending
}

// firstEntry is the first name in a directory, "" if there is none.
func firstEntry(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		return ""
	}
	return slices.MinFunc(entries, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) }).Name()
}
