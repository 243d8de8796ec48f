// SPDX-License-Identifier: Apache-2.0

package fw

import "slices"

const (
	rssKeySize    = 52   // ICE_GET_SET_RSS_KEY_EXTEND_KEY_SIZE
	rssVSILUTSize = 64   // ICE_LUT_VSI_SIZE
	rssPFLUTSize  = 2048 // ICE_LUT_PF_SIZE

	lutTypeMask = 0x3 // ICE_LUT_VSI, ICE_LUT_PF, ICE_LUT_GLOBAL
	lutVSI      = 0
	lutPF       = 1
	lutSizeMask = 0x3 << 2
	lutSize2K   = 1 << 3 // ICE_AQC_LUT_SIZE_2K
)

func setRSSKey(f *Firmware, r *request) errno {
	v, rc := f.sw.vsiNamed(r.p())
	if rc != rcOK {
		return rc
	}
	copy(v.key[:], r.buf)
	f.sw.touch(staleVSIs)
	return rcOK
}

func getRSSKey(f *Firmware, r *request) errno {
	v, rc := f.sw.vsiNamed(r.p())
	if rc != rcOK {
		return rc
	}
	r.n = copy(r.buf, v.key[:])
	return rcOK
}

// lut finds the table that a command means and the size code that goes with
// it. Global tables are a resource nobody can allocate here, so none exists.
func (s *vswitch) lut(p []byte) (table *[]byte, size uint16, rc errno) {
	v, rc := s.vsiNamed(p)
	if rc != rcOK {
		return nil, 0, rc
	}
	switch le.Uint16(p[2:]) & lutTypeMask {
	case lutVSI:
		return &v.lut, 0, rcOK
	case lutPF:
		return &s.pfLUT, lutSize2K, rcOK
	}
	return nil, 0, rcENOENT
}

func setRSSLUT(f *Firmware, r *request) errno {
	table, size, rc := f.sw.lut(r.p())
	if rc != rcOK {
		return rc
	}
	if le.Uint16(r.p()[2:])&lutSizeMask != size || len(r.buf) != len(*table) {
		return rcEINVAL
	}
	*table = slices.Clone(r.buf)
	f.sw.touch(staleVSIs)
	return rcOK
}

// getRSSLUT does not look at the size code: 6.1 leaves it out here
// (ice_common.c:__ice_aq_get_set_rss_lut).
func getRSSLUT(f *Firmware, r *request) errno {
	table, _, rc := f.sw.lut(r.p())
	if rc != rcOK {
		return rc
	}
	if len(r.buf) < len(*table) {
		return rcEINVAL
	}
	r.n = copy(r.buf, *table)
	return rcOK
}

// RSSTable returns the lookup table of the function, used by VSIs whose
// Context.RSSTable() is 2. Entries are queue numbers relative to the VSI.
func (f *Firmware) RSSTable() [rssPFLUTSize]byte {
	return [rssPFLUTSize]byte(f.sw.pfLUT)
}

var rssCommands = []command{
	{op: 0x0B02, name: "set_rss_key", rd: true, minBuf: rssKeySize, run: setRSSKey, source: "ice_common.c:ice_aq_set_rss_key"},
	{op: 0x0B03, name: "set_rss_lut", rd: true, minBuf: rssVSILUTSize, run: setRSSLUT, source: "ice_common.c:__ice_aq_get_set_rss_lut"},
	{op: 0x0B04, name: "get_rss_key", minBuf: rssKeySize, run: getRSSKey, source: "ice_common.c:ice_aq_get_rss_key"},
	{op: 0x0B05, name: "get_rss_lut", minBuf: rssVSILUTSize, run: getRSSLUT, source: "ice_common.c:__ice_aq_get_set_rss_lut"},
}
