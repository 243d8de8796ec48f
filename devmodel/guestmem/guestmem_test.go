// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// memfd returns a file of size bytes filled with a pattern.
func memfd(t testing.TB, size int) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("guestmem-test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "guestmem-test")
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i>>12 + i)
	}
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	return f
}

// dup gives Map a descriptor of its own to close.
func dup(t testing.TB, f *os.File) *os.File {
	t.Helper()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), f.Name())
}

func TestNewRangeRefusesWrap(t *testing.T) {
	for _, c := range []struct {
		start, size uint64
		ok          bool
	}{
		{0, 0, true}, {^uint64(0), 0, true}, {^uint64(0), 1, true}, {^uint64(0), 2, false},
		{1, ^uint64(0), true}, {2, ^uint64(0), false}, {1 << 63, 1 << 63, true}, {1<<63 + 1, 1 << 63, false},
	} {
		if _, err := NewRange(c.start, c.size); (err == nil) != c.ok {
			t.Errorf("NewRange(%#x, %#x): error %v, want ok %v", c.start, c.size, err, c.ok)
		}
	}
}

func TestAccessAcrossTouchingMaps(t *testing.T) {
	f := memfd(t, 4*4096)
	defer f.Close()
	var m Memory
	defer m.UnmapAll()
	// Pages 3 and 1 of the file, side by side in IOVA space.
	if err := m.Map(0x10000, 4096, dup(t, f), 3*4096, true, true); err != nil {
		t.Fatal(err)
	}
	if err := m.Map(0x11000, 4096, dup(t, f), 1*4096, true, true); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 16)
	if err := m.Read(0x11000-8, got); err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 16)
	if _, err := f.ReadAt(want[:8], 4*4096-8); err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReadAt(want[8:], 4096); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("read across two maps: got %x, want %x", got, want)
	}
	if err := m.Write(0x11000-4, []byte("abcdefgh")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4)
	if _, err := f.ReadAt(b, 4*4096-4); err != nil || string(b) != "abcd" {
		t.Errorf("end of first map: %q, %v", b, err)
	}
	if _, err := f.ReadAt(b, 4096); err != nil || string(b) != "efgh" {
		t.Errorf("start of second map: %q, %v", b, err)
	}
}

func TestFaultsMoveNothing(t *testing.T) {
	f := memfd(t, 2*4096)
	defer f.Close()
	var m Memory
	defer m.UnmapAll()
	if err := m.Map(0x1000, 4096, dup(t, f), 0, true, true); err != nil {
		t.Fatal(err)
	}
	if err := m.Map(0x2000, 4096, dup(t, f), 4096, true, false); err != nil {
		t.Fatal(err)
	}
	if err := m.Map(0x8000, 4096, nil, 0, true, true); err != nil {
		t.Fatal(err)
	}
	before := make([]byte, 2*4096)
	if _, err := f.ReadAt(before, 0); err != nil {
		t.Fatal(err)
	}
	buf := bytes.Repeat([]byte{0xEE}, 32)
	var fault *Fault
	for name, err := range map[string]error{
		"write into a read-only map": m.Write(0x2000-16, buf),
		"read past the last map":     m.Read(0x3000-16, buf),
		"unmapped":                   m.Read(0x5000, buf),
		"no descriptor":              m.Read(0x8000, buf),
		"wrap":                       m.Read(^uint64(0)-7, buf),
		"misaligned store":           m.Store64(0x1004, 1),
	} {
		if !errors.As(err, &fault) {
			t.Errorf("%s: error %v, want a *Fault", name, err)
		}
	}
	after := make([]byte, 2*4096)
	if _, err := f.ReadAt(after, 0); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, after) {
		t.Error("a faulting write changed memory")
	}
	if !bytes.Equal(buf, bytes.Repeat([]byte{0xEE}, 32)) {
		t.Error("a faulting read changed the caller's buffer")
	}
}

// Whoever touches memory without a descriptor, somebody is told.
func TestMissingDescriptorIsTold(t *testing.T) {
	var told []uint64
	m := Memory{Missing: func(iova uint64) { told = append(told, iova) }}
	f := memfd(t, 4096)
	if err := m.Map(0x1000, 4096, nil, 0, true, true); err != nil {
		t.Fatal(err)
	}
	if err := m.Map(0x2000, 4096, f, 0, true, true); err != nil {
		t.Fatal(err)
	}
	defer m.UnmapAll()
	for _, err := range []error{m.Read(0x1008, make([]byte, 4)), Copy(&m, 0x1010, &m, 0x2000, 8), m.Store64(0x1018, 1)} {
		if !errors.Is(err, ErrNoDescriptor) {
			t.Errorf("error %v", err)
		}
	}
	if err := m.Read(0x9000, make([]byte, 4)); errors.Is(err, ErrNoDescriptor) {
		t.Error("memory that is not mapped at all")
	}
	if !slices.Equal(told, []uint64{0x1008, 0x1010, 0x1018}) {
		t.Errorf("told %#x", told)
	}
}

func TestMapRefuses(t *testing.T) {
	f := memfd(t, 2*4096)
	defer f.Close()
	var m Memory
	defer m.UnmapAll()
	if err := m.Map(0x4000, 0x2000, dup(t, f), 0, true, true); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name             string
		iova, size, off  uint64
		want             syscall.Errno
		withoutDesciptor bool
	}{
		{"overlap at the end", 0x5000, 0x1000, 0, syscall.EEXIST, false},
		{"overlap at the start", 0x3000, 0x2000, 0, syscall.EEXIST, false},
		{"around", 0x1000, 0x2000 * 8, 0, syscall.EEXIST, true},
		{"file too short", 0x10000, 0x3000, 0, syscall.EINVAL, false},
		{"offset past the end", 0x10000, 0x1000, 0x3000, syscall.EINVAL, false},
		{"offset that wraps", 0x10000, 0x1000, ^uint64(0) - 0xfff, syscall.EINVAL, false},
		{"wrap", ^uint64(0) - 0xfff, 0x2000, 0, syscall.EINVAL, true},
		{"nothing", 0x10000, 0, 0, syscall.EINVAL, true},
		{"too big", 0x10000, 1 << 44, 0, syscall.ENOSPC, true},
		{"misaligned", 0x10800, 0x1000, 0, syscall.EINVAL, false},
	} {
		var file *os.File
		if !c.withoutDesciptor {
			file = dup(t, f)
		}
		if err := m.Map(c.iova, c.size, file, c.off, true, true); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.want)
		}
	}
}

func TestUnmap(t *testing.T) {
	f := memfd(t, 2*4096)
	defer f.Close()
	var m Memory
	defer m.UnmapAll()
	for _, iova := range []uint64{0x4000, 0x8000} {
		if err := m.Map(iova, 0x2000, dup(t, f), 0, true, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Unmap(0x4000, 0x1000); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("cutting a map: error %v, want EINVAL", err)
	}
	if err := m.Unmap(0x100000, 1<<47); err != nil {
		t.Errorf("unmap of nothing: %v", err)
	}
	if err := m.Unmap(0, 0x7000); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if err := m.Read(0x4000, b); err == nil {
		t.Error("unmapped memory is still readable")
	}
	if err := m.Read(0x8000, b); err != nil {
		t.Errorf("the other map is gone too: %v", err)
	}
}

// A guest can truncate the file behind its own memory: its device gets a
// fault, the process lives.
func TestTruncatedFileFaults(t *testing.T) {
	f := memfd(t, 4*4096)
	defer f.Close()
	var m Memory
	defer m.UnmapAll()
	if err := m.Map(0, 4*4096, dup(t, f), 0, true, true); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	var fault *Fault
	if err := m.Read(2*4096, make([]byte, 64)); !errors.As(err, &fault) {
		t.Errorf("read of truncated memory: %v, want a *Fault", err)
	}
	if _, err := m.Load64(2 * 4096); !errors.As(err, &fault) {
		t.Errorf("load of truncated memory: %v, want a *Fault", err)
	}
	if err := m.Read(0, make([]byte, 64)); err != nil {
		t.Errorf("the remaining page: %v", err)
	}
	if err := m.Unmap(0, 4*4096); err != nil { // the lock was released
		t.Error(err)
	}
}

func TestWordsAreLittleEndianAndShared(t *testing.T) {
	f := memfd(t, 4096)
	defer f.Close()
	var m Memory
	defer m.UnmapAll()
	if err := m.Map(0x7000, 4096, dup(t, f), 0, true, true); err != nil {
		t.Fatal(err)
	}
	if err := m.Store64(0x7008, 0x0102030405060708); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 8)
	if _, err := f.ReadAt(b, 8); err != nil || !bytes.Equal(b, []byte{8, 7, 6, 5, 4, 3, 2, 1}) {
		t.Errorf("stored word reads % x, %v", b, err)
	}
	if v, err := m.Load64(0x7008); err != nil || v != 0x0102030405060708 {
		t.Errorf("Load64 = %#x, %v", v, err)
	}
}

// A client may map page by page, and the same page again and again, and the
// process must not run out of mappings.
func TestManyMapsOfOneFileAreOneMapping(t *testing.T) {
	f := memfd(t, 4*4096)
	defer f.Close()
	var m Memory
	defer m.UnmapAll()
	for i := range uint64(3000) {
		if err := m.Map(i*0x2000, 4096, dup(t, f), i%4*4096, true, true); err != nil {
			t.Fatal(err)
		}
	}
	if n := m.files.mappings; n != 1 {
		t.Errorf("%d mappings, want 1", n)
	}
	want, got := make([]byte, 8), make([]byte, 8)
	if _, err := f.ReadAt(want, 3*4096); err != nil {
		t.Fatal(err)
	}
	if err := m.Read(2999*0x2000, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("page 3 of the file reads % x, %v, want % x", got, err, want)
	}
	if err := m.Unmap(0, 2999*0x2000); err != nil {
		t.Fatal(err)
	}
	if err := m.Read(2999*0x2000, got); err != nil {
		t.Errorf("the last map went with the others: %v", err)
	}
	m.UnmapAll()
	nothingLeft(t, &m)
}

func nothingLeft(t *testing.T, m *Memory) {
	t.Helper()
	if f := &m.files; len(f.newest) != 0 || f.mappings != 0 || f.virtual != 0 || m.past != nil || m.pastMaps != 0 {
		t.Errorf("%d mappings of %d bytes are left, %d files, %d eras", f.mappings, f.virtual, len(f.newest), len(m.past))
	}
}

func TestAGrownFileIsMappedAgain(t *testing.T) {
	f := memfd(t, 4096)
	defer f.Close()
	var m Memory
	defer m.UnmapAll()
	if err := m.Map(0, 4096, dup(t, f), 0, true, true); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(2 * 4096); err != nil {
		t.Fatal(err)
	}
	if err := m.Map(0x10000, 4096, dup(t, f), 4096, true, true); err != nil {
		t.Fatal(err)
	}
	for _, iova := range []uint64{0, 0x10000} {
		if err := m.Write(iova, []byte{1}); err != nil {
			t.Error(err)
		}
	}
}

// A file may grow by a page before every map.
func TestAFileThatGrowsAndGrowsIsFewMappings(t *testing.T) {
	f := memfd(t, 4096)
	defer f.Close()
	var m Memory
	defer m.UnmapAll()
	last := uint64(0)
	for i := range uint64(2000) {
		if err := f.Truncate(int64(i+1) * 4096); err != nil {
			t.Fatal(err)
		}
		last = i * 0x2000
		if err := m.Map(last, 4096, dup(t, f), i*4096, true, true); err != nil {
			t.Fatal(err)
		}
	}
	if n := m.files.mappings; n > 12 {
		t.Errorf("%d mappings, want at most 12", n)
	}
	if err := m.Write(last, []byte("here")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := f.ReadAt(got, 1999*4096); err != nil || string(got) != "here" {
		t.Errorf("the last page has %q, %v", got, err)
	}
	// What of the mapping lies behind the file's end nobody reaches.
	var fault *Fault
	if err := m.Read(last+4096, got); !errors.As(err, &fault) {
		t.Errorf("behind the file: %v", err)
	}
	m.UnmapAll()
	nothingLeft(t, &m)
}

// A mapping that a longer one has replaced costs the process as much as any.
func TestMappingsOfGrownFilesAreBounded(t *testing.T) {
	var m Memory
	defer m.UnmapAll()
	var err error
	n := 0
	for iova := uint64(0); err == nil && n <= maxMappings; {
		f := memfd(t, 4096)
		defer f.Close()
		for size := uint64(4096); err == nil && size <= 4096<<15; size *= 2 {
			if err := f.Truncate(int64(size)); err != nil {
				t.Fatal(err)
			}
			if err = m.Map(iova, 4096, dup(t, f), size-4096, true, true); err == nil {
				n++
			}
			iova += 4096
		}
	}
	if !errors.Is(err, syscall.ENOSPC) || n != maxMappings {
		t.Errorf("after %d mappings: %v, want ENOSPC after %d", n, err, maxMappings)
	}
	m.UnmapAll()
	nothingLeft(t, &m)
}

// A page of a file that somebody serves may never come. (The kernel's own such
// file systems stand for those that a client could mount.)
func TestFilesThatMayKeepUsWaitingAreRefused(t *testing.T) {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	var m Memory
	if err := m.Map(0, 4096, f, 0, true, false); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "keep the card waiting") {
		t.Errorf("map of a file in /proc: %v", err)
	}
}

func TestAFileOnDisk(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "ram"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	if _, err := examine(f); err != nil {
		t.Skip("temporary files are on a file system that is refused: ", err)
	}
	var m Memory
	defer m.UnmapAll()
	if err := m.Map(0, 4096, dup(t, f), 0, true, true); err != nil {
		t.Fatal(err)
	}
	if err := m.Write(0, []byte("x")); err != nil {
		t.Error(err)
	}
}

func TestFilesAreBounded(t *testing.T) {
	var m Memory
	defer m.UnmapAll()
	var err error
	n := 0
	for ; err == nil && n <= maxMappings; n++ {
		f := memfd(t, 4096)
		err = m.Map(uint64(n)*4096, 4096, f, 0, true, true)
	}
	if !errors.Is(err, syscall.ENOSPC) || n != maxMappings+1 {
		t.Errorf("file %d: %v, want ENOSPC for file %d", n, err, maxMappings+1)
	}
}
