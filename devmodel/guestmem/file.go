// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Limits of the mappings that one device may cost. The process has 65530
// (vm.max_map_count), and dies where it needs one more.
const (
	maxMappings = 256
	maxVirtual  = 1 << 44 // bytes of all mappings together
)

// file is a mapping of a file behind maps. A file is mapped once and as a
// whole, however many DMA maps show parts of it. Of one that has grown there is
// a longer mapping, too, and the shorter one lives as long as its regions.
type file struct {
	id    fileID
	bytes []byte
	refs  int // regions
}

type fileID struct {
	dev, ino uint64
	writable bool
}

// files are the mappings of one device; its Memory's lock guards them.
type files struct {
	newest   map[fileID]*file
	mappings int      // all there are, garbage included
	virtual  uint64   // bytes of these
	garbage  [][]byte // mappings without a user, which the lock's holder unmaps
}

// fileInfo is what matters of a client's file.
type fileInfo struct {
	dev, ino uint64
	size     uint64
	block    uint64 // hugetlbfs: the size of a page
	inMemory bool   // tmpfs, hugetlbfs, memfd
}

// examine looks at a client's descriptor without waiting for anybody. It
// refuses, by EINVAL, all but regular files in memory or on a block device: a
// page of others comes from a server, or from the client itself, which may keep
// an access waiting for ever (FUSE, NFS, SMB, 9P).
func examine(f *os.File) (fileInfo, error) {
	fd := int(f.Fd())
	var st unix.Statx_t
	// Without AT_STATX_DONT_SYNC a file system may ask its server.
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_BASIC_STATS, &st); err != nil {
		return fileInfo{}, fmt.Errorf("stat of DMA map descriptor: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fileInfo{}, fmt.Errorf("DMA map of something that is no regular file: %w", syscall.EINVAL)
	}
	info := fileInfo{dev: unix.Mkdev(st.Dev_major, st.Dev_minor), ino: st.Ino, size: st.Size, block: uint64(st.Blksize)}
	// Of all file systems only those in memory know seals.
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	info.inMemory = err == nil
	if !info.inMemory && st.Dev_major == 0 {
		return fileInfo{}, fmt.Errorf("DMA map of a file on a file system without a device of its own (FUSE, NFS, overlay, ...), which may keep the card waiting; use memory-backend-memfd, or a file in tmpfs or hugetlbfs: %w", syscall.EINVAL)
	}
	return info, nil
}

// mayEndBehind tells whether a mapping of f may be longer than f. It makes a
// file of hugetlbfs longer.
func (info *fileInfo) mayEndBehind(f *os.File) bool {
	var fs unix.Statfs_t
	return !info.inMemory || unix.Fstatfs(int(f.Fd()), &fs) == nil && fs.Type != unix.HUGETLBFS_MAGIC
}

// open returns the mapping of f, of which at least off+size bytes exist.
func (fs *files) open(f *os.File, info fileInfo, off, size uint64, writable bool) (*file, error) {
	if off > info.size || size > info.size-off {
		return nil, fmt.Errorf("DMA map of file offset %#x+%#x, but the file has %#x bytes: %w", off, size, info.size, syscall.EINVAL)
	}
	id := fileID{info.dev, info.ino, writable}
	have := fs.newest[id]
	if have != nil && uint64(len(have.bytes)) >= off+size {
		return have, nil
	}
	// hugetlb files want a length in whole pages of theirs.
	length := info.size
	if b := info.block; b > pageSize && b&(b-1) == 0 && b <= 1<<30 {
		length = (length + b - 1) &^ (b - 1)
	}
	if have != nil && info.mayEndBehind(f) {
		// What grows once grows again (hotplug, virtio-mem).
		if ahead := 2 * uint64(len(have.bytes)); ahead > length && fs.room(ahead) {
			length = ahead
		}
	}
	if !fs.room(length) {
		return nil, fmt.Errorf("DMA map of another %#x bytes of a file, beside %d mappings of %#x bytes: %w", length, fs.mappings, fs.virtual, syscall.ENOSPC)
	}
	prot := unix.PROT_READ
	if writable {
		prot |= unix.PROT_WRITE
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(length), prot, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mmap of %#x bytes of guest memory: %w", length, err)
	}
	n := &file{id: id, bytes: b}
	if fs.newest == nil {
		fs.newest = map[fileID]*file{}
	}
	fs.newest[id] = n
	fs.mappings++
	fs.virtual += length
	return n, nil
}

// room tells whether a mapping of n bytes more is within the limits.
func (fs *files) room(n uint64) bool {
	return fs.mappings < maxMappings && n <= maxMapSize && fs.virtual+n <= maxVirtual
}

// close ends a region's use of its mapping f, which may be nil.
func (fs *files) close(f *file) {
	if f == nil {
		return
	}
	if f.refs--; f.refs > 0 {
		return
	}
	if fs.newest[f.id] == f {
		delete(fs.newest, f.id)
	}
	fs.garbage = append(fs.garbage, f.bytes)
}

// gone takes note that garbage is unmapped.
func (fs *files) gone(b []byte) {
	fs.mappings--
	fs.virtual -= uint64(len(b))
}
