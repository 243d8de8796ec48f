// SPDX-License-Identifier: Apache-2.0

package fw

// Resource types of Allocate/Free Resources
// (ice_adminq_cmd.h:ICE_AQC_RES_TYPE_*).
const (
	resVSIListRep     = 0x03
	resVSIListPrune   = 0x04
	resRecipe         = 0x05
	resFDCounterBlock = 0x21
	resFDGuaranteed   = 0x22
	resFDShared       = 0x23
	resFDProfile      = 0x58
	resFDTCAM         = 0x59
	resHashProfile    = 0x60
	resHashTCAM       = 0x61

	resTypeMask       = 0x7F
	resFlagScanBottom = 1 << 12
	resHeader         = 4 // res_type, num_elems
)

// How many of each there are.
const (
	maxOwnRecipes      = 0
	maxFDCounterBlocks = 16
	maxFDEntries       = 1024
	maxProfiles        = 128
	maxTCAM            = 512
)

// resourceType is one kind of countable resource.
type resourceType struct {
	id     uint16
	name   string
	size   int
	amount bool // num_elems is a quantity and one element, the first, names it
	source string
}

// resourceTypes are the kinds a driver may allocate, VSI lists apart, which
// are objects of the switch. The sizes bound what drivers use as an index
// without a check (ice_flex_pipe.c: 128 profiles, 512 TCAM entries) or follow
// GLQF_FD_SIZE; that silicon has as many is inferred.
var resourceTypes = []resourceType{
	{resRecipe, "RECIPE", maxOwnRecipes, false, "ice_switch.c:ice_alloc_recipe"},
	{resFDCounterBlock, "FDIR_COUNTER_BLOCK", maxFDCounterBlocks, false, "ice_fdir.c:ice_alloc_fd_res_cntr"},
	{resFDGuaranteed, "FDIR_GUARANTEED_ENTRIES", maxFDEntries, true, "ice_fdir.c:ice_alloc_fd_guar_item"},
	{resFDShared, "FDIR_SHARED_ENTRIES", maxFDEntries, true, "ice_fdir.c:ice_alloc_fd_shrd_item"},
	{resFDProfile, "FD_PROF_BLDR_PROFID", maxProfiles, false, "ice_flex_pipe.c:ice_alloc_prof_id"},
	{resFDTCAM, "FD_PROF_BLDR_TCAM", maxTCAM, false, "ice_flex_pipe.c:ice_alloc_tcam_ent"},
	{resHashProfile, "HASH_PROF_BLDR_PROFID", maxProfiles, false, "ice_flex_pipe.c:ice_alloc_prof_id"},
	{resHashTCAM, "HASH_PROF_BLDR_TCAM", maxTCAM, false, "ice_flex_pipe.c:ice_alloc_tcam_ent"},
}

// resource is one kind with what of it is handed out.
type resource struct {
	resourceType
	*pool
}

func newResources() map[uint16]*resource {
	m := make(map[uint16]*resource, len(resourceTypes))
	for _, t := range resourceTypes {
		m[t.id] = &resource{t, newPool(0, t.size)}
	}
	return m
}

// allocate hands out count of the resource into elems, all or nothing.
func (r *resource) allocate(elems elements16, count int, bottom bool) errno {
	if count > r.free() {
		return rcENOSPC
	}
	if r.amount {
		first, ok := r.run(count)
		if !ok {
			return rcENOSPC
		}
		elems.set(0, uint16(first))
		return rcOK
	}
	next := r.lowest
	if bottom {
		next = r.highest
	}
	for i := range count {
		id, _ := next()
		elems.set(i, uint16(id))
	}
	return rcOK
}

// release takes back count of the resource; the first that is not handed out
// ends it.
func (r *resource) release(elems elements16, count int) errno {
	if r.amount {
		first := int(elems.get(0))
		for id := first; id < first+count; id++ {
			if !r.has(id) {
				return rcENOENT
			}
		}
		for id := first; id < first+count; id++ {
			r.put(id)
		}
		return rcOK
	}
	for i := range count {
		if !r.put(int(elems.get(i))) {
			return rcENOENT
		}
	}
	return rcOK
}

// elements16 is an array of 16-bit little endian numbers in a buffer.
type elements16 []byte

func (e elements16) get(i int) uint16    { return le.Uint16(e[2*i:]) }
func (e elements16) set(i int, v uint16) { le.PutUint16(e[2*i:], v) }
func (e elements16) count() int          { return len(e) / 2 }

// resourceRequest is the buffer of 0x0208 and 0x0209 taken apart
// (ice_adminq_cmd.h:ice_aqc_alloc_free_res_elem).
type resourceRequest struct {
	kind   uint16
	bottom bool
	count  int
	elems  elements16
}

// parseResource reads the one descriptor in a buffer. The number of entries in
// the parameters is no guide: 6.1 puts the number of elements there when it
// frees (ice_common.c:ice_free_hw_res).
func parseResource(b []byte) resourceRequest {
	t := le.Uint16(b)
	return resourceRequest{
		kind:   t & resTypeMask,
		bottom: t&resFlagScanBottom != 0,
		count:  int(le.Uint16(b[2:])),
		elems:  elements16(b[resHeader:]),
	}
}

func (q resourceRequest) fits(elems int) bool { return q.count > 0 && elems <= q.elems.count() }

// isList tells whether the resource is a VSI list, which vswitch keeps itself.
func (q resourceRequest) isList() bool {
	return q.kind == resVSIListRep || q.kind == resVSIListPrune
}

// valid tells whether there are resources of the type asked for, and whether
// the buffer has the elements that it needs.
func (s *vswitch) valid(q resourceRequest) bool {
	if q.isList() {
		return q.fits(q.count)
	}
	res := s.resources[q.kind]
	if res == nil {
		return false
	}
	if res.amount {
		return q.fits(1)
	}
	return q.fits(q.count)
}

func allocRes(f *Firmware, r *request) errno {
	q := parseResource(r.buf)
	switch {
	case !f.sw.valid(q):
		return rcEINVAL
	case q.isList():
		return f.sw.addLists(q)
	}
	return f.sw.resources[q.kind].allocate(q.elems, q.count, q.bottom)
}

func freeRes(f *Firmware, r *request) errno {
	q := parseResource(r.buf)
	switch {
	case !f.sw.valid(q):
		return rcEINVAL
	case q.isList():
		return f.sw.freeLists(q)
	}
	return f.sw.resources[q.kind].release(q.elems, q.count)
}

// resourceCommands are Allocate and Free Resources. No switch recipe can be
// had, which keeps drivers to the predefined ones.
var resourceCommands = []command{
	{op: 0x0208, name: "alloc_res", rd: true, minBuf: resHeader + 2, run: allocRes, source: "ice_common.c:ice_aq_alloc_free_res", inferred: true},
	{op: 0x0209, name: "free_res", rd: true, minBuf: resHeader + 2, run: freeRes, source: "ice_common.c:ice_aq_alloc_free_res", inferred: true},
}
