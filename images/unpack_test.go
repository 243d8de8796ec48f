// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func tarOf(t *testing.T, headers ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		var body []byte
		if h.Typeflag == tar.TypeReg {
			body = []byte(h.Name)
			h.Size = int64(len(body))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func TestUnpackTar(t *testing.T) {
	root := t.TempDir()
	all := func(string) bool { return true }
	files, err := unpackTar(tarOf(t,
		tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o700},
		tar.Header{Name: "./usr/bin/", Typeflag: tar.TypeDir, Mode: 0},
		tar.Header{Name: "./usr/bin/su", Typeflag: tar.TypeReg, Mode: 0o4111},
		tar.Header{Name: "./usr/bin/again", Typeflag: tar.TypeLink, Linkname: "./usr/bin/su"},
		tar.Header{Name: "./usr/lib64", Typeflag: tar.TypeSymlink, Linkname: "lib"},
		tar.Header{Name: "./dev/null", Typeflag: tar.TypeChar},
		tar.Header{Name: "./../../up", Typeflag: tar.TypeReg, Mode: 0o644},
	), root, all)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"usr/bin/su", "usr/bin/again", "usr/lib64", "up"}, files); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
	st, err := os.Stat(filepath.Join(root, "usr/bin/again"))
	if err != nil || st.Mode() != 0o511 || st.Size() != int64(len("./usr/bin/su")) {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if to, err := os.Readlink(filepath.Join(root, "usr/lib64")); err != nil || to != "lib" {
		t.Errorf("link to %q, %v", to, err)
	}

	// A link out of the tree is unpacked as it is, but nothing through it.
	outside := t.TempDir()
	if _, err := unpackTar(tarOf(t,
		tar.Header{Name: "trap", Typeflag: tar.TypeSymlink, Linkname: outside},
		tar.Header{Name: "trap/file", Typeflag: tar.TypeReg, Mode: 0o644},
	), t.TempDir(), all); err == nil {
		t.Error("a file was unpacked through a link out of the tree")
	}
	if left, _ := os.ReadDir(outside); len(left) != 0 {
		t.Errorf("%s was created outside the tree", left[0].Name())
	}
}
