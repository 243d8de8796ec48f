// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"debug/elf"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"

	"github.com/vrnic/vrnic/guest/wire"
	"github.com/vrnic/vrnic/images"
	"golang.org/x/sys/unix"
)

// copiesDir is where Config.Copies are in the archive; the agent moves them to
// their destinations.
const copiesDir = "/.vrnic"

// buildInitrd returns an unnamed file with the concatenated archives and an
// overlay of init, its configuration and the user's files. QEMU takes one
// file; an unnamed one cannot be left behind.
func (c Config) buildInitrd() (_ *os.File, err error) {
	overlay, err := c.overlay()
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("vrnic-initrd", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("initramfs: %w", err)
	}
	out := os.NewFile(uintptr(fd), "initrd")
	defer func() {
		if err != nil {
			out.Close()
		}
	}()
	for _, name := range c.Initrd {
		in, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("initramfs: %w", err)
		}
		_, err = io.Copy(out, in)
		in.Close()
		if err != nil {
			return nil, fmt.Errorf("initramfs: %s: %w", name, err)
		}
		if err := pad(out); err != nil {
			return nil, fmt.Errorf("initramfs: %w", err)
		}
	}
	if err := images.WriteOverlay(out, overlay); err != nil {
		return nil, fmt.Errorf("initramfs: %w", err)
	}
	return out, nil
}

// pad aligns the end of f: an archive must begin at a multiple of four, and
// zeros between two are skipped (init/initramfs.c:unpack_to_rootfs).
func pad(f *os.File) error {
	const align = 512
	end, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, (align-end%align)%align))
	return err
}

func (c Config) overlay() ([]images.OverlayFile, error) {
	init := c.Init
	if init == "" {
		var err error
		if init, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("init: %w", err)
		}
	}
	if err := checkStatic(init); err != nil {
		return nil, fmt.Errorf("init: %w", err)
	}
	files := append([]images.OverlayFile(nil), c.Files...)
	guest := c.Guest
	for i, cp := range c.Copies {
		from := path.Join(copiesDir, strconv.Itoa(i), filepath.Base(cp.Host))
		tree, err := hostTree(cp.Host, from)
		if err != nil {
			return nil, fmt.Errorf("copy %s: %w", cp.Host, err)
		}
		files = append(files, tree...)
		guest.Copies = append(guest.Copies, wire.Copy{From: from, To: cp.Guest})
	}
	config, err := guest.Encode()
	if err != nil {
		return nil, err
	}
	return append(files,
		images.OverlayFile{Path: "/init", Mode: 0o755, Host: init},
		images.OverlayFile{Path: wire.ConfigPath, Mode: 0o644, Data: config},
	), nil
}

// hostTree lists a file, or a directory with all below it, as it appears at to.
func hostTree(from, to string) (files []images.OverlayFile, err error) {
	// What the user names may be a symlink; inside a tree they are kept.
	if from, err = filepath.EvalSymlinks(from); err != nil {
		return nil, err
	}
	err = filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		f := images.OverlayFile{Path: path.Join(to, filepath.ToSlash(rel)), Mode: uint32(info.Mode().Perm())}
		switch info.Mode().Type() {
		case 0:
			f.Host = name
		case fs.ModeDir:
			f.Mode |= unix.S_IFDIR
		case fs.ModeSymlink:
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			f.Mode |= unix.S_IFLNK
			f.Data = []byte(target)
		default:
			return fmt.Errorf("%s is neither a file nor a directory", name)
		}
		files = append(files, f)
		return nil
	})
	return files, err
}

// checkStatic refuses an executable that needs a dynamic loader: the guest's may
// be another one, or none, and the kernel's complaint would be hard to read.
func checkStatic(name string) error {
	f, err := elf.Open(name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is dynamically linked; build it with CGO_ENABLED=0", name)
		}
	}
	return nil
}
