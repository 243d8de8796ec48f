// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"sort"
	"strings"

	"github.com/u-root/u-root/pkg/cpio"
)

// archiveFile is one file, symlink, directory or device of an archive.
type archiveFile struct {
	mode   uint64 // cpio.S_IF… and permissions
	host   string // a regular file's content, unless data is set
	data   []byte // or it, or a symlink's target
	rmajor uint64
	rminor uint64
}

// archiveBuilder collects the files of a cpio archive. What it writes depends
// on nothing else: paths are sorted, everything belongs to root, times are 0.
type archiveBuilder struct {
	files map[string]archiveFile
}

func newArchive() *archiveBuilder { return &archiveBuilder{files: map[string]archiveFile{}} }

// cleanName makes a path relative to the root of the archive. Names below the
// links of a merged /usr become those they lead to: a directory record "bin"
// would replace the link (init/initramfs.c:clean_path) and all behind it.
func cleanName(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if first, _, below := strings.Cut(name, "/"); below && slices.Contains(mergedDirs, first) {
		name = "usr/" + name
	}
	return name
}

// put adds a file and the directories above it; a later file replaces an
// earlier one of the same path.
func (b *archiveBuilder) put(name string, f archiveFile) {
	name = cleanName(name)
	if name == "" {
		return
	}
	for d := path.Dir(name); d != "."; d = path.Dir(d) {
		if _, ok := b.files[d]; !ok {
			b.files[d] = archiveFile{mode: cpio.S_IFDIR | 0o755}
		}
	}
	b.files[name] = f
}

func (b *archiveBuilder) has(name string) bool {
	_, ok := b.files[cleanName(name)]
	return ok
}

func (b *archiveBuilder) dir(name string, perm uint64) {
	b.put(name, archiveFile{mode: cpio.S_IFDIR | perm})
}

func (b *archiveBuilder) symlink(name, target string) {
	b.put(name, archiveFile{mode: cpio.S_IFLNK | 0o777, data: []byte(target)})
}

func (b *archiveBuilder) text(name string, perm uint64, text string) {
	b.put(name, archiveFile{mode: cpio.S_IFREG | perm, data: []byte(text)})
}

// fromHost adds what lies at a path of the host: a regular file or a symlink.
func (b *archiveBuilder) fromHost(name, host string) error {
	st, err := os.Lstat(host)
	if err != nil {
		return err
	}
	switch {
	case st.Mode()&os.ModeSymlink != 0:
		target, err := os.Readlink(host)
		if err != nil {
			return err
		}
		b.symlink(name, target)
	case st.Mode().IsRegular():
		b.put(name, archiveFile{mode: cpio.S_IFREG | uint64(st.Mode().Perm()), host: host})
	default:
		return fmt.Errorf("%s is neither a file nor a symlink", host)
	}
	return nil
}

// archiveAlign is what archives are padded to. The kernel wants the next of
// several concatenated archives at a multiple of 4, and skips zeros
// (init/initramfs.c:unpack_to_rootfs).
const archiveAlign = 512

// write writes the archive in the newc format, with trailer and padding.
func (b *archiveBuilder) write(w io.Writer) error {
	names := make([]string, 0, len(b.files))
	for n := range b.files {
		names = append(names, n)
	}
	sort.Strings(names) // a directory sorts before what it contains
	out := &countingWriter{w: bufio.NewWriterSize(w, 1<<20)}
	cw := cpio.Newc.Writer(out)
	for i, n := range names {
		if err := b.files[n].write(cw, n, uint64(i)+1); err != nil {
			return fmt.Errorf("add %s to the archive: %w", n, err)
		}
	}
	if err := cpio.WriteTrailer(cw); err != nil {
		return fmt.Errorf("end the archive: %w", err)
	}
	if r := out.n % archiveAlign; r != 0 {
		if _, err := out.Write(make([]byte, archiveAlign-r)); err != nil {
			return fmt.Errorf("end the archive: %w", err)
		}
	}
	if err := out.w.Flush(); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	return nil
}

// writeFile writes the archive to a new file.
func (b *archiveBuilder) writeFile(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(b.write(f), f.Close())
}

func (f archiveFile) write(w cpio.RecordWriter, name string, ino uint64) error {
	r := cpio.StaticRecord(f.data, cpio.Info{
		Name: name, Mode: f.mode, Ino: ino, NLink: 1, Rmajor: f.rmajor, Rminor: f.rminor,
	})
	switch {
	case f.mode&cpio.S_IFMT == cpio.S_IFDIR:
		r.NLink = 2
	case f.host != "":
		h, err := os.Open(f.host)
		if err != nil {
			return err
		}
		defer h.Close()
		st, err := h.Stat()
		if err != nil {
			return err
		}
		if st.Size() >= 1<<32 {
			return errors.New("files of 4 GiB and more do not fit the newc format")
		}
		r.FileSize = uint64(st.Size())
		// Only the size just seen: a file that grows meanwhile is no error.
		r.ReaderAt = io.NewSectionReader(h, 0, st.Size())
	}
	return w.WriteRecord(r)
}

type countingWriter struct {
	w *bufio.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// OverlayFile is a file of the archive that a launcher appends to the initramfs.
type OverlayFile struct {
	// Path is where it appears in the guest.
	Path string
	// Mode is its type and permissions as in stat(2). No type means a regular
	// file, no permissions those of Host, or 0644. S_IFDIR makes a directory,
	// S_IFLNK a symlink whose target is Data.
	Mode uint32
	// Host is the file on the host that holds its content.
	Host string
	// Data is its content if Host is empty.
	Data []byte
}

// WriteOverlay writes a cpio archive with the given files and the directories
// above them. A later file replaces an earlier one of the same path. The kernel
// unpacks concatenated archives in order, so files of an overlay that follows
// an initramfs win.
//
// Host may be a symlink; the guest gets the file it leads to.
func WriteOverlay(w io.Writer, files []OverlayFile) error {
	b := newArchive()
	for _, f := range files {
		if cleanName(f.Path) == "" {
			return fmt.Errorf("overlay: %q is no path of a file", f.Path)
		}
		perm := uint64(f.Mode) & 0o7777
		switch kind := uint64(f.Mode) & cpio.S_IFMT; {
		case kind == cpio.S_IFDIR:
			b.dir(f.Path, perm)
		case kind == cpio.S_IFLNK:
			b.symlink(f.Path, string(f.Data))
		case kind != 0 && kind != cpio.S_IFREG:
			return fmt.Errorf("overlay %s: no such type of file: mode %#o", f.Path, f.Mode)
		case f.Host != "":
			st, err := os.Stat(f.Host)
			if err != nil {
				return fmt.Errorf("overlay %s: %w", f.Path, err)
			}
			if !st.Mode().IsRegular() {
				return fmt.Errorf("overlay %s: %s is not a regular file", f.Path, f.Host)
			}
			if perm == 0 {
				perm = uint64(st.Mode().Perm())
			}
			b.put(f.Path, archiveFile{mode: cpio.S_IFREG | perm, host: f.Host})
		default:
			if perm == 0 {
				perm = 0o644
			}
			b.put(f.Path, archiveFile{mode: cpio.S_IFREG | perm, data: f.Data})
		}
	}
	return b.write(w)
}
