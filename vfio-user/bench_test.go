// SPDX-License-Identifier: Apache-2.0

package vfiouser_test

import (
	"net"
	"os"
	"testing"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
	"github.com/vrnic/vrnic/vfio-user/conformance"
)

// counter is a device that does next to nothing.
type counter struct{ value uint64 }

func newCounter() *counter { return &counter{} }

func (c *counter) Attach(func(index, vector int)) {}
func (c *counter) Detach()                        {}
func (c *counter) ReadRegion(_ int, _ uint64, p []byte) error {
	p[0] = byte(c.value)
	return nil
}
func (c *counter) WriteRegion(int, uint64, []byte) error {
	c.value++
	return nil
}
func (c *counter) MapDMA(_, _ uint64, f *os.File, _ uint64, _, _ bool) error {
	if f != nil {
		f.Close()
	}
	return nil
}
func (c *counter) UnmapDMA(_, _ uint64) error { return nil }
func (c *counter) UnmapAllDMA()               {}
func (c *counter) Reset()                     {}

// rawClient is a connection with VERSION agreed on, for loops without the
// client's own cost.
func rawClient(tb testing.TB, path string) net.Conn {
	tb.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	roundTrip(tb, conn, conformance.Message(0, vfiouser.CmdVersion, 0, conformance.U32(0), []byte(vfiouser.QEMUCapabilities), []byte{0}), make([]byte, 512))
	return conn
}

func roundTrip(tb testing.TB, conn net.Conn, send, receive []byte) {
	if _, err := conn.Write(send); err != nil {
		tb.Fatal(err)
	}
	if _, err := conn.Read(receive); err != nil {
		tb.Fatal(err)
	}
}

// TestNoAllocation: region accesses and interrupts cost the collector nothing.
func TestNoAllocation(t *testing.T) {
	if testing.CoverMode() != "" {
		t.Skip("coverage counts as allocation")
	}
	path, _ := serveDevice(t, newCounter(), vfiouser.Options{})
	conn := rawClient(t, path)
	read := conformance.Message(1, vfiouser.CmdRegionRead, 0, conformance.U64(0), conformance.U32(0, 8))
	write := conformance.Message(2, vfiouser.CmdRegionWrite, vfiouser.FlagNoReply, conformance.U64(0), conformance.U32(0, 4, 1))
	both, buf := append(write, read...), make([]byte, 64)
	if n := testing.AllocsPerRun(1000, func() { roundTrip(t, conn, both, buf) }); n != 0 {
		t.Errorf("%v allocations for a write and a read, in client and server", n)
	}
}

func BenchmarkRead(b *testing.B) {
	path, _ := serveDevice(b, newCounter(), vfiouser.Options{})
	conn := rawClient(b, path)
	read := conformance.Message(1, vfiouser.CmdRegionRead, 0, conformance.U64(0), conformance.U32(0, 4))
	buf := make([]byte, 64)
	b.ReportAllocs()
	for b.Loop() {
		roundTrip(b, conn, read, buf)
	}
}

func BenchmarkClientRead(b *testing.B) {
	path, _ := serveDevice(b, newCounter(), vfiouser.Options{})
	c := dial(b, path)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Read32(0, 0); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPostMulti(b *testing.B) {
	path, _ := serveDevice(b, newCounter(), vfiouser.Options{})
	c := dial(b, path)
	writes := make([]vfiouser.RegionWriteOp, 200)
	for i := range writes {
		writes[i] = vfiouser.RegionWriteOp{Data: []byte{1, 2, 3, 4}}
	}
	for b.Loop() {
		if err := c.PostRegions(writes); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := c.Read32(0, 0); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N*len(writes))/b.Elapsed().Seconds(), "writes/s")
}
