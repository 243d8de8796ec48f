// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
)

const (
	versionMajor = 0
	versionMinor = 0
)

// capabilities are the members of the VERSION text that a server looks at
// (vfio-user.rst, "VFIO_USER_VERSION"). A pointer is nil if the client did not
// say.
type capabilities struct {
	MaxMsgFDs       *uint64 `json:"max_msg_fds"`
	MaxDataTransfer *uint64 `json:"max_data_xfer_size"`
	PageSizes       *uint64 `json:"pgsizes"`
	WriteMultiple   bool    `json:"write_multiple"`
	Migration       *struct {
		PageSize *uint64 `json:"pgsize"`
	} `json:"migration"`
}

// offer is the payload of a VERSION request.
type offer struct {
	major, minor uint16
	caps         capabilities
}

func parseOffer(payload []byte) (offer, error) {
	var o offer
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
	text = text[:bytes.IndexByte(text, 0)]
	top := struct {
		Capabilities *capabilities `json:"capabilities"`
	}{&o.caps}
	if err := json.Unmarshal(text, &top); err != nil {
		return o, fmt.Errorf("JSON text: %v", err)
	}
	return o, o.caps.check()
}

func (c *capabilities) check() error {
	if c.MaxMsgFDs != nil && *c.MaxMsgFDs > maxOfferedFDs {
		return fmt.Errorf("max_msg_fds %d is more than %d", *c.MaxMsgFDs, maxOfferedFDs)
	}
	if c.PageSizes != nil && !isPages(*c.PageSizes) {
		return fmt.Errorf("pgsizes %#x is not a multiple of %d", *c.PageSizes, pageSize)
	}
	if m := c.Migration; m != nil && m.PageSize != nil && !isPages(*m.PageSize) {
		return fmt.Errorf("migration pgsize %d is not a multiple of %d", *m.PageSize, pageSize)
	}
	return nil
}

func isPages(n uint64) bool { return n != 0 && n%pageSize == 0 }

// appendAnswer appends the payload of the reply to a request of requestLen
// payload bytes, and says whether REGION_WRITE_MULTI is agreed on.
//
// QEMU's buffer is as long as its request, so optional members are left out
// until the reply fits. The two limits are always told: the defaults differ
// between the specification (1 descriptor) and QEMU (8).
func (o *offer) appendAnswer(b []byte, requestLen int) (answer []byte, writeMultiple bool) {
	start := len(b)
	b = binary.LittleEndian.AppendUint16(b, versionMajor)
	b = binary.LittleEndian.AppendUint16(b, min(o.minor, versionMinor))
	b = fmt.Appendf(b, `{"capabilities":{"max_msg_fds":%d,"max_data_xfer_size":%d`, maxMsgFDs, maxDataTransfer)
	const end = "}}\x00"
	add := func(member string) bool {
		if len(b)-start+len(member)+len(end) > requestLen {
			return false
		}
		b = append(b, member...)
		return true
	}
	if o.caps.WriteMultiple {
		writeMultiple = add(`,"write_multiple":true`)
	}
	if o.caps.PageSizes != nil {
		add(fmt.Sprintf(`,"pgsizes":%d`, pageSize))
	}
	return append(b, end...), writeMultiple
}
