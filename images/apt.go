// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"
)

// release is a Debian release with a private apt state of its own.
type release struct {
	name       string
	components string
	suites     []string // without these there is nothing to be had
	extra      []string // used if the mirror has them
	security   string
}

var (
	bookworm = release{
		name: "bookworm", components: "main",
		suites: []string{"bookworm"}, extra: []string{"bookworm-updates"}, security: "bookworm-security",
	}
	// Backports are in the same state: apt takes a package from there only if
	// asked to (they are NotAutomatic), but may then mix both suites.
	trixie = release{
		name: "trixie", components: "main non-free-firmware",
		suites: []string{"trixie", "trixie-backports"}, extra: []string{"trixie-updates"}, security: "trixie-security",
	}
)

// apt runs apt-get in a private state. It is used by the holder of the cache's
// lock only.
type apt struct {
	cache   *Cache
	release release
	dir     string
}

// aptLocked prepares the private state of a release; unless this process did
// so before, it refreshes its package lists.
func (c *Cache) aptLocked(ctx context.Context, r release) (*apt, error) {
	if c.offline {
		return nil, ErrOffline
	}
	for _, tool := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("packages are fetched with apt-get and dpkg-deb, from a Debian-like host: %w", err)
		}
	}
	a := &apt{cache: c, release: r, dir: filepath.Join(c.dir, "apt", r.name)}
	if c.updated[r.name] {
		return a, nil
	}
	ar, err := findArchive(readAptSources("/etc/apt"), c.mirror, c.keyring)
	if err != nil {
		return nil, err
	}
	if ar.keyring, err = findKeyring(ar.keyring); err != nil {
		return nil, err
	}
	if err := a.writeConfig(); err != nil {
		return nil, fmt.Errorf("prepare apt: %w", err)
	}
	c.log.Info("updating package lists", "release", r.name, "mirror", ar.uri)
	full := a.sources(ar, true)
	if err := a.update(ctx, full); err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		// A mirror need not carry the updates and security pockets.
		if err2 := a.update(ctx, a.sources(ar, false)); err2 != nil {
			return nil, err2
		}
		c.log.Warn("some suites of the mirror are not reachable; going on without updates and security", "release", r.name, "error", err)
	}
	c.updated[r.name] = true
	return a, nil
}

// sources is the text of a sources.list.
func (a *apt) sources(ar archive, all bool) string {
	var b strings.Builder
	line := func(uri, suite string) {
		fmt.Fprintf(&b, "deb [arch=amd64 signed-by=%s] %s %s %s\n", ar.keyring, uri, suite, a.release.components)
	}
	for _, s := range a.release.suites {
		line(ar.uri, s)
	}
	if all {
		for _, s := range a.release.extra {
			line(ar.uri, s)
		}
		if ar.security != "" {
			line(ar.security, a.release.security)
		}
	}
	return b.String()
}

// writeConfig writes what makes the state private. The rest of the host's apt
// configuration (proxies, credentials, certificates) stays in force.
func (a *apt) writeConfig() error {
	for _, d := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(a.dir, d), 0o755); err != nil {
			return err
		}
	}
	var b strings.Builder
	set := func(key, value string) { fmt.Fprintf(&b, "%s %q;\n", key, value) }
	// Lists cannot be overridden, only cleared; hooks of the host act on the host.
	for _, l := range []string{
		"APT::Architectures", "APT::Update::Pre-Invoke", "APT::Update::Post-Invoke",
		"APT::Update::Post-Invoke-Success", "DPkg::Pre-Install-Pkgs", "DPkg::Pre-Invoke", "DPkg::Post-Invoke",
		"APT::Default-Release",
	} {
		fmt.Fprintf(&b, "#clear %s;\n", l)
	}
	set("APT::Architecture", "amd64")
	set("APT::Architectures::", "amd64")
	set("APT::Install-Recommends", "false")
	set("APT::Sandbox::User", "root") // no change of user: the cache is private to ours
	set("Acquire::Languages", "none")
	set("Acquire::Retries", "3")
	set("Acquire::IndexTargets::deb::DEP-11::DefaultEnabled", "false")
	set("APT::Update::Error-Mode", "any")
	set("Dir::Etc::SourceList", filepath.Join(a.dir, "sources.list"))
	set("Dir::Etc::SourceParts", "/dev/null")
	set("Dir::Etc::Preferences", "/dev/null")
	set("Dir::Etc::PreferencesParts", "/dev/null")
	set("Dir::State::Lists", filepath.Join(a.dir, "lists"))
	set("Dir::State::Status", filepath.Join(a.dir, "status"))
	set("Dir::State::Extended_States", filepath.Join(a.dir, "extended_states"))
	set("Dir::Cache", a.dir)
	set("Dir::Cache::Archives", filepath.Join(a.dir, "archives"))
	set("Dir::Cache::PkgCache", filepath.Join(a.dir, "pkgcache.bin"))
	set("Dir::Cache::SrcPkgCache", filepath.Join(a.dir, "srcpkgcache.bin"))
	if err := os.WriteFile(filepath.Join(a.dir, "apt.conf"), []byte(b.String()), 0o644); err != nil {
		return err
	}
	// Nothing is installed: so every dependency is new.
	return os.WriteFile(filepath.Join(a.dir, "status"), nil, 0o644)
}

func (a *apt) update(ctx context.Context, sources string) error {
	if err := os.WriteFile(filepath.Join(a.dir, "sources.list"), []byte(sources), 0o644); err != nil {
		return fmt.Errorf("prepare apt: %w", err)
	}
	_, err := a.run(ctx, a.dir, a.cache.meter("package lists of "+a.release.name, 0), "update")
	return err
}

// candidate is a package that a resolution chose.
type candidate struct {
	name, version, arch string
	size                int64
}

func (p candidate) file() string {
	return p.name + "_" + strings.ReplaceAll(p.version, ":", "%3a") + "_" + p.arch + ".deb"
}

// resolve returns the named packages with all they depend on, sorted by name.
// A suite, if given, is preferred over the others.
func (a *apt) resolve(ctx context.Context, suite string, packages ...string) ([]candidate, error) {
	args := []string{"--yes", "--print-uris"}
	if suite != "" {
		args = append(args, "--target-release", suite)
	}
	out, err := a.run(ctx, a.dir, nil, append(append(args, "install"), packages...)...)
	if err != nil {
		return nil, err
	}
	list, err := parseURIs(out)
	if err != nil {
		return nil, fmt.Errorf("resolve %s: %w", strings.Join(packages, " "), err)
	}
	return list, nil
}

// parseURIs parses lines like: 'URI' NAME_VERSION_ARCH.deb SIZE HASH.
func parseURIs(out string) ([]candidate, error) {
	var list []candidate
	for _, line := range strings.Split(out, "\n") {
		if !strings.HasPrefix(line, "'") {
			continue
		}
		f := strings.Fields(line)
		if len(f) < 3 {
			return nil, fmt.Errorf("apt printed %q", line)
		}
		p := strings.Split(strings.TrimSuffix(f[1], ".deb"), "_")
		size, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil || len(p) != 3 {
			return nil, fmt.Errorf("apt printed %q", line)
		}
		version, err := url.PathUnescape(p[1])
		if err != nil {
			return nil, fmt.Errorf("apt printed %q", line)
		}
		list = append(list, candidate{name: p[0], version: version, arch: p[2], size: size})
	}
	if len(list) == 0 {
		return nil, errors.New("apt printed no packages")
	}
	sort.Slice(list, func(i, j int) bool { return list[i].name < list[j].name })
	return list, nil
}

// download fetches packages into dir; apt verifies them. It returns the files
// in the order of the list.
func (a *apt) download(ctx context.Context, what, dir string, list []candidate) ([]string, error) {
	args := []string{"download"}
	var files []string
	var total int64
	for _, p := range list {
		args = append(args, p.name+"="+p.version)
		files = append(files, filepath.Join(dir, p.file()))
		total += p.size
	}
	a.cache.log.Info("downloading", "image", what, "packages", len(list), "MB", total/1_000_000)
	if _, err := a.run(ctx, dir, a.cache.meter(what, total), args...); err != nil {
		return nil, err
	}
	for _, f := range files {
		if _, err := os.Stat(f); err != nil {
			return nil, fmt.Errorf("download %s: apt did not deliver a package: %w", what, err)
		}
	}
	return files, nil
}

// run executes apt-get and returns its stdout. Progress goes to m, if not nil.
func (a *apt) run(ctx context.Context, dir string, m *meter, args ...string) (string, error) {
	full := append([]string{"-qq", "--config-file", filepath.Join(a.dir, "apt.conf")}, args...)
	var status *os.File
	cmd := exec.CommandContext(ctx, "apt-get", full...)
	if m != nil {
		r, w, err := os.Pipe()
		if err != nil {
			return "", fmt.Errorf("run apt-get: %w", err)
		}
		defer r.Close()
		status = w
		cmd.ExtraFiles = []*os.File{w}
		cmd.Args = append(cmd.Args, "-o", "APT::Status-Fd=3")
		go m.follow(r)
	}
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	cmd.Env = append(os.Environ(), "LC_ALL=C", "LANGUAGE=C", "DEBIAN_FRONTEND=noninteractive")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Start()
	if status != nil {
		status.Close()
	}
	if err == nil {
		err = cmd.Wait()
	}
	if m != nil {
		m.done(err == nil)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return "", commandError("apt-get "+strings.Join(args, " "), err, stderr.String()+stdout.String())
	}
	return stdout.String(), nil
}

// commandError is err with the last lines a command said.
func commandError(command string, err error, said string) error {
	if len(command) > 160 {
		command = command[:160] + "…"
	}
	lines := strings.Split(strings.TrimSpace(said), "\n")
	if n := len(lines); n > 8 {
		lines = lines[n-8:]
	}
	tail := strings.Join(lines, "\n  ")
	if tail == "" {
		return fmt.Errorf("%s: %w", command, err)
	}
	return fmt.Errorf("%s: %w\n  %s", command, err, tail)
}

// follow reads apt's status lines, "dlstatus:COUNT:PERCENT:TEXT".
func (m *meter) follow(r io.Reader) {
	s := bufio.NewScanner(r)
	for s.Scan() {
		f := strings.SplitN(s.Text(), ":", 4)
		if len(f) == 4 && f[0] == "dlstatus" {
			if p, err := strconv.ParseFloat(f[2], 64); err == nil {
				m.show(p)
			}
		}
	}
}
