// SPDX-License-Identifier: Apache-2.0

package images

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
)

// source is one repository the host's apt is configured with: one URI of a
// deb822 stanza, or one line of a .list file.
type source struct {
	uri        string
	suites     []string
	components []string
	signedBy   string // a file, or empty
}

// readAptSources reads the sources below etc (normally /etc/apt), as apt does:
// sources.list, then sources.list.d/*.list and *.sources in order of name.
// Files that cannot be read, and stanzas that are disabled, are passed over.
func readAptSources(etc string) []source {
	files := []string{filepath.Join(etc, "sources.list")}
	var parts []string
	for _, pattern := range []string{"*.list", "*.sources"} {
		m, _ := filepath.Glob(filepath.Join(etc, "sources.list.d", pattern))
		parts = append(parts, m...)
	}
	sort.Strings(parts)
	var all []source
	for _, f := range append(files, parts...) {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		if strings.HasSuffix(f, ".sources") {
			all = append(all, parseDeb822(string(b))...)
		} else {
			all = append(all, parseList(string(b))...)
		}
	}
	return all
}

// parseList parses the one-line format, sources.list(5).
func parseList(text string) []source {
	var all []source
	for _, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		rest, ok := strings.CutPrefix(line, "deb")
		if !ok || rest == "" || (rest[0] != ' ' && rest[0] != '\t' && rest[0] != '[') {
			continue
		}
		rest = strings.TrimSpace(rest)
		var s source
		if strings.HasPrefix(rest, "[") {
			options, after, ok := strings.Cut(rest[1:], "]")
			if !ok {
				continue
			}
			for _, o := range strings.Fields(options) {
				k, v, _ := strings.Cut(o, "=")
				if strings.EqualFold(strings.TrimSuffix(k, "+"), "signed-by") {
					s.signedBy = keyringFile(v)
				}
			}
			rest = after
		}
		f := strings.Fields(rest)
		if len(f) < 2 {
			continue
		}
		s.uri, s.suites, s.components = f[0], f[1:2], f[2:]
		all = append(all, s)
	}
	return all
}

// parseDeb822 parses the stanza format of .sources files, sources.list(5).
func parseDeb822(text string) []source {
	var all []source
	stanza := map[string]string{}
	last := ""
	flush := func() {
		defer func() { stanza, last = map[string]string{}, "" }()
		if e := strings.ToLower(stanza["enabled"]); e == "no" || e == "false" || e == "0" {
			return
		}
		if !slices.Contains(strings.Fields(stanza["types"]), "deb") {
			return
		}
		for _, uri := range strings.Fields(stanza["uris"]) {
			all = append(all, source{
				uri:        uri,
				suites:     strings.Fields(stanza["suites"]),
				components: strings.Fields(stanza["components"]),
				signedBy:   keyringFile(stanza["signed-by"]),
			})
		}
	}
	for _, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.TrimSpace(line) == "":
			flush()
		case line[0] == ' ' || line[0] == '\t':
			if last != "" {
				stanza[last] += "\n" + strings.TrimSpace(line)
			}
		default:
			k, v, ok := strings.Cut(line, ":")
			if !ok {
				continue
			}
			last = strings.ToLower(strings.TrimSpace(k))
			stanza[last] = strings.TrimSpace(v)
		}
	}
	flush()
	return all
}

// keyringFile returns the first keyring file of a Signed-By value, which may
// also be a fingerprint or a whole key.
func keyringFile(v string) string {
	f := strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' })
	if len(f) == 0 || !strings.HasPrefix(f[0], "/") {
		return ""
	}
	return f[0]
}

// debianSuites are names that tell a Debian archive from other repositories.
var debianSuites = []string{
	"bullseye", "bookworm", "trixie", "forky", "duke", "sid",
	"oldoldstable", "oldstable", "stable", "testing", "unstable",
}

// archive says where Debian packages come from.
type archive struct {
	uri, security string
	keyring       string
}

var errNoMirror = errors.New("the apt configuration of this host names no Debian mirror; give one with --mirror (and its keyring with --keyring)")

// findArchive picks the Debian mirror of a host. A repository qualifies if it
// has a Debian suite and the component main; a path ending in "debian", and the
// Debian archive keyring, decide between several (others publish suites under
// these names, too).
func findArchive(sources []source, mirror, keyring string) (archive, error) {
	a := archive{uri: mirror, keyring: keyring}
	best := 0
	for _, s := range sources {
		if !slices.Contains(s.components, "main") {
			continue
		}
		for _, suite := range s.suites {
			base, pocket, _ := strings.Cut(strings.ReplaceAll(suite, "/", "-"), "-")
			if !slices.Contains(debianSuites, base) {
				continue
			}
			if pocket == "security" || pocket == "updates" && strings.HasSuffix(trimURI(s.uri), "-security") {
				if mirror == "" && a.security == "" {
					a.security = trimURI(s.uri)
				}
				continue
			}
			score := 0
			if p := trimURI(s.uri); strings.HasSuffix(p, "/debian") || strings.HasSuffix(p, "/debian.list") {
				score += 2
			}
			if strings.Contains(filepath.Base(s.signedBy), "debian-archive") {
				score += 2
			} else if s.signedBy != "" {
				score--
			}
			if mirror == "" && score > best {
				best, a.uri = score, trimURI(s.uri)
				if keyring == "" {
					a.keyring = s.signedBy
				}
			}
		}
	}
	if a.uri == "" {
		return archive{}, errNoMirror
	}
	a.uri = trimURI(a.uri)
	if a.security == "" {
		// The usual layout of a mirror: …/debian and …/debian-security.
		if p, ok := strings.CutSuffix(a.uri, "/debian"); ok {
			a.security = p + "/debian-security"
		}
	}
	return a, nil
}

// findKeyring returns the file that verifies the archive.
func findKeyring(given string) (string, error) {
	candidates := []string{given}
	if given == "" {
		candidates = []string{
			"/usr/share/keyrings/debian-archive-keyring.gpg",
			"/usr/share/keyrings/debian-archive-keyring.pgp",
		}
	}
	var why error
	for _, k := range candidates {
		f, err := os.Open(k)
		if err == nil {
			f.Close()
			return filepath.Abs(k)
		}
		why = err
	}
	return "", fmt.Errorf("find the keyring of the Debian archive (package debian-archive-keyring, or --keyring): %w", why)
}

func trimURI(u string) string { return strings.TrimRight(u, "/") }
