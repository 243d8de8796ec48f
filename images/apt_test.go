// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseURIs(t *testing.T) {
	got, err := parseURIs("NOTE: x\n" +
		"'http://m.example/pool/q_11%2bds-1_amd64.deb' qemu-system-x86_1%3a11.1.3+ds-1~bpo13+1_amd64.deb 10377056 SHA256:aa\n" +
		"'http://m.example/pool/l.deb' libc6_2.41-12_amd64.deb 7 MD5Sum:bb\n")
	want := []candidate{
		{"libc6", "2.41-12", "amd64", 7},
		{"qemu-system-x86", "1:11.1.3+ds-1~bpo13+1", "amd64", 10377056},
	}
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(candidate{})); d != "" {
		t.Errorf("packages (-want +got):\n%s", d)
	}
	if f := got[1].file(); f != "qemu-system-x86_1%3a11.1.3+ds-1~bpo13+1_amd64.deb" {
		t.Errorf("file name %s", f)
	}
	for _, bad := range []string{"", "nothing", "'u' name 1", "'u' a_b_c.deb x h", "'u' a_b.deb 1 h", "'u'"} {
		if list, err := parseURIs(bad); err == nil {
			t.Errorf("%q: %v, want an error", bad, list)
		}
	}
}

// aptFixture is a cache whose apt-get is a script: packages come from a
// directory, calls are recorded in a file.
type aptFixture struct {
	cache    *Cache
	progress *bytes.Buffer
	bin      string
	log      string
}

func newAptFixture(t *testing.T) *aptFixture {
	t.Helper()
	dpkgDeb, err := exec.LookPath("dpkg-deb")
	if err != nil {
		t.Skip("builds packages with dpkg-deb, which only Debian-like hosts have:", err)
	}
	f := &aptFixture{bin: t.TempDir(), progress: &bytes.Buffer{}}
	f.log = filepath.Join(f.bin, "log")
	debs := filepath.Join(f.bin, "debs")
	for _, p := range []struct{ name, version, file, text string }{
		{"tool", "1:2.0", "usr/bin/tool", "#!/bin/sh\n"},
		{"libdep", "3", "usr/share/doc/libdep/README", "not needed"},
	} {
		tree := t.TempDir()
		mustWrite(t, filepath.Join(tree, p.file), p.text)
		mustWrite(t, filepath.Join(tree, "DEBIAN/control"), fmt.Sprintf(
			"Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: a <a@example.org>\nDescription: x\n", p.name, p.version))
		c := candidate{name: p.name, version: p.version, arch: "all"}
		if err := os.MkdirAll(debs, 0o755); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(dpkgDeb, "--root-owner-group", "-b", tree, filepath.Join(debs, c.file())).CombinedOutput(); err != nil {
			t.Fatalf("dpkg-deb: %v\n%s", err, out)
		}
	}
	script := `#!/bin/sh
here=` + f.bin + `
echo "$*" >>$here/log
while [ $# -gt 0 ]; do
	case $1 in
	update)
		grep -q -- -security "$(dirname "$conf")/sources.list" && [ -e $here/no-security ] && { echo "E: no security here" >&2; exit 100; }
		[ -e $here/no-network ] && { echo "W: unrelated"; echo "E: Could not resolve 'mirror.example'" >&2; exit 100; }
		echo dlstatus:1:50.0:half >&3
		exit 0;;
	install)
		cd $here/debs; for d in *.deb; do echo "'http://mirror.example/$d' $d 1000000 SHA256:x"; done; exit 0;;
	download)
		shift; echo dlstatus:1:50.0:half >&3
		cp $here/debs/*.deb .; exit 0;;
	--config-file) conf=$2; shift;;
	esac
	shift
done
exit 9
`
	if err := os.WriteFile(filepath.Join(f.bin, "apt-get"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", f.bin+":"+os.Getenv("PATH"))
	keyring := filepath.Join(f.bin, "keys.gpg")
	mustWrite(t, keyring, "key")
	f.cache, err = Open(Options{Dir: t.TempDir(), Mirror: "http://mirror.example/debian", Keyring: keyring, Progress: f.progress})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *aptFixture) calls(t *testing.T, command string) (n int) {
	t.Helper()
	b, err := os.ReadFile(f.log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(b), "\n") {
		if strings.Contains(" "+line+" ", " "+command+" ") {
			n++
		}
	}
	return n
}

func (f *aptFixture) fetch(t *testing.T, have *entry) (packages []Package, root string, err error) {
	t.Helper()
	root = t.TempDir()
	recipe := fetchRecipe{Packages: []string{"tool"}}
	err = f.cache.locked(t.Context(), func() (err error) {
		packages, err = f.cache.fetchLocked(t.Context(), "thing", trixie, recipe, have, root, needed)
		return err
	})
	return packages, root, err
}

func TestFetch(t *testing.T) {
	f := newAptFixture(t)
	packages, root, err := f.fetch(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range packages {
		if len(packages[i].SHA256) != 64 {
			t.Errorf("%s has hash %q", packages[i].Name, packages[i].SHA256)
		}
		packages[i].SHA256 = ""
	}
	want := []Package{
		{Name: "libdep", Version: "3", Arch: "all"},
		{Name: "tool", Version: "1:2.0", Arch: "all", Files: []string{"usr/bin/tool"}},
	}
	if d := cmp.Diff(want, packages); d != "" {
		t.Errorf("packages (-want +got):\n%s", d)
	}
	if b, err := os.ReadFile(filepath.Join(root, "usr/bin/tool")); err != nil || string(b) != "#!/bin/sh\n" {
		t.Errorf("unpacked %q, %v", b, err)
	}
	if _, err := os.Stat(filepath.Join(root, "usr/share")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("documentation was unpacked (%v)", err)
	}
	if p := f.progress.String(); !strings.Contains(p, "thing: 100% of 2.0 MB\n") {
		t.Errorf("progress %q", p)
	}

	// The same again: nothing to download, no second update.
	have := &entry{Manifest: Manifest{Packages: packages}}
	if _, _, err := f.fetch(t, have); !errors.Is(err, errUnchanged) {
		t.Errorf("an entry that is up to date: error %v", err)
	}
	have.Packages[1].Version = "1:1.9"
	if _, _, err := f.fetch(t, have); err != nil {
		t.Errorf("an old entry: error %v", err)
	}
	if u, d := f.calls(t, "update"), f.calls(t, "download"); u != 1 || d != 2 {
		t.Errorf("%d updates and %d downloads, want 1 and 2", u, d)
	}
}

func TestFetchWithoutSecurity(t *testing.T) {
	f := newAptFixture(t)
	mustWrite(t, filepath.Join(f.bin, "no-security"), "")
	if _, _, err := f.fetch(t, nil); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(f.cache.dir, "apt/trixie/sources.list"))
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(f.bin, "keys.gpg")
	want := "deb [arch=amd64 signed-by=" + key + "] http://mirror.example/debian trixie main non-free-firmware\n" +
		"deb [arch=amd64 signed-by=" + key + "] http://mirror.example/debian trixie-backports main non-free-firmware\n"
	if d := cmp.Diff(want, string(b)); d != "" {
		t.Errorf("sources.list (-want +got):\n%s", d)
	}
}

func TestFetchWithoutNetwork(t *testing.T) {
	f := newAptFixture(t)
	mustWrite(t, filepath.Join(f.bin, "no-network"), "")
	_, _, err := f.fetch(t, nil)
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{"apt-get update: exit status 100", "Could not resolve 'mirror.example'"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q lacks %q", err, part)
		}
	}
}

func TestCommandErrorIsShort(t *testing.T) {
	err := commandError("apt-get "+strings.Repeat("x", 1000), errors.New("exit status 1"), strings.Repeat("line\n", 100)+"last\n")
	if n := strings.Count(err.Error(), "line"); n != 7 || !strings.HasSuffix(err.Error(), "last") || len(err.Error()) > 400 {
		t.Errorf("error %q", err)
	}
}
