// SPDX-License-Identifier: Apache-2.0

package images

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTshark(t *testing.T) {
	c := openTest(t, t.TempDir())
	if argv, err := c.Tshark(t.Context()); !errors.Is(err, ErrOffline) {
		t.Errorf("of an empty cache: %q, %v", argv, err)
	}
	var e *entry
	err := c.locked(t.Context(), func() error {
		dir, err := c.tempLocked(tsharkName)
		if err != nil {
			return err
		}
		mustWrite(t, filepath.Join(dir, "root/usr/bin", tsharkName), "")
		e, err = c.publishLocked(dir, Manifest{Name: tsharkName, Key: "1", Recipe: hashOf(tsharkRecipe())})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	argv, err := c.Tshark(t.Context())
	want := []string{e.path("lib64/ld-linux-x86-64.so.2"), "--library-path", e.path("usr/lib/x86_64-linux-gnu"), e.path("usr/bin/tshark")}
	if d := cmp.Diff(want, argv); err != nil || d != "" {
		t.Errorf("%v; argv (-want +got):\n%s", err, d)
	}
	if p, err := c.Path(tsharkName); err != nil || p == e.path("usr/bin/tshark") {
		t.Errorf("Path = %q, %v, want a script", p, err)
	}
}
