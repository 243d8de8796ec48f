// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/u-root/u-root/pkg/cpio"
)

// listing reads archives as the kernel does: one after the other, each at a
// multiple of 4, with zeros between. Lines are "MODE NAME CONTENT".
func listing(t *testing.T, image []byte) []string {
	t.Helper()
	var lines []string
	for len(image) > 0 {
		var end int
		rr := cpio.Newc.Reader(bytes.NewReader(image))
		for {
			r, err := rr.ReadRecord()
			if err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if r.MTime != 0 || r.UID != 0 || r.GID != 0 {
				t.Errorf("%s: mtime %d, uid %d, gid %d, want 0", r.Name, r.MTime, r.UID, r.GID)
			}
			content := make([]byte, r.FileSize)
			if _, err := r.ReadAt(content, 0); err != nil && err != io.EOF {
				t.Fatal(err)
			}
			lines = append(lines, strings.TrimSpace(strings.Join([]string{octal(r.Mode), r.Name, string(content)}, " ")))
		}
		end = bytes.Index(image, []byte(cpio.Trailer))
		if end < 0 {
			t.Fatal("archive without trailer")
		}
		end += len(cpio.Trailer)
		for end < len(image) && image[end] == 0 {
			end++
		}
		if end%4 != 0 {
			t.Fatalf("the archive ends at %d, which is no multiple of 4", end)
		}
		image = image[end:]
	}
	return lines
}

func octal(mode uint64) string {
	const digits = "01234567"
	var b []byte
	for s := 15; s >= 0; s -= 3 {
		b = append(b, digits[mode>>s&7])
	}
	return string(b)
}

func TestWriteOverlay(t *testing.T) {
	host := filepath.Join(t.TempDir(), "tool")
	mustWrite(t, host, "program")
	if err := os.Chmod(host, 0o750); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(host, link); err != nil {
		t.Fatal(err)
	}
	files := []OverlayFile{
		{Path: "/init", Host: host, Mode: 0o755},
		{Path: "etc/vrnic/config.json", Data: []byte("old")},
		{Path: "/etc/vrnic/config.json", Data: []byte("{}"), Mode: 0o600},
		{Path: "/lib/modules/1/x.ko", Data: []byte("M")},
		{Path: "/root/../bin/tool", Host: link},
		{Path: "/data", Mode: 0o40700},
		{Path: "/data/now", Mode: 0o120777, Data: []byte("/tmp")},
		{Path: "/empty"},
	}
	var first, second bytes.Buffer
	if err := WriteOverlay(&first, files); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"040700 data",
		"120777 data/now /tmp",
		"100644 empty",
		"040755 etc",
		"040755 etc/vrnic",
		"100600 etc/vrnic/config.json {}",
		"100755 init program",
		"040755 usr",
		"040755 usr/bin",
		"100750 usr/bin/tool program",
		"040755 usr/lib",
		"040755 usr/lib/modules",
		"040755 usr/lib/modules/1",
		"100644 usr/lib/modules/1/x.ko M",
	}
	if d := cmp.Diff(want, listing(t, first.Bytes())); d != "" {
		t.Errorf("archive (-want +got):\n%s", d)
	}
	if err := WriteOverlay(&second, files); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two archives of the same files differ")
	}
	both := append(first.Bytes(), second.Bytes()...)
	if d := cmp.Diff(append(want, want...), listing(t, both)); d != "" {
		t.Errorf("concatenated archives (-want +got):\n%s", d)
	}
}

func TestWriteOverlayErrors(t *testing.T) {
	for name, f := range map[string]OverlayFile{
		"no path":     {Path: "/", Data: []byte("x")},
		"absent host": {Path: "/x", Host: filepath.Join(t.TempDir(), "absent")},
		"directory":   {Path: "/x", Host: t.TempDir()},
		"socket":      {Path: "/x", Mode: 0o140644},
	} {
		if err := WriteOverlay(io.Discard, []OverlayFile{f}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
