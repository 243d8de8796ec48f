// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

// ErrOffline is wrapped by errors about entries that the cache lacks and that
// [Options].Offline forbids to fetch.
var ErrOffline = errors.New("not in the cache, and fetching it is not allowed")

// ErrUnknownName is wrapped by errors about names that are neither an image
// nor a usable path.
var ErrUnknownName = errors.New("unknown image")

// Options says where the cache is and how it is filled.
type Options struct {
	// Dir is the root of the cache; see DefaultDir. It is created if missing.
	Dir string
	// Mirror is the URI of a Debian archive. Empty: the one the host's apt uses.
	Mirror string
	// Keyring is the file that verifies the archive. Empty: the host's.
	Keyring string
	// Logger gets one line per step; nil discards them.
	Logger hclog.Logger
	// Progress, if not nil, is a terminal that shows running downloads.
	Progress io.Writer
	// Offline makes a missing entry an error (ErrOffline).
	Offline bool
}

// Cache is a directory of images. Any number of caches, in any number of
// processes, may be open on the same directory.
type Cache struct {
	dir      string
	mirror   string
	keyring  string
	log      hclog.Logger
	progress io.Writer
	offline  bool

	busy    chan struct{}   // one token: the lock below, among our own goroutines
	updated map[string]bool // apt states brought up to date by us; guarded by busy
}

// DefaultDir is $XDG_CACHE_HOME/vrnic, or ~/.cache/vrnic.
func DefaultDir() (string, error) {
	d, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache directory: %w", err)
	}
	return filepath.Join(d, "vrnic"), nil
}

// Open opens the cache, creating its directory if needed. It reads nothing else.
func Open(o Options) (*Cache, error) {
	if runtime.GOARCH != "amd64" {
		return nil, fmt.Errorf("open image cache: images exist for amd64 hosts only, this is %s", runtime.GOARCH)
	}
	if o.Dir == "" {
		return nil, errors.New("open image cache: no directory given")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("open image cache: %w", err)
	}
	for _, sub := range []string{"entries", "current"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, fmt.Errorf("open image cache: %w", err)
		}
	}
	log := o.Logger
	if log == nil {
		log = hclog.NewNullLogger()
	}
	return &Cache{
		dir: dir, mirror: o.Mirror, keyring: o.Keyring, log: log.Named("images"),
		progress: o.Progress, offline: o.Offline, busy: make(chan struct{}, 1), updated: map[string]bool{},
	}, nil
}

// lockPoll is how often a waiting process asks for the lock: flock itself
// cannot be cancelled.
const lockPoll = 100 * time.Millisecond

// locked runs f while this process alone may change the cache. Methods with
// the suffix Locked are called from within f only.
func (c *Cache) locked(ctx context.Context, f func() error) error {
	select {
	case c.busy <- struct{}{}:
		defer func() { <-c.busy }()
	case <-ctx.Done():
		return fmt.Errorf("wait for the lock of the image cache: %w", ctx.Err())
	}
	path := filepath.Join(c.dir, "lock")
	l, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("lock image cache: %w", err)
	}
	defer l.Close() // releases the lock
	for said := false; ; said = true {
		err := unix.Flock(int(l.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("lock image cache %s: %w", path, err)
		}
		if !said {
			c.log.Info("waiting for another vrnic that fills the cache", "cache", c.dir)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the lock of the image cache: %w", ctx.Err())
		case <-time.After(lockPoll):
		}
	}
	// Nobody else is at work, so what lies here was left by a killed process.
	tmp := filepath.Join(c.dir, "tmp")
	if err := os.RemoveAll(tmp); err != nil {
		return fmt.Errorf("clean image cache: %w", err)
	}
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return fmt.Errorf("clean image cache: %w", err)
	}
	defer os.RemoveAll(tmp)
	return f()
}

// tempLocked makes a directory that lives until the lock is released.
func (c *Cache) tempLocked(name string) (string, error) {
	d, err := os.MkdirTemp(filepath.Join(c.dir, "tmp"), name+"-")
	if err != nil {
		return "", fmt.Errorf("make a directory in the image cache: %w", err)
	}
	return d, nil
}

// current returns the entry in use under name, or nil if there is none. If it
// was made by another recipe, the newest one that was not takes its place, if
// there is one: two versions of vrnic that share a cache do not fetch in turns.
// Any recipe will do if recipe is "".
func (c *Cache) current(name, recipe string) *entry {
	target, err := os.Readlink(filepath.Join(c.dir, "current", name))
	if err != nil {
		return nil
	}
	e, err := readEntry(filepath.Join(c.dir, "entries", filepath.Base(target)))
	if err == nil && e.Name == name && (recipe == "" || e.Recipe == recipe) {
		return e
	}
	if recipe == "" {
		return nil
	}
	for _, g := range c.generations(name) {
		if g.Recipe == recipe {
			return g.entry
		}
	}
	return nil
}

// generation is an entry of a name, and when it was made.
type generation struct {
	*entry
	made time.Time
}

// generations returns the entries of a name, newest first. What cannot be read
// is passed over.
func (c *Cache) generations(name string) []generation {
	names, _ := os.ReadDir(filepath.Join(c.dir, "entries"))
	var gens []generation
	for _, n := range names {
		if !strings.HasPrefix(n.Name(), name+"-") {
			continue
		}
		dir := filepath.Join(c.dir, "entries", n.Name())
		e, err := readEntry(dir)
		if err != nil || e.Name != name {
			continue
		}
		if st, err := os.Stat(filepath.Join(dir, manifestFile)); err == nil {
			gens = append(gens, generation{e, st.ModTime()})
		}
	}
	sort.Slice(gens, func(i, j int) bool { return gens[i].made.After(gens[j].made) })
	return gens
}

// byKey returns the entry made of exactly this, or nil.
func (c *Cache) byKey(name, key string) *entry {
	e, err := readEntry(filepath.Join(c.dir, "entries", name+"-"+key))
	if err != nil || e.Name != name || e.Key != key {
		return nil
	}
	return e
}

// publishLocked moves a finished entry (dir holds root/) into place and makes
// it the current one of its name.
func (c *Cache) publishLocked(dir string, m Manifest) (*entry, error) {
	fail := func(err error) (*entry, error) {
		return nil, fmt.Errorf("publish image %s: %w", m.Name, err)
	}
	if err := m.write(filepath.Join(dir, manifestFile)); err != nil {
		return fail(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return fail(err)
	}
	final := filepath.Join(c.dir, "entries", m.Name+"-"+m.Key)
	if old, err := readEntry(final); err != nil || old.Key != m.Key {
		// Either absent, or damaged by something other than us.
		if err := os.RemoveAll(final); err != nil {
			return fail(err)
		}
		if err := os.Rename(dir, final); err != nil {
			return fail(err)
		}
	}
	if err := c.selectLocked(m.Name, m.Key); err != nil {
		return fail(err)
	}
	c.pruneLocked(m.Name)
	e, err := readEntry(final)
	if err != nil {
		return fail(err)
	}
	return e, nil
}

// selectLocked points current/name at the entry with this key.
func (c *Cache) selectLocked(name, key string) error {
	target := filepath.Join("..", "entries", name+"-"+key)
	link := filepath.Join(c.dir, "current", name)
	if have, err := os.Readlink(link); err == nil && have == target {
		return nil
	}
	// Renaming a symlink over another is atomic, replacing one in place is not.
	tmp := filepath.Join(c.dir, "tmp", "link-"+name)
	if err := os.Symlink(target, tmp); err != nil {
		return err
	}
	return os.Rename(tmp, link)
}

// keepGenerations is how many entries of one name survive a new one. The last
// but one may be in use by a running guest.
const keepGenerations = 2

// pruneLocked removes the oldest generations of name. Failing to is no error:
// they only cost space.
func (c *Cache) pruneLocked(name string) {
	cur := c.current(name, "")
	kept := 1 // the current one
	for _, g := range c.generations(name) {
		if cur != nil && cur.Key == g.Key {
			continue
		}
		if kept++; kept <= keepGenerations {
			continue
		}
		c.log.Debug("removing an old image", "entry", g.id())
		if err := os.RemoveAll(g.dir); err != nil {
			c.log.Warn("cannot remove an old image", "error", err)
		}
	}
}
