// SPDX-License-Identifier: Apache-2.0

package minidriver

import "testing"

func probeRDMA(t *testing.T, i *ICE, o Options) *IRDMA {
	t.Helper()
	r, err := ProbeRDMA(i, o)
	must(t, err)
	return r
}

func TestIRDMALife(t *testing.T) {
	forKernels(t, func(t *testing.T, k Kernel) {
		ctx, sockets, complaints := cards(t, 1)
		f := plug(t, ctx, sockets[0])
		i := probe(t, f, k)
		r := probeRDMA(t, i, Options{})
		must(t, i.Open())
		must(t, r.Remove())
		must(t, i.Remove())
		if n := f.Guest.InUse(); n != 0 {
			t.Errorf("%d pages still in use after remove", n)
		}
		quiet(t, complaints)
	})
}
