// SPDX-License-Identifier: Apache-2.0

// Copier serves a small PCI device over vfio-user: an engine that copies guest
// memory and raises an MSI-X interrupt when it is done. It shows how a device is
// built on package vfiouser; device.go is the whole of it.
//
//	go run ./vfio-user/examples/copier -socket /tmp/copier.sock
//
// prints the arguments to start QEMU with. In the guest the device is 1234:c0b1,
// and its registers (see the constants in device.go) are in BAR 0.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/hashicorp/go-hclog"
	vfiouser "github.com/vrnic/vrnic/vfio-user"
	"golang.org/x/sys/unix"
)

func main() {
	socket := flag.String("socket", "copier.sock", "`path` of the socket")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := serve(ctx, *socket); err != nil {
		fmt.Fprintln(os.Stderr, "copier:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, path string) error {
	l, err := vfiouser.Listen(path)
	if err != nil {
		return err
	}
	defer l.Close()
	fmt.Printf(`-object memory-backend-memfd,id=mem0,size=512M,share=on -machine q35,memory-backend=mem0 -m 512M \
-device '{"driver":"vfio-user-pci","socket":{"type":"unix","path":%q}}'
`, path)
	log := hclog.New(&hclog.LoggerOptions{Name: "copier", Level: hclog.Info})
	return vfiouser.NewServer(newCopier(log), layout(), vfiouser.Options{Logger: log}).Serve(ctx, l.UnixListener)
}
