// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
)

const (
	pageSize = 4096
	mib      = 1 << 20
)

// ErrNoMemory says that the guest has no free run of pages of that length.
var ErrNoMemory = errors.New("guest is out of memory")

// banks is how the RAM lies in the device's address space: neither at its
// offset in the file, nor in its order, nor without gaps, and partly where only
// 64-bit addresses reach. Each bank has an equal share of the RAM. Its first
// and its last page are canaries: poison that is in the file, but that no
// address of the device reaches. A server that maps the file as a whole has
// them right beside every bank in its own memory too, and at both ends of the
// mapping; what lies beyond those ends is the host kernel's choice.
var banks = [...]uint64{0x1_4000_0000, 0x3fff_0000_7000, 0x4_0003_3000, 0x0080_1000}

// page states
const (
	fresh    = iota // never touched: zeros, and for the host not even there
	poisoned        // free, around or behind an allocation, or a canary
	used
	sealed // of the ROM
)

// The ROM is a map that the device may only read. It lies right behind the last
// bank, for the device without a gap, in the file behind canaries as the banks
// do. Behind it is a map without a descriptor, which is reached by messages
// alone, and the device sends none.
const (
	romPages     = 16
	messagePages = 16
)

// Guest is the memory of one guest. An allocated run of pages has a poisoned
// one on either side, and what was used of it becomes poison when it is freed.
type Guest struct {
	file   *os.File
	fd     int
	ram    []byte
	bank   uint64  // bytes of one bank, with its canaries
	pages  []uint8 // states
	poison []byte  // one page: as an address in no bank, as a valid bit set
	zero   []byte
	rom    []byte // one page of it
	next   int    // where the search for free pages starts
	found  []string
}

// NewGuest makes a guest with size MiB of RAM.
func NewGuest(size int) (*Guest, error) {
	fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("guest memory: memfd: %w", err)
	}
	g := &Guest{file: os.NewFile(uintptr(fd), "guest"), fd: fd, bank: uint64(size) * mib / uint64(len(banks)),
		pages: make([]uint8, size*mib/pageSize+romPages+2), rom: bytes.Repeat([]byte("ROM!"), pageSize/4), poison: bytes.Repeat([]byte{poisonByte}, pageSize), zero: make([]byte, pageSize)}
	total := len(g.pages) * pageSize
	if err := g.file.Truncate(int64(total)); err != nil {
		g.file.Close()
		return nil, fmt.Errorf("guest memory: %w", err)
	}
	if g.ram, err = unix.Mmap(fd, 0, total, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		g.file.Close()
		return nil, fmt.Errorf("guest memory: mmap: %w", err)
	}
	for n := range banks {
		first := n * g.perBank()
		g.makePoison(first)
		g.makePoison(first + g.perBank() - 1)
	}
	g.makePoison(g.ramPages())
	g.makePoison(len(g.pages) - 1)
	for p := g.ramPages() + 1; p < len(g.pages)-1; p++ {
		g.pages[p] = sealed
		copy(g.page(p), g.rom)
	}
	return g, nil
}

// Close gives the memory back to the host.
func (g *Guest) Close() error {
	return errors.Join(unix.Munmap(g.ram), g.file.Close())
}

func (g *Guest) page(p int) []byte { return g.ram[p*pageSize:][:pageSize] }

// ramPages is the number of pages of all banks, with their canaries.
func (g *Guest) ramPages() int { return len(banks) * g.perBank() }

// ROM is memory that the device may read but not write.
func (g *Guest) ROM() *Buf {
	first := g.ramPages() + 1
	return &Buf{IOVA: g.iova(first), b: g.ram[first*pageSize:][: romPages*pageSize : romPages*pageSize]}
}

// perBank is the number of pages of a bank, with its canaries.
func (g *Guest) perBank() int { return int(g.bank / pageSize) }

// mapped is the number of bytes of a bank that the device reaches.
func (g *Guest) mapped() uint64 { return g.bank - 2*pageSize }

// Ranges are all DMA maps: the banks, the ROM, and the one without a descriptor.
func (g *Guest) Ranges() []vfiouser.DMARange {
	const both = vfiouser.DMARead | vfiouser.DMAWrite
	var list []vfiouser.DMARange
	for n, iova := range banks {
		list = append(list, vfiouser.DMARange{IOVA: iova, Size: g.mapped(), File: g.file, Offset: uint64(n)*g.bank + pageSize, Flags: both})
	}
	rom := g.ROM()
	return append(list,
		vfiouser.DMARange{IOVA: rom.IOVA, Size: uint64(rom.Len()), File: g.file, Offset: uint64(g.ramPages()+1) * pageSize, Flags: vfiouser.DMARead},
		vfiouser.DMARange{IOVA: rom.IOVA + uint64(rom.Len()), Size: messagePages * pageSize, Flags: both})
}

// Map tells the device about all ranges.
func (g *Guest) Map(c *vfiouser.Client) error { return c.MapDMAs(g.Ranges()) }

// Unmap takes all ranges from the device, one by one.
func (g *Guest) Unmap(c *vfiouser.Client) error {
	var all error
	for _, r := range g.Ranges() {
		all = errors.Join(all, c.UnmapDMA(r.IOVA, r.Size))
	}
	return all
}

// Alloc returns zeroed memory of at least size bytes that is contiguous for the
// device. Its address is aligned to a page and deliberately not to more.
func (g *Guest) Alloc(size int) (*Buf, error) {
	n := (size + pageSize - 1) / pageSize
	perBank := g.perBank()
	// Twice around, since a search that starts in the middle of a run of free
	// pages may need its first half too.
	for scanned, p := 0, g.next; scanned < 2*g.ramPages(); {
		at := p
		if p%perBank == 0 {
			p++ // the page before the run stays free, in its bank
		}
		if p/perBank != (p+n)/perBank { // so does the page after it
			p = (p/perBank + 1) * perBank
		} else if busy := g.lastUsed(p-1, n+2); busy >= 0 {
			p = busy + 2
		} else {
			g.next = (p + n + 1) % g.ramPages()
			return g.take(p, n, size), nil
		}
		scanned += p - at
		p %= g.ramPages()
	}
	return nil, fmt.Errorf("allocating %d bytes: %w", size, ErrNoMemory)
}

// lastUsed returns the last page in use among the n pages from p on, or -1.
func (g *Guest) lastUsed(p, n int) int {
	for i := p + n - 1; i >= p; i-- {
		if g.pages[i] == used {
			return i
		}
	}
	return -1
}

func (g *Guest) take(p, n, size int) *Buf {
	for _, edge := range []int{p - 1, p + n} {
		g.inspect(edge)
		g.makePoison(edge)
	}
	holes := p // no page from here to there is there
	for i := p; i < p+n; i++ {
		switch {
		case g.pages[i] == poisoned:
			g.inspect(i)
			clear(g.page(i))
		case i >= holes:
			if holes = g.nextData(i); i == holes {
				g.inspect(i)
			}
		}
		g.pages[i] = used
	}
	return &Buf{IOVA: g.iova(p), b: g.ram[p*pageSize:][:size:size], guest: g}
}

// nextData is the first page from p on that is there for the host.
func (g *Guest) nextData(p int) int {
	at, err := unix.Seek(g.fd, int64(p)*pageSize, unix.SEEK_DATA)
	if err != nil {
		return len(g.pages)
	}
	return min(int(at/pageSize), len(g.pages))
}

func (g *Guest) iova(p int) uint64 {
	if rom := p - g.ramPages() - 1; rom >= -1 {
		return banks[len(banks)-1] + g.mapped() + uint64(rom*pageSize)
	}
	off := uint64(p) * pageSize
	return banks[off/g.bank] + off%g.bank - pageSize // of a canary: outside
}

func (g *Guest) makePoison(p int) {
	if g.pages[p] != poisoned {
		g.pages[p] = poisoned
		copy(g.page(p), g.poison)
	}
}

// inspect notes a free page that somebody wrote to, and mends it.
func (g *Guest) inspect(p int) {
	want := g.poison
	switch g.pages[p] {
	case sealed:
		want = g.rom
	case fresh:
		want = g.zero
		if g.nextData(p) != p {
			return
		}
	}
	page := g.page(p)
	if bytes.Equal(page, want) {
		return
	}
	for i := range page {
		if page[i] != want[i] {
			g.found = append(g.found, fmt.Sprintf("%#x (%s): % x", g.iova(p)+uint64(i), g.kind(p), page[i:min(i+16, pageSize)]))
			break
		}
	}
	copy(page, want)
}

// kind tells a person what a page is.
func (g *Guest) kind(p int) string {
	switch {
	case g.pages[p] == sealed:
		return "ROM"
	case p >= g.ramPages(), p%g.perBank() == 0, p%g.perBank() == g.perBank()-1:
		return "canary beside a map"
	}
	return "free memory"
}

// Check reports writes to memory that belonged to nobody since the last Check:
// to free pages, to those around every allocation, to canaries around every map,
// and to maps that the device may not write to.
func (g *Guest) Check() error {
	for p := 0; p < len(g.pages); p++ {
		switch g.pages[p] {
		case poisoned, sealed:
			g.inspect(p)
		case fresh:
			// On to the next page that is there, or whose state is another.
			next := g.nextData(p)
			for p < next && g.pages[p] == fresh {
				p++
			}
			if p == next && p < len(g.pages) && g.pages[p] == fresh {
				g.inspect(p)
			} else {
				p--
			}
		}
	}
	return g.report()
}

// report tells what inspect found.
func (g *Guest) report() error {
	found := g.found
	g.found = nil
	if len(found) == 0 {
		return nil
	}
	return fmt.Errorf("%w: it wrote to memory that is not its own in %d pages, first at %s", ErrDevice, len(found), found[0])
}

// checkEdges is Check for a guest that told the device to write anywhere: what no
// map with the right to write covers must be as it was.
func (g *Guest) checkEdges() error {
	g.found = nil
	for n := range banks {
		g.inspect(n * g.perBank())
		g.inspect((n+1)*g.perBank() - 1)
	}
	for p := g.ramPages(); p < len(g.pages); p++ {
		g.inspect(p)
	}
	return g.report()
}

// lastByte is the last address of a bank, behind which there is nothing.
func (g *Guest) lastByte() uint64 { return banks[0] + g.mapped() - 1 }

// InUse is the number of allocated pages.
func (g *Guest) InUse() int {
	n := 0
	for _, state := range g.pages {
		if state == used {
			n++
		}
	}
	return n
}

// Buf is a run of guest memory. Offsets are checked as those of a slice are.
type Buf struct {
	IOVA  uint64 // its address for the device
	b     []byte
	guest *Guest
}

// Bytes is the memory itself: fine while the device does not touch it.
func (b *Buf) Bytes() []byte { return b.b }

// part is a piece of b, which goes when b does.
func (b *Buf) part(off, size int) *Buf {
	return &Buf{IOVA: b.IOVA + uint64(off), b: b.b[off : off+size : off+size]}
}

// Len is its size in bytes.
func (b *Buf) Len() int { return len(b.b) }

// Load64 reads a little-endian word with acquire order: what the device wrote
// before that word is visible afterwards.
func (b *Buf) Load64(off int) uint64 {
	return fromLE(atomic.LoadUint64(word(b.b, off)))
}

// Store64 writes a little-endian word with release order.
func (b *Buf) Store64(off int, v uint64) {
	atomic.StoreUint64(word(b.b, off), fromLE(v))
}

func word(b []byte, off int) *uint64 {
	return (*uint64)(unsafe.Pointer(&b[off : off+8][0]))
}

// fromLE turns a word between the byte order of this machine and the device's.
func fromLE(v uint64) uint64 {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], v)
	return binary.LittleEndian.Uint64(b[:])
}

// Free gives the memory back; from now on the device must not touch it.
func (b *Buf) Free() {
	g := b.guest
	if g == nil {
		return
	}
	first := int(uintptr(unsafe.Pointer(&b.b[0]))-uintptr(unsafe.Pointer(&g.ram[0]))) / pageSize
	holes := first
	for p := first; p < first+(len(b.b)+pageSize-1)/pageSize; p++ {
		if p >= holes {
			holes = g.nextData(p)
		}
		if p < holes { // nobody ever wrote to it
			g.pages[p] = fresh
		} else {
			g.makePoison(p)
		}
	}
	b.guest = nil
}

// arena is memory with one owner.
type arena struct{ bufs map[*Buf]struct{} }

func (a *arena) own(b *Buf) *Buf {
	if a.bufs == nil {
		a.bufs = make(map[*Buf]struct{})
	}
	a.bufs[b] = struct{}{}
	return b
}

func (a *arena) free(bufs ...*Buf) {
	for _, b := range bufs {
		if b != nil {
			delete(a.bufs, b)
			b.Free()
		}
	}
}

func (a *arena) freeAll() {
	for b := range a.bufs {
		b.Free()
	}
	a.bufs = nil
}
