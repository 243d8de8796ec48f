// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
)

// Needs is a set of things that a server must have for a case to mean anything.
type Needs uint

// What a case may need. Whatever needs none of them holds for every server.
const (
	// NeedReference: the device is a [Reference], behind whatever transport.
	NeedReference Needs = 1 << iota
	// NeedReset: the device takes DEVICE_RESET.
	NeedReset
	// NeedINTx and NeedMSIX: INTx; at least 16 vectors of MSI-X.
	NeedINTx
	NeedMSIX
	// NeedPCIe: config space has 4096 bytes.
	NeedPCIe
	// NeedMulti: REGION_WRITE_MULTI is agreed on when the client offers it.
	NeedMulti

	allNeeds = iota
)

func (n Needs) String() string {
	names := [allNeeds]string{"the reference device (-reference)", "DEVICE_RESET", "INTx", "16 vectors of MSI-X", "4096 bytes of config space", "write_multiple"}
	var have []string
	for i, name := range names {
		if n&(1<<i) != 0 {
			have = append(have, name)
		}
	}
	return strings.Join(have, ", ")
}

// Probe asks the server at path what it has. Whether it serves a [Reference] no
// message tells: that is for the caller to know.
func Probe(ctx context.Context, path string) (Needs, error) {
	r := newRunner(path)
	defer r.close()
	var have Needs
	query := func(cmd vfiouser.Command, size int, payload ...[]byte) (reply []byte, err error) {
		err = r.step(ctx, Step{Send: Message(1, cmd, 0, payload...), Want: []Want{{ID: 1, Command: cmd, Check: func(p []byte) error {
			reply = p
			return wantLen(p, size)
		}}}})
		return reply, err
	}
	if err := r.connect(ctx, true); err != nil {
		return 0, fmt.Errorf("probe: %w", err)
	}
	if r.multi {
		have |= NeedMulti
	}
	le := binary.LittleEndian
	info, err := query(cmdInfo, 16, U32(16, 0, 0, 0))
	if err != nil {
		return 0, fmt.Errorf("probe: %w", err)
	}
	if le.Uint32(info[4:])&vfiouser.DeviceReset != 0 {
		have |= NeedReset
	}
	if regions, irqs := le.Uint32(info[8:]), le.Uint32(info[12:]); regions < vfiouser.NumRegions || irqs < vfiouser.NumIRQs {
		return 0, errors.New("probe: not a PCI device")
	}
	config, err := query(cmdRegion, 32, U32(32, 0, configSpace, 0), U64(0, 0))
	if err != nil {
		return 0, fmt.Errorf("probe: config space: %w", err)
	}
	if le.Uint64(config[16:]) == 4096 {
		have |= NeedPCIe
	}
	for index, most := range map[uint32]Needs{intx: NeedINTx, msix: NeedMSIX} {
		irq, err := query(cmdIRQ, 16, U32(16, 0, index, 0))
		if err != nil {
			return 0, fmt.Errorf("probe: interrupts: %w", err)
		}
		if n := le.Uint32(irq[12:]); n >= 16 || (index == intx && n > 0) {
			have |= most
		}
	}
	return have, nil
}

// Lacks is why the case says nothing about a server that has only these things,
// or "".
func (c Case) Lacks(have Needs) string {
	if missing := c.Needs &^ have; missing != 0 {
		return "needs " + missing.String()
	}
	return ""
}
