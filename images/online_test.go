// SPDX-License-Identifier: Apache-2.0

package images

import (
	"flag"
	"os"
	"testing"

	"github.com/hashicorp/go-hclog"
)

var online = flag.Bool("images.online", false, "fetch what is missing into the user's image cache")

// TestOnline fills the cache that vrnic itself uses, from the mirror.
func TestOnline(t *testing.T) {
	if !*online {
		t.Skip("downloads about 300 MB: run with -images.online")
	}
	dir, err := DefaultDir()
	if err != nil {
		t.Fatal(err)
	}
	c, err := Open(Options{Dir: dir, Logger: hclog.New(&hclog.LoggerOptions{Output: os.Stderr, Level: hclog.Debug})})
	if err != nil {
		t.Fatal(err)
	}
	q, err := c.QEMU(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("QEMU %s: %q", q.Version, q.Argv)
	for _, name := range []string{"debian-backports", "debian-13", "debian-12"} {
		k, err := c.Kernel(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if k.Release == "" {
			t.Errorf("%s: no release", name)
		}
		i, err := c.Initramfs(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(i)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %s, %s, initramfs %s (%d MB)", name, k.Release, k.Image, i, st.Size()>>20)
	}
}
