// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
)

const (
	versionMajor = 0
	versionMinor = 0
)

// limits is what one side told in VERSION, with the defaults of the
// specification for what it did not say (vfio-user.rst, "VFIO_USER_VERSION").
type limits struct {
	msgFDs        uint64 // most descriptors it takes in one message
	dataTransfer  uint64 // most bytes of one region or DMA transfer
	pageSizes     uint64 // of DMA maps, a bit each; 0: did not say
	dmaMaps       uint64 // 0: did not say
	writeMultiple bool
	twinSocket    bool
	twinIndex     uint64 // server only: which descriptor of its VERSION it is
}

func defaultLimits() limits { return limits{msgFDs: 1, dataTransfer: maxDataTransfer} }

func (l *limits) takesFD() bool { return l.msgFDs > 0 }

// members are those of one JSON object. Names count as they are written, which
// encoding/json's structures would not do; the last of several wins, as in the
// parsers of QEMU and libvfio-user.
type members map[string]json.RawMessage

// object gives the member name, nil if there is none.
func (m members) object(name string) (members, error) {
	raw, ok := m[name]
	if !ok {
		return nil, nil
	}
	var o members
	if err := json.Unmarshal(raw, &o); err != nil || o == nil {
		return nil, fmt.Errorf("%s is %.20s and no object", name, raw)
	}
	return o, nil
}

// number stores the member name, if there is one, in n.
func (m members) number(name string, n *uint64) error {
	raw, ok := m[name]
	if !ok {
		return nil
	}
	v, err := strconv.ParseUint(string(raw), 10, 64)
	if err != nil {
		return fmt.Errorf("%s is %.20s and no number", name, raw)
	}
	*n = v
	return nil
}

// boolean stores the member name, if there is one, in b.
func (m members) boolean(name string, b *bool) error {
	raw, ok := m[name]
	if !ok {
		return nil
	}
	v := string(raw)
	if v != "true" && v != "false" {
		return fmt.Errorf("%s is %.20s and no boolean", name, raw)
	}
	*b = v == "true"
	return nil
}

// offer is the payload of a VERSION request.
type offer struct {
	major, minor uint16
	limits
}

// parseOffer takes any member that it does not know, and none of a wrong type.
func parseOffer(payload []byte) (offer, error) {
	o := offer{limits: defaultLimits()}
	if len(payload) < 4 {
		return o, fmt.Errorf("payload of %d bytes is too short", len(payload))
	}
	o.major = binary.LittleEndian.Uint16(payload)
	o.minor = binary.LittleEndian.Uint16(payload[2:])
	if o.major != versionMajor {
		return o, fmt.Errorf("major version %d, not %d", o.major, versionMajor)
	}
	text := payload[4:]
	if len(text) == 0 {
		return o, nil // a client without JSON lives with the defaults
	}
	if text[len(text)-1] != 0 {
		return o, fmt.Errorf("JSON text does not end with NUL")
	}
	var top members
	if err := json.Unmarshal(text[:bytes.IndexByte(text, 0)], &top); err != nil {
		return o, fmt.Errorf("JSON text: %v", err)
	}
	if top == nil {
		return o, fmt.Errorf("JSON text is null")
	}
	caps, err := top.object("capabilities")
	if err != nil {
		return o, err
	}
	return o, o.parse(caps)
}

func (l *limits) parse(caps members) error {
	migration, err := caps.object("migration")
	if err != nil {
		return err
	}
	twin, err := caps.object("twin_socket")
	if err != nil {
		return err
	}
	pages, migrationPages, bitmap := uint64(pageSize), uint64(pageSize), uint64(0)
	for _, err := range []error{
		caps.number("max_msg_fds", &l.msgFDs),
		caps.number("max_data_xfer_size", &l.dataTransfer),
		caps.number("max_dma_maps", &l.dmaMaps),
		caps.number("pgsizes", &pages),
		caps.boolean("write_multiple", &l.writeMultiple),
		migration.number("pgsize", &migrationPages),
		migration.number("max_bitmap_size", &bitmap),
		twin.boolean("supported", &l.twinSocket),
		twin.number("fd_index", &l.twinIndex),
	} {
		if err != nil {
			return err
		}
	}
	if l.msgFDs > maxOfferedFDs {
		return fmt.Errorf("max_msg_fds %d is more than %d", l.msgFDs, maxOfferedFDs)
	}
	if !isPages(pages) {
		return fmt.Errorf("pgsizes %#x is not a multiple of %d", pages, pageSize)
	}
	if !isPages(migrationPages) {
		return fmt.Errorf("migration pgsize %d is not a multiple of %d", migrationPages, pageSize)
	}
	if _, ok := caps["pgsizes"]; ok {
		l.pageSizes = pages
	}
	return nil
}

func isPages(n uint64) bool { return n != 0 && n%pageSize == 0 }

// answer is what the server makes of an offer. It offers nothing that the client
// did not.
type answer struct {
	payload       []byte
	writeMultiple bool // REGION_WRITE_MULTI is agreed on
	twinSocket    bool // the reply carries a socket as its descriptor 0
}

// answer answers a request of requestLen payload bytes.
//
// QEMU's buffer is as long as its request, so optional members are left out
// until the reply fits. The two limits are always told: the defaults differ
// between the specification (1 descriptor) and QEMU (8). A client that offers a
// twin socket is not QEMU and gets it.
func (o *offer) answer(requestLen int) answer {
	var a answer
	b := binary.LittleEndian.AppendUint16(nil, versionMajor)
	b = binary.LittleEndian.AppendUint16(b, min(o.minor, versionMinor))
	b = fmt.Appendf(b, `{"capabilities":{"max_msg_fds":%d,"max_data_xfer_size":%d`, maxMsgFDs, maxDataTransfer)
	if a.twinSocket = o.twinSocket && o.takesFD(); a.twinSocket {
		b = append(b, `,"twin_socket":{"supported":true,"fd_index":0}`...)
	}
	const end = "}}\x00"
	add := func(member string) bool {
		if len(b)+len(member)+len(end) > requestLen {
			return false
		}
		b = append(b, member...)
		return true
	}
	if o.writeMultiple {
		a.writeMultiple = add(`,"write_multiple":true`)
	}
	if o.pageSizes&pageSize != 0 {
		add(fmt.Sprintf(`,"pgsizes":%d`, pageSize))
	}
	if o.dmaMaps != 0 {
		add(fmt.Sprintf(`,"max_dma_maps":%d`, min(o.dmaMaps, maxDMAMaps)))
	}
	a.payload = append(b, end...)
	return a
}
