// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vrnic/vrnic/guest/wire"
	"golang.org/x/sys/unix"
)

// loaders is how many modprobes run at once. Most of a load is one CPU checking
// a signature and relocating; ice's probe mostly waits.
const loaders = 2

// prepare makes the guest ready for commands. Nothing of it is fatal: a guest
// in which something is missing is what the user came to look at.
func prepare(c wire.Config, a *agent, procs *processes) wire.Ready {
	warn := func(err error) {
		if err != nil {
			a.log("warn", "%v", err)
		}
	}
	warn(identify(c))
	warn(skipDuplicateDetection("/proc/sys/net/ipv6/conf/default/accept_dad"))
	warn(setLink(1, 0)) // the loopback device is always the first
	for _, cp := range c.Copies {
		warn(place(cp))
	}
	warn(writeModprobeConfig("/etc/modprobe.d/vrnic.conf", c.ModprobeOptions))
	if c.Depmod {
		_, err := procs.run("depmod", "-a")
		warn(err)
	}

	changed, err := watchLinks()
	warn(err)
	n := newNetwork(c.Nets, a.log)
	seen := make(chan struct{}, 1)
	go func() {
		for {
			again := n.adopt()
			select {
			case seen <- struct{}{}:
			default:
			}
			var retry <-chan time.Time
			if again > 0 {
				retry = time.After(again)
			}
			select {
			case <-changed:
			case <-retry:
			}
		}
	}()

	for _, err := range load(procs, c.Modules) {
		warn(err)
	}
	want := expectation{
		ice:   slices.Contains(c.Modules, "ice"),
		irdma: slices.Contains(c.Modules, "irdma"),
	}
	ready := waitDevices(seen, want, c.DeviceWait)
	ready.Modules = modules("/sys", "ice", "irdma")
	return ready
}

// modules tells which build of each module is loaded. One that is part of the
// kernel is left out.
func modules(sys string, names ...string) (out []wire.Module) {
	for _, name := range names {
		m := wire.Module{Name: name, SrcVersion: readAttr(sys, "module", name, "srcversion")}
		if note, err := os.ReadFile(filepath.Join(sys, "module", name, "notes/.note.gnu.build-id")); err == nil {
			m.BuildID = buildID(note)
		}
		if m.SrcVersion != "" || m.BuildID != "" {
			out = append(out, m)
		}
	}
	return out
}

// buildID reads an ELF note: lengths of name and content, type, "GNU", content.
func buildID(note []byte) string {
	const header, name = 12, "GNU\x00"
	if len(note) < header+len(name) || string(note[header:header+len(name)]) != name {
		return ""
	}
	id := note[header+len(name):]
	if n := binary.LittleEndian.Uint32(note[4:]); uint64(n) < uint64(len(id)) {
		id = id[:n]
	}
	return hex.EncodeToString(id)
}

// waitDevices waits for what may still come. A port's state has no event of its
// own; it follows the netdev's, so the tick is only for the moment in between.
func waitDevices(changed <-chan struct{}, want expectation, limit time.Duration) wire.Ready {
	deadline := time.After(limit)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		found, missing, pending := devices("/sys", want)
		if !pending {
			return wire.Ready{Devices: found, Missing: missing}
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-deadline:
			return wire.Ready{Devices: found, Missing: missing}
		}
	}
}

// load loads modules, a few at a time, in their order.
func load(procs *processes, modules []string) (errs []error) {
	var (
		wg sync.WaitGroup
		mu sync.Mutex
	)
	queue := make(chan string)
	for range loaders {
		wg.Go(func() {
			for m := range queue {
				if _, err := procs.run("modprobe", m); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	for _, m := range modules {
		queue <- m
	}
	close(queue)
	wg.Wait()
	return errs
}

// identify sets the host name and the names of others.
func identify(c wire.Config) error {
	name := c.Hostname
	if name == "" {
		name = "guest"
	}
	if err := unix.Sethostname([]byte(name)); err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	f, err := os.OpenFile("/etc/hosts", os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("hosts: %w", err)
	}
	defer f.Close()
	lines := "127.0.1.1 " + name + "\n"
	for _, h := range c.Hosts {
		lines += fmt.Sprintf("%s %s\n", h.Address, h.Name)
	}
	if _, err = f.WriteString(lines); err != nil || len(c.Hosts) == 0 {
		return err
	}
	// A name with addresses of both kinds means the IPv4 one, unless a program
	// asks for the other: what is the rule on most networks.
	if err := os.WriteFile("/etc/gai.conf", []byte("precedence ::ffff:0:0/96 100\n"), 0o644); err != nil {
		return fmt.Errorf("address selection: %w", err)
	}
	return nil
}

// skipDuplicateDetection makes the link-local addresses of netdevs that come
// usable at once. There is nobody on the wire whose address we did not choose.
func skipDuplicateDetection(acceptDAD string) error {
	err := os.WriteFile(acceptDAD, []byte("0"), 0o644)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6
		return fmt.Errorf("IPv6 duplicate detection: %w", err)
	}
	return nil
}

// writeModprobeConfig makes the options hold for every modprobe, also the user's.
func writeModprobeConfig(path string, options []string) error {
	if len(options) == 0 {
		return nil
	}
	var text strings.Builder
	for _, o := range options {
		fmt.Fprintf(&text, "options %s\n", o)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("modprobe options: %w", err)
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("modprobe options: %w", err)
	}
	return nil
}

// place puts what the archive carried for the user where the user wants it. It
// happens here and not in the archive because only here is known what the
// destination is: a directory, a symlink to one, a mount.
func place(c wire.Copy) error {
	to := c.To
	if info, err := os.Stat(to); strings.HasSuffix(to, "/") || err == nil && info.IsDir() {
		to = filepath.Join(to, filepath.Base(c.From))
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("copy to %s: %w", c.To, err)
	}
	if os.Rename(c.From, to) == nil {
		return nil
	}
	// Another file system, or a directory that is not empty.
	if err := copyTree(c.From, to); err != nil {
		return fmt.Errorf("copy to %s: %w", c.To, err)
	}
	return os.RemoveAll(c.From)
}

func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		dst := filepath.Join(to, rel)
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			return os.MkdirAll(dst, info.Mode().Perm())
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(target, dst)
		default:
			return copyFile(path, dst, info.Mode().Perm())
		}
	})
}

func copyFile(from, to string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
