// SPDX-License-Identifier: Apache-2.0

package fw

// The module in the cage is a passive copper cable of 1 m with QSFP28 ends, as
// the PHY type says: an SFF-8636 EEPROM of which only the lower page and upper
// page 0 exist.
const (
	moduleBus  = 0xA0 >> 1 // its I2C address; 0 means the module of the cage
	modulePage = 128
	moduleSize = 2 * modulePage
	moduleRead = 16 // ice_common.c:ice_aq_sff_eeprom: 1 to 16 bytes at a time

	sffBusMask  = 0x7F    // ICE_AQC_SFF_I2CBUS_7BIT_M
	sffBus10Bit = 1 << 10 // ICE_AQC_SFF_I2CBUS_TYPE_M
	sffSetPage  = 3 << 11 // ICE_AQC_SFF_SET_EEPROM_PAGE_M
	sffIsWrite  = 1 << 15 // ICE_AQC_SFF_IS_WRITE
	sffValid    = 1       // ICE_AQC_SFF_PORT_NUM_VALID
)

// newModule makes the EEPROM (SFF-8636 tables 6-1 and 6-14).
func newModule(serial [6]byte) []byte {
	const hex = "0123456789ABCDEF"
	var name [12]byte
	for i, v := range serial {
		name[2*i], name[2*i+1] = hex[v>>4], hex[v&15]
	}
	b := make([]byte, moduleSize)
	copy(b, []byte{
		moduleIdentQSFP,
		0x07, // revision 2.5 to 2.7: the last that ethtool knows
		0x06, // flat memory, no interrupt
	})
	u := b[modulePage:]
	text := func(at, n int, s string) {
		for i := range n {
			u[at-modulePage+i] = ' '
		}
		copy(u[at-modulePage:][:n], s)
	}
	for at, v := range map[int]byte{
		128: moduleIdentQSFP,
		130: 0x23, // connector: none that separates
		131: 0x80, // compliance: see the extended one
		139: 0x05, // 64B/66B
		140: 0xFF, // rate: see 222
		146: 1,    // m
		147: 0xA0, // copper, unequalised
		186: 3,    // attenuation in dB at 2.5, 5, 7 and 12.9 GHz
		187: 4,
		188: 5,
		189: 8,
		192: 0x0B, // 100GBASE-CR4
		222: 103,  // 25.78 Gbit/s a lane, in 250 Mbit/s
	} {
		u[at-modulePage] = v
	}
	text(148, 16, "vrnic")
	text(168, 16, "QSFP28-CR4-1M")
	text(184, 2, "1")
	text(196, 16, string(name[:]))
	text(212, 8, "250101")
	u[191-modulePage] = sum8(u[:191-modulePage])
	u[223-modulePage] = sum8(u[192-modulePage : 223-modulePage])
	return b
}

func sum8(b []byte) (sum byte) {
	for _, v := range b {
		sum += v
	}
	return sum
}

// moduleEEPROM reads the module. A page that it does not have, or another
// device on its bus, answers nothing.
func (f *Firmware) moduleEEPROM(r *request) errno {
	p := r.p()
	bus, at, page := le.Uint16(p[2:]), int(le.Uint16(p[4:])), le.Uint16(p[6:])>>8
	switch addr := bus & sffBusMask; {
	case p[1]&sffValid != 0 && p[0] != lport:
		return rcEINVAL
	case bus&sffBus10Bit != 0, addr != moduleBus && addr != 0:
		return rcENOENT
	case bus&sffIsWrite != 0:
		return rcEPERM
	case bus&sffSetPage != 0 && page != 0,
		len(r.buf) > moduleRead, at+len(r.buf) > moduleSize:
		return rcEINVAL
	}
	r.n = copy(r.buf, f.module[at:])
	return rcOK
}
