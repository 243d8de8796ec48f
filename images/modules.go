// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/u-root/u-root/pkg/kmodule"
)

// guestModules are what a guest can load, besides what these depend on. A
// kernel that lacks one, or has it built in, is fine.
var guestModules = []string{
	// the device under test, and verbs for programs
	"ice", "irdma", "ib_uverbs", "ib_umad", "rdma_ucm", "rdma_cm",
	// how the guest talks to its launcher
	"virtio_pci", "virtio_console", "virtio_rng", "virtio_blk", "virtio_net", "virtio_iommu", "virtio_balloon",
	"9p", "9pnet_virtio", "pvpanic_pci", "vmw_vsock_virtio_transport",
	// peers and comparisons
	"rdma_rxe", "siw", "e1000e",
	// storage over RDMA
	"nvme_rdma", "nvmet_rdma", "nvmet", "nvme_tcp", "nvmet_tcp", "null_blk", "brd", "loop",
	"ext4", "vfat", "nls_cp437", "nls_ascii", "nls_iso8859_1", "configfs", "overlay",
	// memory for DMA-BUF
	"udmabuf",
	// networks
	"af_packet", "ipv6", "udp_tunnel", "vxlan", "geneve", "8021q", "bonding", "bridge", "macvlan", "dummy", "veth", "tun",
	"sch_mqprio", "sch_ets", "sch_netem", "sch_ingress", "cls_flower", "act_mirred",
	// algorithms that others ask the crypto API for by name
	"crc32c_generic", "crc32c_intel", "crc32c_cryptoapi", "crc32_generic", "crc32_pclmul", "crct10dif_generic", "crct10dif_common",
}

// moduleName is the name of a module file as the kernel writes it.
func moduleName(file string) string {
	base := filepath.Base(file)
	base, _, _ = strings.Cut(base, ".ko")
	return strings.ReplaceAll(base, "-", "_")
}

func isModule(file string) bool {
	for _, suffix := range []string{".ko", ".ko.xz", ".ko.gz", ".ko.zst"} {
		if strings.HasSuffix(file, suffix) {
			return true
		}
	}
	return false
}

// addInstalled finds the modules of a /lib/modules/RELEASE. As in depmod's
// default order, updates go before the kernel's own.
func (s *kernelSource) addInstalled(dir string) error {
	s.dir, s.modules = dir, map[string]string{}
	s.builtin, s.builtinInfo = filepath.Join(dir, "modules.builtin"), filepath.Join(dir, "modules.builtin.modinfo")
	for _, sub := range []string{"kernel", "extra", "updates"} {
		top, err := filepath.EvalSymlinks(filepath.Join(dir, sub))
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		err = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && isModule(path) {
				s.modules[moduleName(path)] = path
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("find modules of kernel %s: %w", s.release, err)
		}
	}
	return nil
}

// addBuilt finds the modules of a build tree by its modules.order, which lists
// them as FILE.o or FILE.ko, in older kernels below "kernel/".
func (s *kernelSource) addBuilt(tree string) error {
	s.dir, s.modules = tree, map[string]string{}
	s.builtin, s.builtinInfo = filepath.Join(tree, "modules.builtin"), filepath.Join(tree, "modules.builtin.modinfo")
	order, err := os.ReadFile(filepath.Join(tree, "modules.order"))
	if errors.Is(err, os.ErrNotExist) {
		return nil // a kernel without modules
	} else if err != nil {
		return fmt.Errorf("find modules of kernel %s: %w", s.release, err)
	}
	for _, line := range strings.Fields(string(order)) {
		line = strings.TrimSuffix(strings.TrimSuffix(line, ".o"), ".ko") + ".ko"
		path := filepath.Join(tree, line)
		if _, err := os.Stat(path); err != nil {
			path = filepath.Join(tree, strings.TrimPrefix(line, "kernel/"))
		}
		if _, err := os.Stat(path); err == nil {
			s.modules[moduleName(path)] = path
		}
	}
	return nil
}

// modInfo is what a module says about itself in its section .modinfo.
type modInfo struct {
	name, vermagic string
	// needs are modules to load before it, or along with it.
	needs []string
}

// readModInfo reads the .modinfo of an uncompressed module.
func readModInfo(image []byte) (modInfo, error) {
	var info modInfo
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return info, err
	}
	sec := f.Section(".modinfo")
	if sec == nil {
		return info, errors.New("no section .modinfo: not a kernel module")
	}
	text, err := sec.Data()
	if err != nil {
		return info, err
	}
	for _, line := range strings.Split(string(text), "\x00") {
		k, v, _ := strings.Cut(line, "=")
		switch k {
		case "name":
			info.name = v
		case "vermagic":
			info.vermagic, _, _ = strings.Cut(v, " ")
		case "depends":
			for _, d := range strings.Split(v, ",") {
				if d != "" {
					info.needs = append(info.needs, strings.ReplaceAll(d, "-", "_"))
				}
			}
		case "softdep", "weakdep":
			for _, d := range strings.Fields(v) {
				if !strings.HasSuffix(d, ":") {
					info.needs = append(info.needs, strings.ReplaceAll(d, "-", "_"))
				}
			}
		}
	}
	return info, nil
}

// maxModule bounds what one module may uncompress to.
const maxModule = 256 << 20

// readModule returns the uncompressed image of a module file.
func readModule(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := kmodule.CompressionReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	b, err := io.ReadAll(io.LimitReader(r, maxModule+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(b) > maxModule {
		return nil, fmt.Errorf("%s is larger than %d MB", path, maxModule>>20)
	}
	return b, nil
}

// stageModules writes the modules that guests need, uncompressed, to
// root/lib/modules/RELEASE, and has depmod index them.
func (c *Cache) stageModules(ctx context.Context, tools *entry, src *kernelSource, root string) error {
	dir := filepath.Join(root, "lib", "modules", src.release)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	c.log.Info("preparing modules", "kernel", src.release)
	todo := slices.Clone(guestModules)
	seen := map[string]bool{}
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		file, ok := src.modules[name]
		if seen[name] || !ok {
			continue
		}
		seen[name] = true
		if err := ctx.Err(); err != nil {
			return err
		}
		image, err := readModule(file)
		if err != nil {
			return fmt.Errorf("read a module of kernel %s: %w", src.release, err)
		}
		info, err := readModInfo(image)
		if err != nil {
			return fmt.Errorf("read a module of kernel %s: %s: %w", src.release, file, err)
		}
		todo = append(todo, info.needs...)
		if err := writeFile(filepath.Join(dir, src.installedName(file)), image); err != nil {
			return err
		}
	}
	for _, name := range []string{"ice", "irdma"} {
		if !seen[name] {
			c.log.Warn("the kernel has no such module; it may be built in, or given with -m", "kernel", src.release, "module", name)
		}
	}
	for from, to := range map[string]string{src.builtin: "modules.builtin", src.builtinInfo: "modules.builtin.modinfo"} {
		if err := copyFile(from, filepath.Join(dir, to)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	// depmod warns if there is none; the order matters only to modules that
	// answer to the same alias, of which we have none.
	if err := writeFile(filepath.Join(dir, "modules.order"), nil); err != nil {
		return err
	}
	return depmod(ctx, tools, root, src.release)
}

// installedName is where a module goes, relative to /lib/modules/RELEASE.
func (s *kernelSource) installedName(file string) string {
	rel, err := filepath.Rel(s.dir, file)
	if err != nil || strings.HasPrefix(rel, "..") {
		rel = filepath.Join("kernel", filepath.Base(file))
	}
	if top, _, _ := strings.Cut(rel, "/"); !slices.Contains([]string{"kernel", "extra", "updates"}, top) {
		rel = filepath.Join("kernel", rel)
	}
	rel, _, _ = strings.Cut(rel, ".ko")
	return rel + ".ko"
}

// depmod writes the indexes of root/lib/modules/RELEASE, with the guest's own
// depmod so that its modprobe understands them.
func depmod(ctx context.Context, tools *entry, root, release string) error {
	_, err := output(ctx, treeProgram(tools, "usr/sbin/depmod"), "-b", root, release)
	if err != nil {
		return fmt.Errorf("index the modules of kernel %s: %w", release, err)
	}
	return nil
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// copyFile copies a file's content, not its permissions.
func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return writeFile(to, b)
}

// writeFile writes a file and the directories above it.
func writeFile(path string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o644)
}
