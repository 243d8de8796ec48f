// SPDX-License-Identifier: Apache-2.0

// Mmiobench runs in a guest and times accesses to registers of PCI devices:
//
//	mmiobench DEVICE…
//
// DEVICE is NAME=VENDOR:DEVICE,OFFSET[,WRITE-OFFSET,VALUE], numbers as Go writes
// them. Once all are open it says "NAME = CONTENT" of each register, and then
// obeys lines on stdin, each answered by one on stdout:
//
//	read NAME COUNT	32-bit reads of OFFSET, one after the other
//	write NAME COUNT	32-bit writes of VALUE to WRITE-OFFSET, and one read of
//			OFFSET behind them, which comes back when the device has
//			taken them all
//
// The answer is the nanoseconds that took, and those until the last write was
// given away (0 for reads).
package main

import (
	"bufio"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("mmiobench: ")
	devices := map[string]*device{}
	for _, arg := range os.Args[1:] {
		d, err := parse(arg)
		if err == nil {
			err = d.open("/sys")
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s = %#x\n", d.name, d.read.Load())
		devices[d.name] = d
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var what, name string
		var count int
		if _, err := fmt.Sscan(in.Text(), &what, &name, &count); err != nil {
			log.Fatalf("%q: %v", in.Text(), err)
		}
		d := devices[name]
		if d == nil {
			log.Fatalf("%q: no such device", in.Text())
		}
		var whole, issue time.Duration
		switch what {
		case "read":
			whole = d.reads(count)
		case "write":
			whole, issue = d.writes(count)
		default:
			log.Fatalf("%q: want read or write", in.Text())
		}
		fmt.Println(whole.Nanoseconds(), issue.Nanoseconds())
	}
}

// device is one PCI function and what to do with it.
type device struct {
	name            string
	vendor, product uint64
	offset, target  uint64
	value           uint32

	// The registers, once open. An atomic load is one of 32 bits that the
	// compiler keeps; an atomic store would be an exchange and read, too.
	read  *atomic.Uint32
	write *uint32
}

func parse(arg string) (*device, error) {
	name, rest, _ := strings.Cut(arg, "=")
	id, rest, _ := strings.Cut(rest, ",")
	vendor, product, ok := strings.Cut(id, ":")
	words := append([]string{vendor, product}, strings.Split(rest, ",")...)
	if !ok || name == "" || len(words) != 3 && len(words) != 5 {
		return nil, fmt.Errorf("device %q: want NAME=VENDOR:DEVICE,OFFSET[,WRITE-OFFSET,VALUE]", arg)
	}
	var n [5]uint64
	for i, w := range words {
		var err error
		if n[i], err = strconv.ParseUint(w, 0, 32); err != nil {
			return nil, fmt.Errorf("device %q: %w", arg, err)
		}
	}
	if n[2]%4 != 0 || n[3]%4 != 0 {
		return nil, fmt.Errorf("device %q: registers are whole dwords", arg)
	}
	return &device{name: name, vendor: n[0], product: n[1], offset: n[2], target: n[3], value: uint32(n[4])}, nil
}

// open finds the function below sys and maps its registers.
func (d *device) open(sys string) error {
	dirs, err := filepath.Glob(filepath.Join(sys, "bus/pci/devices/*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if attr(dir, "vendor") == d.vendor && attr(dir, "device") == d.product {
			return d.mapBAR(dir)
		}
	}
	return fmt.Errorf("%s: no device %04x:%04x", d.name, d.vendor, d.product)
}

func attr(dir, name string) uint64 {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 0, 32)
	if err != nil {
		return 0
	}
	return n
}

func (d *device) mapBAR(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, "driver")); err != nil { // nobody else has enabled it
		if err := os.WriteFile(filepath.Join(dir, "enable"), []byte("1"), 0o200); err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
	}
	f, err := os.OpenFile(filepath.Join(dir, "resource0"), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", d.name, err)
	}
	defer f.Close()
	read, err := register(f, d.offset)
	if err != nil {
		return fmt.Errorf("%s: register %#x: %w", d.name, d.offset, err)
	}
	write, err := register(f, d.target)
	if err != nil {
		return fmt.Errorf("%s: register %#x: %w", d.name, d.target, err)
	}
	d.read, d.write = (*atomic.Uint32)(read), (*uint32)(write)
	return nil
}

// register maps the page of one register for the rest of the program's life.
func register(f *os.File, off uint64) (unsafe.Pointer, error) {
	const page = 4096
	p, err := unix.Mmap(int(f.Fd()), int64(off&^(page-1)), page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return unsafe.Pointer(&p[off%page]), nil
}

func (d *device) reads(n int) time.Duration {
	began := time.Now()
	for range n {
		d.read.Load()
	}
	return time.Since(began)
}

func (d *device) writes(n int) (whole, issue time.Duration) {
	began := time.Now()
	for range n {
		store(d.write, d.value)
	}
	issue = time.Since(began)
	d.read.Load()
	return time.Since(began), issue
}

// store is one store, which the compiler would not repeat if it saw the loop.
//
//go:noinline
func store(p *uint32, v uint32) { *p = v }
