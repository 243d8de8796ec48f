// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	devicehmc "github.com/vrnic/vrnic/devmodel/hmc"
)

// pagedPBLEs is a card whose PBLEs are all in paged segments.
func pagedPBLEs(t *testing.T) devicehmc.Personality {
	t.Helper()
	p, err := devicehmc.LoadPersonality("paged-pbles")
	must(t, err)
	return p
}

// broke are the rules of findings, each once.
func broke(lines []string) (rules []string) {
	for _, line := range lines {
		if _, rest, ok := strings.Cut(line, "error["); ok {
			rule, _, _ := strings.Cut(rest, "]")
			if !slices.Contains(rules, rule) {
				rules = append(rules, rule)
			}
		}
	}
	return rules
}

// twin is a region like another one, elsewhere.
func twin(t *testing.T, r *IRDMA, rnd *rand.Rand, m *Region) *Region {
	t.Helper()
	other, err := r.F.Guest.NewRegion(rnd, m.VA, m.Size, m.PageSize)
	must(t, err)
	return other
}

// The page descriptor of a region's list comes to name another page, with other
// entries. Without PFHMC_PDINV the device goes on with the old list, and says so;
// with it the new one is used, and nothing is said.
func TestStalePDOfRegion(t *testing.T) {
	g := newGuestOf(t, 256)
	m, complaints := startAs(t, pagedPBLEs(t), Linux73(), Options{}, g)
	r, rnd := m.r, rand.New(rand.NewPCG(13, 1))
	a, b := newPair(t, r, rnd, pairOptions{})
	other := twin(t, r, rnd, b.mem.Region)

	list := b.mem.mr.list
	page, off := r.pbleWord(list.index)
	next, err := g.Alloc(pageSize)
	must(t, err)
	copy(next.Bytes(), page.Bytes())
	for k, iova := range other.addresses() {
		next.Store64(off+pbleSize*k, iova)
	}
	fpm := r.pble.base + list.index*pbleSize
	sd, pd := fpm/sdSize, int(fpm%sdSize/pageSize)
	descriptor := r.hmc.sds[sd].buf

	const n = 20_000
	lands := func(in, not *Region) {
		t.Helper()
		for _, m := range []*Region{in, not} {
			m.Poison(0, n)
		}
		fillRandom(rnd, a.mem.want[:n])
		a.mem.Write(0, a.mem.want[:n])
		must(t, a.qp.PostSend(a.write(1, b, 0, n)))
		a.waitFor(t, sent(1, Success))
		if at := in.Differs(0, a.mem.want[:n]); at >= 0 {
			t.Errorf("byte %d is not where it should be", at)
		}
		poison := slices.Repeat([]byte{poisonByte}, n)
		if at := not.Differs(0, poison); at >= 0 {
			t.Errorf("byte %d is where it should not be", at)
		}
	}
	// A QP that is still at work on the write before looks for the next one without
	// a doorbell, and may find it sooner than the card finds what was written to a
	// register: reading one waits for that.
	invalidate := func() {
		r.invalidatePD(sd, pd)
		m.f.Read32(PFHMC_PDINV)
	}
	lands(b.mem.Region, other)
	quiet(t, complaints)

	descriptor.Store64(8*pd, next.IOVA|1)
	lands(b.mem.Region, other)
	lands(b.mem.Region, other)
	if rules := broke(complaints.take()); !slices.Equal(rules, []string{"pd-stale"}) {
		t.Errorf("a stale page descriptor broke the rules %q, want pd-stale", rules)
	}

	invalidate()
	lands(other, b.mem.Region)
	quiet(t, complaints)

	descriptor.Store64(8*pd, page.IOVA|1)
	invalidate()
	lands(b.mem.Region, other)
	quiet(t, complaints)
	endSides(t, a, b)
	other.Free()
	next.Free()
	must(t, m.takeDown())
	quiet(t, complaints)
}

// A driver that never writes PFHMC_PDINV is told of at the first use of a page
// descriptor, each once; one that does never is. Nothing else changes.
func TestNoPDINV(t *testing.T) {
	for _, without := range []bool{false, true} {
		m, complaints := startAs(t, pagedPBLEs(t), Linux73(), Options{NoPDINV: without}, newGuestOf(t, 256))
		a, b := newPair(t, m.r, rand.New(rand.NewPCG(13, 2)), pairOptions{})
		must(t, a.qp.PostSend(a.write(1, b, 0, 50_000)))
		a.waitFor(t, sent(1, Success))
		moved(t, a, b, 0, 50_000)
		lines := complaints.take()
		want := []string(nil)
		if without {
			want = []string{"pd-no-pdinv"}
		}
		if rules := broke(lines); !slices.Equal(rules, want) {
			t.Errorf("PFHMC_PDINV left out: %v; broke %q, want %q: %q", without, rules, want, lines)
		}
		endSides(t, a, b)
		must(t, m.takeDown())
	}
}
