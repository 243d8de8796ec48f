// SPDX-License-Identifier: Apache-2.0

package minidriver

import "testing"

func benchFunction(b *testing.B) *Function {
	b.Helper()
	sockets, _ := serveCards(b, b.Context(), 1)
	g, err := NewGuest(guestMiB)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { g.Close() })
	f, err := Attach(b.Context(), sockets[0], g)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(f.Detach)
	return f
}

// BenchmarkLife is one bring-up and teardown of both drivers.
func BenchmarkLife(b *testing.B) {
	f := benchFunction(b)
	for b.Loop() {
		m, err := bringUp(f, Linux73(), Options{})
		if err != nil {
			b.Fatal(err)
		}
		if err := m.takeDown(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCQP is one control operation, completed by interrupt.
func BenchmarkCQP(b *testing.B) {
	f := benchFunction(b)
	m, err := bringUp(f, Linux73(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := m.r.Exec(IRDMA_CQP_OP_NOP, WQE{}); err != nil {
			b.Fatal(err)
		}
	}
	if err := m.takeDown(); err != nil {
		b.Fatal(err)
	}
}
