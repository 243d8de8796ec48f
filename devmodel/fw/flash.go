// SPDX-License-Identifier: Apache-2.0

package fw

// The flash is 1 MiB, of which only the parts that say something are kept;
// the rest reads as erased. Its first 64 KiB are the shadow RAM.
const (
	flashSize     = 1 << 20
	shadowRAMSize = 1 << 16
	sector        = 4096
)

// Words of the shadow RAM (ice_type.h:ICE_SR_*).
const (
	srControl     = 0x00
	srDevStarter  = 0x18 // ICE_SR_NVM_DEV_STARTER_VER
	srWoL         = 0x19 // ICE_SR_NVM_WOL_CFG
	srEETrackLow  = 0x2d
	srEETrackHigh = 0x2e
	srChecksum    = 0x3f // makes all words add up to checksumCorrect
	srPFA         = 0x40 // ICE_SR_PFA_PTR
	srNVMBank     = 0x42 // pointer; the size follows it
	srOROMBank    = 0x44
	srNetlistBank = 0x46

	srSectors = 1 << 15 // a pointer counts sectors, not words
)

// Layout of the flash: each module has two banks, the first of them active.
const (
	nvmBank     = 0x10000
	nvmSize     = 0x10000
	oromBank    = 0x30000
	oromSize    = 0x1000
	netlistBank = 0x40000
	netlistSize = 0x1000

	pfaWord = 0x1000 // of the shadow RAM: the preserved field area

	// cssLength is the length of the signature header in dwords. It puts the
	// shadow RAM copy of the bank at word 352: 6.1 looks nowhere else
	// (6.1 ice_type.h:ICE_NVM_SR_COPY_WORD_OFFSET), later kernels compute
	// it (ice_nvm.c:ice_determine_css_hdr_len).
	cssLength = 161
	srCopy    = 352 * 2

	nvmVersion = 0x4020 // 4.20: below 4.30, from which recipes are reused
	eeTrack    = 0x80000001
)

// flash is a sparse image.
type flash struct{ parts []flashPart }

type flashPart struct {
	off  int
	data []byte
}

// read fills p from off, which together lie in the flash.
func (f *flash) read(off int, p []byte) {
	for i := range p {
		p[i] = 0xff
	}
	for _, part := range f.parts {
		lo, hi := max(off, part.off), min(off+len(p), part.off+len(part.data))
		if lo < hi {
			copy(p[lo-off:hi-off], part.data[lo-part.off:])
		}
	}
}

// newFlash makes the image (ice_nvm.c:ice_init_nvm reads it all).
func newFlash() *flash {
	sr := shadowRAM()
	css := words(map[int]uint16{2: cssLength, 3: 0}, 4)
	f := &flash{parts: []flashPart{{0, sr}}}
	for bank := range 2 {
		f.parts = append(f.parts,
			flashPart{nvmBank + bank*nvmSize, css},
			flashPart{nvmBank + bank*nvmSize + srCopy, sr},
			flashPart{oromBank + bank*oromSize, civd()},
			flashPart{netlistBank + bank*netlistSize, netlist()})
	}
	return f
}

// words lays out n little-endian words.
func words(w map[int]uint16, n int) []byte {
	b := make([]byte, 2*n)
	for i, v := range w {
		le.PutUint16(b[2*i:], v)
	}
	return b
}

// checksumCorrect is ICE_AQC_NVM_CHECKSUM_CORRECT.
const checksumCorrect = 0xBABA

// sum16 adds up words.
func sum16(b []byte) (sum uint16) {
	for i := 0; i+1 < len(b); i += 2 {
		sum += le.Uint16(b[i:])
	}
	return sum
}

// shadowRAM is the part of the shadow RAM that is not erased.
func shadowRAM() []byte {
	b := words(map[int]uint16{
		srControl:         1 << 6, // valid, all first banks active
		srDevStarter:      nvmVersion,
		srWoL:             0xffff, // a bit per port: no wake-up
		srEETrackLow:      eeTrack & 0xffff,
		srEETrackHigh:     eeTrack >> 16,
		srPFA:             pfaWord,
		srNVMBank:         srSectors | nvmBank/sector,
		srNVMBank + 1:     nvmSize / sector,
		srOROMBank:        srSectors | oromBank/sector,
		srOROMBank + 1:    oromSize / sector,
		srNetlistBank:     srSectors | netlistBank/sector,
		srNetlistBank + 1: netlistSize / sector,
		pfaWord:           2, // its own length and the end: no fields
	}, pfaWord+2)
	// Each erased word counts as -1.
	erased := uint16((shadowRAMSize - len(b)) / 2)
	le.PutUint16(b[2*srChecksum:], checksumCorrect-sum16(b)+erased)
	return b
}

// civd is the version record of the option ROM
// (ice_nvm.c:ice_get_orom_civd_data): its bytes add up to 0.
func civd() []byte {
	const name = "vrnic"
	b := make([]byte, 74)
	copy(b, "$CIV")
	le.PutUint32(b[5:], 1<<24) // version 1.0.0
	b[9] = byte(len(name))
	for i, c := range name {
		le.PutUint16(b[10+2*i:], uint16(c))
	}
	var sum byte
	for _, v := range b {
		sum += v
	}
	b[4] = -sum
	return b
}

// netlist is a list of no nodes (ice_nvm.c:ice_get_netlist_info).
func netlist() []byte {
	const id = 6 // the id block, 48 words
	return words(map[int]uint16{
		0:         0x011b, // ICE_NETLIST_LINK_TOPO_MOD_ID
		2:         4 + 48,
		id + 0x02: 1, // major version
	}, id+48)
}
