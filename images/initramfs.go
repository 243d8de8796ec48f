// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/u-root/u-root/pkg/cpio"
)

// initramfsFormat changes with what buildInitramfs makes of the same parts.
const initramfsFormat = 1

// Initramfs returns the path of an archive (newc, not compressed: that boots
// fastest without KVM) with the userland, a kernel's modules, and the firmware
// of the device. It has no init: the launcher's overlay brings that.
func (c *Cache) Initramfs(ctx context.Context, k *Kernel) (string, error) {
	if k == nil || k.entry == nil {
		return "", fmt.Errorf("build an initramfs: the kernel is not of this cache")
	}
	v := baseVariant
	name := initramfsName(k.entry.Name)
	if u := c.current(v.name, hashOf(v.recipe())); u != nil {
		if e := c.byKey(name, initramfsKey(u, k.entry, v)); e != nil {
			return e.path(initramfsFile), nil
		}
	}
	var path string
	err := c.locked(ctx, func() error {
		e, err := c.initramfsLocked(ctx, k.entry, v)
		if err == nil {
			path = e.path(initramfsFile)
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("build an initramfs for kernel %s: %w", k.Release, err)
	}
	return path, nil
}

const initramfsFile = "initramfs.cpio"

func initramfsName(kernel string) string { return "initramfs-" + kernel }

func initramfsKey(userland, kernel *entry, v variant) string {
	return hashOf([]any{initramfsFormat, userland.id(), kernel.id(), v.packages, v.libs, v.drop})
}

func (c *Cache) initramfsLocked(ctx context.Context, kernel *entry, v variant) (*entry, error) {
	u, err := c.variantLocked(ctx, v, false)
	if err != nil {
		return nil, err
	}
	name, key := initramfsName(kernel.Name), initramfsKey(u, kernel, v)
	if e := c.byKey(name, key); e != nil {
		return e, c.selectLocked(name, key)
	}
	c.log.Info("building initramfs", "kernel", kernel.Release)
	b := newArchive()
	if err := addUserland(ctx, b, u, v); err != nil {
		return nil, err
	}
	if err := addTree(b, "usr/lib/modules", kernel.path("lib/modules")); err != nil {
		return nil, err
	}
	dir, err := c.tempLocked(name)
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(filepath.Join(dir, "root"), 0o755); err != nil {
		return nil, err
	}
	if err := b.writeFile(filepath.Join(dir, "root", initramfsFile)); err != nil {
		return nil, err
	}
	return c.publishLocked(dir, Manifest{
		Name: name, Key: key, Recipe: hashOf(initramfsFormat), Version: kernel.Release, Release: kernel.Release,
		From: []string{u.id(), kernel.id()},
	})
}

// addTree adds all files below a directory of the host.
func addTree(b *archiveBuilder, name, host string) error {
	return filepath.WalkDir(host, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(host, p)
		if err != nil {
			return err
		}
		return b.fromHost(filepath.Join(name, rel), p)
	})
}

// addBaseFiles adds what a system has besides programs.
func addBaseFiles(b *archiveBuilder) {
	for _, d := range []string{"dev", "etc", "home", "mnt", "opt", "proc", "run", "sys", "var", "var/log"} {
		b.dir(d, 0o755)
	}
	b.dir("root", 0o700)
	b.dir("tmp", 0o1777)
	b.dir("var/tmp", 0o1777)
	b.symlink("var/run", "../run")
	// The kernel opens it for init before devtmpfs is there.
	b.put("dev/console", archiveFile{mode: cpio.S_IFCHR | 0o600, rmajor: 5, rminor: 1})
	b.put("dev/null", archiveFile{mode: cpio.S_IFCHR | 0o666, rmajor: 1, rminor: 3})
	b.text("etc/passwd", 0o644, "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n")
	b.text("etc/group", 0o644, "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n")
	b.text("etc/shells", 0o644, "/bin/sh\n")
	b.text("etc/nsswitch.conf", 0o644, "passwd: files\ngroup: files\nhosts: files\nnetworks: files\nprotocols: files\nservices: files\n")
	b.text("etc/hosts", 0o644, "127.0.0.1 localhost\n::1 localhost\n")
	b.symlink("etc/mtab", "/proc/self/mounts")
}
