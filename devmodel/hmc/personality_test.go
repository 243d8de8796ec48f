// SPDX-License-Identifier: Apache-2.0

package hmc_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vrnic/vrnic/devmodel/hmc"
)

// Each personality survives a file, and a driver can live with it.
func TestPersonalityFile(t *testing.T) {
	for _, p := range hmc.Personalities() {
		b, err := json.MarshalIndent(p, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(t.TempDir(), "p.json")
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := hmc.LoadPersonality(name)
		if err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		if diff := cmp.Diff(p, got); diff != "" {
			t.Error(diff)
		}
		if named, err := hmc.LoadPersonality(p.Name); err != nil || named != p {
			t.Errorf("%s by name: %v", p.Name, err)
		}
		if strings.Contains(p.About, "\n") || p.About == "" {
			t.Errorf("%s: about %q", p.Name, p.About)
		}
	}
	if hmc.Personalities()[0].Profile != hmc.SmallGuest() {
		t.Error("the first personality is not the default")
	}
}

func TestPersonalityRefused(t *testing.T) {
	def, err := json.Marshal(hmc.Personalities()[2]) // high-fpm
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ from, to, want string }{
		{`"max_sds":2080`, `"max_sds":0`, "max_sds is 0: want 1 to 4096"},
		{`"first_sd":0`, `"first_sd":2017`, "segments 2017 and 2080 more"},
		{`"max_sds":2080`, `"max_sds":2071`, "the layout ends in SD 2071, max_sds allows those below 2071"},
		{`"max_sds":2080`, `"max_sds":"many"`, "cannot unmarshal string"},
		{`"max_sds":2080`, `"maximum_sds":2080`, `unknown field "maximum_sds"`},
		{`"max_ceqs":64`, `"max_ceqs":0`, "max_ceqs is 0: want 1 to 1023"},
		{`"ht_multiplier":2`, `"ht_multiplier":16`, "ht_multiplier is 16: want 1 to 15"},
		{`"timer_bucket":512`, `"timer_bucket":65536`, "timer_bucket is 65536: want 1 to 65535"},
		{`"pble_page":0`, `"pble_page":512`, "pble_page is 512: want 0 to 511"},
		{`"QP":{"max":1024`, `"QP":{"max":3`, "QP: max is 3: want 4 to 262144"},
		{`"QP":{"max":1024,"size":512`, `"QP":{"max":1024,"size":500`, "QP: size 500 is not a power of two"},
		{`"QP":{"max":1024,"size":512`, `"QP":{"max":1024,"size":8192`, "QP: size is 8192: want at most 4096"},
		{`"PBLE":{"max":2097152`, `"PBLE":{"max":2097152,"size":16`, "PBLE: size 16: the driver takes it for 8"},
		{`"Q1":{"max":262144`, `"Q1":{"max":511`, "Q1: max is 511: want 2048"},
		{`"XFFL":{"max":4096,"block":4}`, `"XFFL":{"max":4096}`, "XFFL: block is 0"},
		{`"QP":{`, `"PQ":{`, `no type "PQ"`},
		{`"QP":{`, `"APBVT":{`, `no type "APBVT"`},
		{`{"name"`, `[{"name"`, "cannot unmarshal array"},
		{`"objects"`, `"objects":{}} {"objects"`, "more than one JSON value"},
	} {
		name := filepath.Join(t.TempDir(), "p.json")
		text := strings.Replace(string(def), tt.from, tt.to, 1)
		if text == string(def) {
			t.Fatalf("nothing is %s in %s", tt.from, def)
		}
		if strings.HasPrefix(text, "[") {
			text += "]"
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := hmc.LoadPersonality(name); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want %s", tt.to, err, tt.want)
		}
	}
	for name, want := range map[string]string{
		"pages-pbles":        `no personality "pages-pbles": there are default, paged-pbles, high-fpm, and files`,
		"/nowhere/p.json":    "/nowhere/p.json: no such file",
		"nowhere.json":       "nowhere.json: no such file",
		t.TempDir():          "is a directory",
		"":                   `no personality ""`,
		"default,high-fpm":   "no personality",
		"\x00":               "invalid argument",
		"help:paged-pbles\n": "no personality",
	} {
		if _, err := hmc.LoadPersonality(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", name, err, want)
		}
	}
}

// A name that leads to something without an end takes no memory without an end.
func TestPersonalityOfEndlessFile(t *testing.T) {
	if _, err := hmc.LoadPersonality("/dev/zero"); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("%v", err)
	}
}

// A size above 512 bytes moves the objects so that none crosses a page.
func TestLargeObjectsAreAligned(t *testing.T) {
	p := hmc.SmallGuest()
	p.Limits[hmc.FSIAV].Log2 = 12
	p.Limits[hmc.HTE].Log2 = 10
	c := hmc.New(hmc.Config{Profile: p})
	var buf [hmc.FPMSize]byte
	buf[0], buf[24], buf[32], buf[104] = 5, 3, 1, 7
	if err := c.Commit(&buf); err != nil {
		t.Fatal(err)
	}
	want := []hmc.Extent{
		{Object: "QP", Count: 5, Max: 1024, Size: 512, Base: 0},
		{Object: "HTE", Count: 3, Max: 4096, Size: 1024, Base: 0xC00},
		{Object: "ARP", Count: 1, Max: 512, Size: 64, Base: 0x1800},
		{Object: "APBVT", Count: 1, Size: 8192, Base: 0x1A00},
		{Object: "FSIAV", Count: 7, Max: 4096, Size: 4096, Base: 0x4000},
	}
	if diff := cmp.Diff(want, c.Extents()); diff != "" {
		t.Error(diff)
	}
}
