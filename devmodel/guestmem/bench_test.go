// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"fmt"
	"testing"
)

// benchMemory has n maps of two pages each, side by side.
func benchMemory(b *testing.B, n int) *Memory {
	f := memfd(b, n*8192)
	defer f.Close()
	m := &Memory{}
	b.Cleanup(m.UnmapAll)
	for i := range uint64(n) {
		if err := m.Map(i*8192, 8192, dup(b, f), i*8192, true, true); err != nil {
			b.Fatal(err)
		}
	}
	return m
}

func BenchmarkAccess(b *testing.B) {
	for _, maps := range []int{4, 1024} {
		m := benchMemory(b, maps)
		at := uint64(maps/2*8192 + 64)
		p := make([]byte, 64)
		for name, f := range map[string]func() error{
			"Read":    func() error { return m.Read(at, p) },
			"Write":   func() error { return m.Write(at, p) },
			"Load64":  func() error { _, err := m.Load64(at); return err },
			"Store64": func() error { return m.Store64(at, 1) },
			"Copy":    func() error { return Copy(m, at, m, at+4096, 64) },
		} {
			b.Run(fmt.Sprintf("%s/%d", name, maps), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := f(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// A virtual IOMMU maps and unmaps page by page.
func BenchmarkMapPages(b *testing.B) {
	f := memfd(b, 4096)
	defer f.Close()
	for b.Loop() {
		m := &Memory{}
		for i := range uint64(maxMaps) {
			if err := m.Map(i*2*4096, 4096, dup(b, f), 0, true, true); err != nil {
				b.Fatal(err)
			}
		}
		for i := range uint64(maxMaps) {
			if err := m.Unmap(i*2*4096, 4096); err != nil {
				b.Fatal(err)
			}
		}
		m.UnmapAll()
	}
}
