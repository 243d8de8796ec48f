// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"testing"

	devicehmc "github.com/vrnic/vrnic/devmodel/hmc"
)

// What each personality is for comes out of the drivers' own arithmetic, which
// takes all that is offered in its first round.
func TestPersonalitiesAreWhatTheyPromise(t *testing.T) {
	type chunk struct {
		sd    uint64
		pages uint64
		paged bool
	}
	for _, p := range devicehmc.Personalities() {
		want := map[string][]chunk{
			"default":     {{2, 410, false}, {3, 512, false}, {4, 512, false}},
			"paged-pbles": {{3, 2, true}, {4, 511, true}},
			"high-fpm":    {{2064, 512, false}, {2065, 512, false}, {2066, 512, false}},
		}[p.Name]
		if want == nil {
			t.Errorf("nothing is expected of personality %s", p.Name)
		}
		t.Run(p.Name, func(t *testing.T) {
			forKernels(t, func(t *testing.T, k Kernel) {
				m, complaints := startAs(t, p, k, Options{}, newGuest(t))
				objects := m.r.Objects()
				for o, n := range map[int]uint64{IRDMA_HMC_IW_QP: 1024, IRDMA_HMC_IW_CQ: 2048, IRDMA_HMC_IW_MR: 16384,
					IRDMA_HMC_IW_FSIAV: 4096, IRDMA_HMC_IW_PBLE: uint64(p.Profile.Limits[devicehmc.PBLE].Max)} {
					if objects[o].Count != n || objects[o].Count != objects[o].Max {
						t.Errorf("object type %d: %d of %d, want %d", o, objects[o].Count, objects[o].Max, n)
					}
				}
				for len(m.r.pble.chunks) < len(want) {
					must(t, m.r.growPBLEs())
				}
				for i, c := range m.r.pble.chunks {
					if got := (chunk{c.sd, c.count / pblesInPage, c.paged}); i >= len(want) || got != want[i] {
						t.Errorf("chunk %d is %+v, want %+v", i, got, want)
					}
				}
				if p.Name == "paged-pbles" {
					if m.r.pble.left != 0 {
						t.Errorf("%d PBLEs are left, 1 GiB of pages needs 513 pages of PBLEs", m.r.pble.left)
					}
				}
				must(t, m.takeDown())
				quiet(t, complaints)
			})
		})
	}
}
