// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/vrnic/vrnic/guest/launch"
	"github.com/vrnic/vrnic/images"
	"github.com/vrnic/vrnic/serve"
)

// runFlags are the flags of vrnic run.
type runFlags struct {
	kernel      string
	modules     []string
	extra       string
	guests      int
	peer        string
	network     network
	watching    watching
	personality *personality
	mac         string
	macs        [][6]byte // of the cards
	address     string
	addresses   [][]netip.Prefix // of the guests
	cpus        int
	memory      string
	mtu         int
	iommu       bool
	accel       string
	bootTimeout time.Duration
	timeout     time.Duration
	artifacts   string
	append      string
	copies      []string
	env         []string
	modprobe    []string
	gdb         bool
	qemuArgs    []string
	control     string
	verbose     bool
}

func newRun(g *global) *cobra.Command {
	r := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run [flags] [-- CMD…]",
		Short: "Boot a guest with a card in it and run a command there",
		Long: `Boots a guest whose ice and irdma drivers are bound to a card, runs CMD in it as
root and ends with CMD's exit status. CMD's stdout and stderr are passed through
byte by byte, stdin is forwarded. Without CMD: a shell.

With --guests 2 there is a second guest, like the first, on the same Ethernet
switch. Each knows the other as peer, has 192.168.77.1 or .2 and fd77::1 or ::2
(unless --address says others), and the name means the IPv4 address unless a program
asks for IPv6. The second guest runs --peer's CMD (by sh -c), its output goes to
stderr with "peer: " before each line. The first CMD starts when the peer's first
listens (TCP, UDP or RDMA-CM) or has ended, or after 10 s. When it has ended, the
peer's has 3 s to end, too, then it gets SIGTERM, and 2 s later SIGKILL.

Exit status: CMD's own (128+n if signal n killed it), or if that is 0 and the peer's
CMD failed before it was told to end, the peer's; 124 when --timeout ended CMD; 125
when a guest or the machinery failed, with the console's last lines; 128+n when
signal n ended vrnic itself; 2 for options that make no sense. A guest that panics
gives 125, which git bisect run takes for "skip this one".

` + checkHelp + `
With --artifacts all of it is in findings.txt and findings.json there. With --check
strict the status is 3 if it were 0 and a driver made errors.`,
		Example: `  vrnic run -- ibv_devinfo -v
  vrnic run --guests 2 --peer 'iperf3 -s -1' -- iperf3 -c peer
  vrnic run -k debian-12 -- sh -c 'dmesg | grep irdma'
  vrnic run -k ~/linux --timeout 30s --copy reproduce.sh -- ./reproduce.sh`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.verbose && g.logLevel == "" {
				g.logLevel = "debug"
			}
			logger, err := g.logger()
			if err != nil {
				return err
			}
			c, err := r.config(args)
			if err != nil {
				return err
			}
			c.Logger = logger
			if r.network.pcap == stdout {
				return errors.New("--pcap -: stdout is CMD's; name a file or a FIFO")
			}
			if r.watching.events == stdout {
				return errors.New("--events -: stdout is CMD's; name a file or a FIFO")
			}
			var o serve.Options
			if o.Network, err = r.network.parse(r.guests); err != nil {
				return err
			}
			if err := r.watching.parse(&o); err != nil {
				return err
			}
			status, err := r.run(cmd.Context(), g, logger, c, o, r.launch)
			if err != nil {
				return exitStatus{status, err}
			}
			if status != 0 {
				return exitStatus{status: status}
			}
			return nil
		},
	}
	r.flags(cmd, g)
	cmd.Flags().StringVar(&r.peer, "peer", "", "the second guest's command, for sh -c")
	return cmd
}

// flags adds those that say what guests and cards are like.
func (r *runFlags) flags(cmd *cobra.Command, g *global) {
	f := cmd.Flags()
	f.StringVarP(&r.kernel, "kernel", "k", "debian-backports", "debian-12, debian-13, debian-backports, host, a bzImage, or a kernel build tree")
	f.StringArrayVarP(&r.modules, "module", "m", nil, "a .ko file, or a directory of them, that replaces the kernel's module of that name")
	f.StringVar(&r.extra, "image", "", "programs that guests do not have otherwise: "+strings.Join(images.ExtraNames(), ", "))
	f.IntVar(&r.guests, "guests", 1, "1, or 2 on one switch")
	f.IntVar(&r.cpus, "cpus", launch.DefaultCPUs, "virtual CPUs")
	f.StringVar(&r.memory, "memory", "1G", "guest memory, with suffix M or G")
	f.StringVar(&r.mac, "mac", defaultMAC, "MAC address of the first card; the second has the next")
	f.StringVar(&r.address, "address", defaultAddress, `IPv4 address and prefix length of the first guest; the second has the next.
The IPv6 address ends in the same byte: fd77::N/64`)
	f.IntVar(&r.mtu, "mtu", 0, "MTU of every card's netdev (0: the driver's)")
	f.BoolVar(&r.iommu, "iommu", false, "put the card behind an IOMMU (VT-d): a page that the driver has not mapped, or no longer, is out of reach")
	f.StringVar(&r.accel, "accel", "auto", "auto, kvm or tcg")
	f.DurationVar(&r.bootTimeout, "boot-timeout", launch.DefaultBootTimeout, "how long the guest may take until it can run CMD")
	f.DurationVar(&r.timeout, "timeout", 0, "how long CMD may run (0: for ever)")
	f.StringVar(&r.artifacts, "artifacts", "", "directory that receives console, kernel log and QEMU's log (with two guests in guest0 and\nguest1) and what the cards found")
	f.StringVar(&r.append, "append", "", "more arguments for the kernel command line")
	f.StringArrayVar(&r.copies, "copy", nil, "SRC[:DST]: copy a file or tree into the guest (DST: /root/)")
	f.StringArrayVar(&r.env, "env", nil, "K=V: a variable in CMD's environment")
	f.StringArrayVar(&r.modprobe, "modprobe", nil, "'MODULE OPTION=VALUE …': options for a module")
	f.BoolVar(&r.gdb, "gdb", false, "QEMU's gdb stub on localhost:1234, and no boot timeout, for the first guest")
	f.StringArrayVar(&r.qemuArgs, "qemu-arg", nil, "one more argument for QEMU")
	f.StringVar(&r.control, "control", "", "path of a socket that answers vrnic explain and vrnic ctl")
	f.BoolVarP(&r.verbose, "verbose", "v", false, "show the guest's console and milder diagnostics on stderr")
	r.network.flags(cmd)
	r.watching.flags(cmd)
	r.personality = personalityFlag(cmd)
	g.cacheFlags(cmd)
}

// runner does something with guests that c describes, whose cards are host's.
type runner func(ctx context.Context, c launch.Config, host *serve.Host, sockets []string) (launch.Result, error)

// run gets what the guests described by c need, serves their cards and lets do run
// them; the status counts with or without an error.
func (r *runFlags) run(ctx context.Context, g *global, logger hclog.Logger, c launch.Config, o serve.Options, do runner) (status int, err error) {
	cache, err := g.openCache(logger)
	if err != nil {
		return statusFailed, err
	}
	qemu, err := cache.QEMU(ctx)
	if err != nil {
		return statusFailed, err
	}
	kernel, err := cache.Kernel(ctx, r.kernel)
	if errors.Is(err, images.ErrUnknownName) {
		return statusUsage, fmt.Errorf("--kernel: %w", err)
	} else if err != nil {
		return statusFailed, err
	}
	initrd, err := cache.Initramfs(ctx, kernel)
	if err != nil {
		return statusFailed, err
	}
	c.QEMU, c.Kernel, c.Initrd = qemu.Argv, kernel.Image, []string{initrd}
	if r.extra != "" {
		extra, err := cache.Extra(ctx, r.extra)
		if err != nil {
			return statusFailed, err
		}
		c.Initrd = append(c.Initrd, extra)
	}
	if len(r.modules) > 0 {
		if c.Files, err = cache.ReplaceModules(ctx, kernel, r.modules); err != nil {
			return statusFailed, err
		}
	}

	dir, err := socketDir()
	if err != nil {
		return statusFailed, err
	}
	defer os.RemoveAll(dir)
	o.Control, o.MACs, o.Personality = r.control, r.macs, r.personality.Personality
	for i := range r.guests {
		o.Sockets = append(o.Sockets, filepath.Join(dir, fmt.Sprintf("card%d", i)))
	}
	// CMD's stderr is the user's: a card that works says nothing there.
	cards, err := g.loggerAt("warn")
	if err != nil {
		return statusFailed, err
	}
	o.Logger = cards
	host, err := startCards(ctx, o)
	if err != nil {
		return statusFailed, err
	}
	defer host.Close()

	// A reader that has had enough ends CMD, by SIGPIPE in the guest, not us.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	result, err := do(ctx, c, host, o.Sockets)
	defer func() {
		if err := r.watching.tell(g, cards, host, r.artifacts); err != nil {
			logger.Error(err.Error())
		}
	}()
	switch {
	case err == nil && result.Reason != "":
		return result.Status, errors.New(result.Reason)
	case err == nil:
		return r.watching.status(result.Status, host.DriverErrors()), nil
	case errors.Is(err, launch.ErrTimeout):
		return statusTimeout, err
	}
	return statusFailed, fmt.Errorf("%+v", err)
}

// config turns flags and arguments into the part of the launcher's
// configuration that needs nothing built or fetched.
func (r *runFlags) config(args []string) (launch.Config, error) {
	c := launch.Config{
		Append: r.append, CPUs: r.cpus, Accel: r.accel, IOMMU: r.iommu, GDB: r.gdb, QEMUArgs: r.qemuArgs,
		BootTimeout: r.bootTimeout, Timeout: r.timeout, Command: args, Env: r.env,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Artifacts: r.artifacts,
	}
	var err error
	if c.MemoryMiB, err = parseMemory(r.memory); err != nil {
		return c, err
	}
	if r.extra != "" && !slices.Contains(images.ExtraNames(), r.extra) {
		return c, fmt.Errorf("--image %q: want one of %s", r.extra, strings.Join(images.ExtraNames(), ", "))
	}
	if r.guests != 1 && r.guests != 2 {
		return c, fmt.Errorf("--guests %d: want 1 or 2", r.guests)
	}
	if r.macs, err = countMACs(r.mac, r.guests); err != nil {
		return c, err
	}
	if r.addresses, err = countAddresses(r.address, r.guests); err != nil {
		return c, err
	}
	if r.peer != "" && r.guests != 2 {
		return c, errors.New("--peer needs --guests 2")
	}
	if r.timeout < 0 || r.bootTimeout < 0 {
		return c, errors.New("--timeout and --boot-timeout cannot be negative")
	}
	if r.cpus < 1 {
		return c, fmt.Errorf("--cpus %d: want at least 1", r.cpus)
	}
	if r.mtu != 0 && (r.mtu < minMTU || r.mtu > maxMTU) {
		return c, fmt.Errorf("--mtu %d: want %d to %d", r.mtu, minMTU, maxMTU)
	}
	if len(args) == 0 {
		c.Command = []string{"sh"}
		c.TTY = isatty.IsTerminal(os.Stdin.Fd()) && isatty.IsTerminal(os.Stdout.Fd())
	}
	if term := os.Getenv("TERM"); c.TTY && term != "" {
		c.Env = append([]string{"TERM=" + term}, c.Env...) // it is the same terminal
	}
	if r.verbose {
		c.Console = os.Stderr
	}
	for _, e := range r.env {
		if !strings.Contains(e, "=") {
			return c, fmt.Errorf("--env %q: want K=V", e)
		}
	}
	for _, s := range r.copies {
		src, dst, ok := strings.Cut(s, ":")
		if !ok {
			dst = "/root/"
		}
		if _, err := os.Stat(src); err != nil {
			return c, fmt.Errorf("--copy: %w", err)
		}
		c.Copies = append(c.Copies, launch.Copy{Host: src, Guest: dst})
	}
	c.Guest.ModprobeOptions = r.modprobe
	return c, nil
}

// MTUs that ice takes (ice_main.c:ice_cfg_netdev, ICE_MAX_MTU).
const (
	minMTU = 68
	maxMTU = 9702
)

// socketDir makes a private folder for the cards' sockets, and removes those of
// runs that were killed before they could. A socket's path is short: where
// TMPDIR is too long for one, /tmp serves.
func socketDir() (string, error) {
	const pattern, longest = "vrnic-", 60
	parent := os.TempDir()
	if len(parent) > longest {
		parent = "/tmp"
	}
	old, _ := filepath.Glob(filepath.Join(parent, pattern+"*", "card0.lock"))
	for _, lock := range old {
		// Whoever holds the lock is alive; a folder of somebody else's cannot
		// be opened. A young one may be about to be locked.
		if i, err := os.Stat(lock); err != nil || time.Since(i.ModTime()) < time.Minute {
			continue
		}
		f, err := os.OpenFile(lock, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			removeSockets(filepath.Dir(lock))
		}
		f.Close()
	}
	return os.MkdirTemp(parent, pattern)
}

// removeSockets removes what a run makes in its folder, and the folder unless
// there is more: then it is a user's, who served a card there.
func removeSockets(dir string) {
	for i := range 2 {
		socket := filepath.Join(dir, fmt.Sprintf("card%d", i))
		os.Remove(socket)
		os.Remove(socket + ".lock")
	}
	os.Remove(dir)
}

// parseMemory reads a size with suffix M or G, as MiB.
func parseMemory(s string) (int, error) {
	var n int
	var unit string
	if _, err := fmt.Sscanf(s, "%d%s", &n, &unit); err != nil || n <= 0 {
		return 0, fmt.Errorf("--memory %q: want a number with suffix M or G", s)
	}
	switch strings.ToUpper(unit) {
	case "M":
		return n, nil
	case "G":
		return n << 10, nil
	}
	return 0, fmt.Errorf("--memory %q: want a number with suffix M or G", s)
}
