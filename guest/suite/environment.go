// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// environment adds to the addresses in from (ME, ME6, PEER, PEER6) what a script
// has to know of the card: see library. What is not there stays empty; that there is
// no card at all is an error.
func environment(sys string, from []string) ([]string, error) {
	cards, _ := filepath.Glob(filepath.Join(sys, "bus/pci/drivers/ice/0*"))
	if len(cards) == 0 {
		return nil, errors.New("ice drives no device")
	}
	pci := filepath.Base(cards[0])
	env := append([]string{"PCI=" + pci, "NET=" + first(sys, "bus/pci/drivers/ice", pci, "net/*")}, from...)
	dev := first(sys, "bus/pci/drivers/ice", pci, "infiniband/*")
	if dev == "" {
		// irdma's device may hang off its auxiliary one.
		dev = first(sys, "bus/pci/drivers/ice", pci, "*/infiniband/*")
	}
	env = append(env, "DEV="+dev)
	own := map[string]netip.Addr{}
	for _, e := range from {
		name, text, _ := strings.Cut(e, "=")
		if a, err := netip.ParseAddr(text); err == nil {
			own[name] = a
		}
	}
	gids, _ := filepath.Glob(filepath.Join(sys, "class/infiniband", dev, "ports/1/gids/*"))
	index := map[string]string{}
	for _, g := range gids {
		b, err := os.ReadFile(g)
		if err != nil {
			continue // an empty entry, of 6.1
		}
		a, err := netip.ParseAddr(strings.TrimSpace(string(b)))
		if err != nil || a.IsUnspecified() {
			continue
		}
		switch a = a.Unmap(); {
		case a == own["ME"]:
			index["GID"] = filepath.Base(g)
		case a == own["ME6"]:
			index["GID6"] = filepath.Base(g)
		case a.IsLinkLocalUnicast():
			index["GIDLL"] = filepath.Base(g)
		}
	}
	for _, name := range []string{"GID", "GID6", "GIDLL"} {
		env = append(env, fmt.Sprintf("%s=%s", name, index[name]))
	}
	return env, nil
}

// first is the base name of the first file of a pattern.
func first(parts ...string) string {
	found, _ := filepath.Glob(filepath.Join(parts...))
	if len(found) == 0 {
		return ""
	}
	return filepath.Base(found[0])
}
