// SPDX-License-Identifier: Apache-2.0

package vfiouser_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
)

// dice is a device with one register. Without a config space no QEMU would take
// it; directory examples/copier has one that it does.
type dice struct{}

func (dice) Attach(func(index, vector int)) {}
func (dice) Detach()                        {}
func (dice) ReadRegion(_ int, _ uint64, p []byte) error {
	p[0] = 4
	return nil
}
func (dice) WriteRegion(int, uint64, []byte) error { return nil }
func (dice) MapDMA(_, _ uint64, f *os.File, _ uint64, _, _ bool) error {
	if f != nil {
		f.Close() // it is ours now
	}
	return nil
}
func (dice) UnmapDMA(_, _ uint64) error { return nil }
func (dice) UnmapAllDMA()               {}
func (dice) Reset()                     {}

// A device is served on a socket, and tested with a client on the same.
func Example() {
	dir, err := os.MkdirTemp("", "dice")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := vfiouser.Listen(filepath.Join(dir, "socket"))
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()

	var layout vfiouser.Layout
	layout.Regions[vfiouser.RegionBAR0] = vfiouser.Region{Size: 4096, Flags: vfiouser.RegionRead}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- vfiouser.NewServer(dice{}, layout, vfiouser.Options{}).Serve(ctx, l.UnixListener) }()

	c, err := vfiouser.Dial(ctx, l.Path())
	if err != nil {
		log.Fatal(err)
	}
	v, err := c.Read32(vfiouser.RegionBAR0, 0)
	fmt.Println(v, err)
	c.Close()
	stop()
	fmt.Println(<-served)
	// Output:
	// 4 <nil>
	// <nil>
}
