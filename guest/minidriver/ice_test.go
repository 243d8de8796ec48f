// SPDX-License-Identifier: Apache-2.0

package minidriver

import "testing"

func probe(t *testing.T, f *Function, k Kernel) *ICE {
	t.Helper()
	i, err := Probe(f, k, Options{})
	must(t, err)
	return i
}

func TestICELife(t *testing.T) {
	forKernels(t, func(t *testing.T, k Kernel) {
		ctx, sockets, complaints := cards(t, 1)
		f := plug(t, ctx, sockets[0])
		i := probe(t, f, k)
		must(t, i.Open())
		if !i.Link.Up || i.Link.Speed != ICE_AQ_LINK_SPEED_100GB {
			t.Errorf("link is %+v, want 100 Gb/s up", i.Link)
		}
		must(t, i.Close())
		must(t, i.Remove())
		if n := f.Guest.InUse(); n != 0 {
			t.Errorf("%d pages still in use after remove", n)
		}
		quiet(t, complaints)
	})
}
