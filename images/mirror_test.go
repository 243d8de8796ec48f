// SPDX-License-Identifier: Apache-2.0

package images

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFindArchive(t *testing.T) {
	tests := []struct {
		name            string
		files           map[string]string
		mirror, keyring string
		want            archive
		err             error
	}{
		{
			name: "deb822 with a security stanza",
			files: map[string]string{"sources.list.d/debian.sources": `
Types: deb deb-src
# a comment
URIs: http://mirror.example/debian/
Suites: bookworm bookworm-updates
Components: main
Signed-By: /keys/debian-archive-keyring.gpg

Types: deb
URIs: http://security.example/debian-security
Suites: bookworm-security
Components: main
`},
			want: archive{"http://mirror.example/debian", "http://security.example/debian-security", "/keys/debian-archive-keyring.gpg"},
		},
		{
			name: "list with options and a comment, security by layout",
			files: map[string]string{"sources.list": `
#deb http://old.example/debian bookworm main
deb-src http://src.example/debian trixie main
deb [ arch=amd64 signed-by=/keys/own.gpg ] https://mirror.example/debian trixie main contrib # ours
`},
			want: archive{"https://mirror.example/debian", "https://mirror.example/debian-security", "/keys/own.gpg"},
		},
		{
			name: "other repositories do not count",
			files: map[string]string{
				"sources.list.d/a-vendor.list": `
deb [signed-by=/keys/vendor.asc] https://vendor.example/linux/debian bookworm stable
deb [signed-by=/keys/vendor.asc] https://vendor.example/apt/debian bookworm main
deb https://db.example/apt bookworm-db main
`,
				"sources.list.d/debian.sources": "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm\nComponents:\n main\n contrib\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n",
			},
			want: archive{"http://mirror.example/debian", "http://mirror.example/debian-security", ""},
		},
		{
			name:  "disabled stanza",
			files: map[string]string{"sources.list.d/debian.sources": "Enabled: no\nTypes: deb\nURIs: http://mirror.example/debian\nSuites: trixie\nComponents: main\n"},
			err:   errNoMirror,
		},
		{
			name:  "another distribution",
			files: map[string]string{"sources.list": "deb http://mirror.example/ubuntu noble main universe\n"},
			err:   errNoMirror,
		},
		{name: "no configuration", err: errNoMirror},
		{
			name:    "given",
			files:   map[string]string{"sources.list": "deb http://mirror.example/debian trixie main\ndeb http://mirror.example/debian-security trixie-security main\n"},
			mirror:  "http://given.example/debian/",
			keyring: "/keys/given.gpg",
			want:    archive{"http://given.example/debian", "http://given.example/debian-security", "/keys/given.gpg"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			etc := t.TempDir()
			for name, text := range tt.files {
				mustWrite(t, filepath.Join(etc, name), text)
			}
			got, err := findArchive(readAptSources(etc), tt.mirror, tt.keyring)
			if !errors.Is(err, tt.err) {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if d := cmp.Diff(tt.want, got, cmp.AllowUnexported(archive{})); d != "" {
				t.Errorf("archive (-want +got):\n%s", d)
			}
		})
	}
}

func TestFindKeyring(t *testing.T) {
	k := filepath.Join(t.TempDir(), "keys.gpg")
	if _, err := findKeyring(k); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent keyring: error %v", err)
	}
	mustWrite(t, k, "key")
	if got, err := findKeyring(k); err != nil || got != k {
		t.Errorf("findKeyring = %q, %v, want %q", got, err, k)
	}
}

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := writeFile(path, []byte(text)); err != nil {
		t.Fatal(err)
	}
}
