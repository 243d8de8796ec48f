// SPDX-License-Identifier: Apache-2.0

package devmodel

import "testing"

// A driver, or whoever plays one, may write PFSWR again and again.
func BenchmarkFunctionReset(b *testing.B) {
	d := New(Config{})
	defer d.Close()
	d.Attach(func(int, int) {})
	p := []byte{1, 0, 0, 0}
	b.ReportAllocs()
	for b.Loop() {
		if err := d.WriteRegion(0, pfgenCtrlOffset, p); err != nil {
			b.Fatal(err)
		}
	}
}
