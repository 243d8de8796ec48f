// SPDX-License-Identifier: Apache-2.0

package fw

var capCommands = []command{
	{op: 0x000a, name: "list_func_caps", minBuf: capSize, run: (*Firmware).functionCaps, source: "ice_common.c:ice_aq_list_caps"},
	{op: 0x000b, name: "list_dev_caps", minBuf: capSize, run: (*Firmware).deviceCaps, source: "ice_common.c:ice_aq_list_caps"},
}

// Sizes of the function, as its driver learns them here.
const (
	NumQueues  = 64  // LAN Tx queues, and as many Rx queues, numbered from 0
	NumVectors = 64  // MSI-X vectors
	NumVSIs    = 768 // of the device
	rssLUTSize = 2048
	rssLUTBits = 8 // width of an entry
)

// capability is one record of the capability lists. What is not listed the
// function does not have: SR-IOV (0x12, 0x13), IEEE 1588 (0x46), pending
// flash updates, sensors (0x67), Tx topology change (0x85), LAG (0x92).
type capability struct {
	id            uint16
	name          string // LIBIE_AQC_CAPS_*
	device        uint32 // number in the device list
	function      uint32 // number in the function list
	logical, phys uint32
	source        string
}

var capabilities = []capability{
	// The population count divides the device's VSIs among its functions.
	{0x0005, "VALID_FUNCTIONS", 1, 1, 0, 0, "ice_common.c:ice_parse_valid_functions_cap"},
	{0x0017, "VSI", NumVSIs, NumVSIs / 2, 0, 0, "ice_common.c:ice_parse_vsi_dev_caps, ice_parse_vsi_func_caps"},
	{0x0018, "DCB", 1, 1, 1, 8, "ice_common.c:ice_parse_common_caps (logical: active TCs, phys: most TCs)"},
	// The PF's lookup table is 2048 long: 6.12 and later take no other size.
	{0x0040, "RSS", rssLUTSize, rssLUTSize, rssLUTBits, 0, "ice_common.c:ice_parse_common_caps"},
	{0x0041, "RXQS", NumQueues, NumQueues, 0, 0, "ice_common.c:ice_parse_common_caps"},
	{0x0042, "TXQS", NumQueues, NumQueues, 0, 0, "ice_common.c:ice_parse_common_caps"},
	{0x0043, "MSIX", NumVectors, NumVectors, 0, 0, "ice_common.c:ice_parse_common_caps"},
	// Makes the driver read GLQF_FD_SIZE.
	{0x0045, "FD", 16384, 16384, 0, 0, "ice_common.c:ice_parse_fdir_dev_caps, ice_parse_fdir_func_caps"},
	{0x0047, "MAX_MTU", 9702, 9702, 0, 0, "ice_common.c:ice_parse_common_caps"},
	{0x0051, "RDMA", 1, 1, 0, 0, "ice_common.c:ice_parse_common_caps"},
}

const capSize = 32 // sizeof(struct libie_aqc_list_caps_elem)

func (f *Firmware) functionCaps(r *request) errno {
	return listCaps(r, func(c capability) uint32 { return c.function })
}

func (f *Firmware) deviceCaps(r *request) errno {
	return listCaps(r, func(c capability) uint32 { return c.device })
}

func listCaps(r *request, number func(capability) uint32) errno {
	le.PutUint32(r.p()[4:], uint32(len(capabilities)))
	if len(r.buf) < len(capabilities)*capSize {
		return rcENOMEM
	}
	for i, c := range capabilities {
		b := r.buf[i*capSize:]
		le.PutUint16(b[0:], c.id)
		b[2] = 1 // version 1.0
		le.PutUint32(b[4:], number(c))
		le.PutUint32(b[8:], c.logical)
		le.PutUint32(b[12:], c.phys)
	}
	r.n = len(capabilities) * capSize
	return rcOK
}
