// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

func init() {
	table = append(table,
		check{5, "ping-debian-12", false, "vrnic run --guests 2 -k debian-12 -- ping peer: IPv4, link-local, --mtu 9000", pingOn("debian-12")},
		check{5, "ping-debian-13", false, "vrnic run --guests 2 -k debian-13 -- ping peer: IPv4, link-local, --mtu 9000", pingOn("debian-13")},
		check{5, "ping-debian-backports", true, "vrnic run --guests 2 -- ping peer: IPv4, link-local, --mtu 9000", pingOn("debian-backports")},
		check{5, "iperf3", false, "vrnic run --guests 2 --peer 'iperf3 -s' -- iperf3 -c peer -t 10, and with -R", iperfBothWays},
		check{5, "corruption", false, "100 MB from peer by TCP, --impair corrupt=1%", corruption},
	)
}

// pair runs "vrnic run --guests 2 ARGS" and wants that it ends well, that no
// rule is broken and that neither guest's kernel complains.
func (e *env) pair(t *testing.T, args ...string) run {
	t.Helper()
	r := e.guest(t, "", append([]string{"--guests", "2", "--boot-timeout", "5m"}, args...)...).want(t, 0)
	if strings.Contains(r.stderr, "finding") {
		t.Errorf("a stock driver broke a rule\n%v", r)
	}
	for _, name := range []string{"guest0", "guest1"} {
		wantCleanLog(t, filepath.Join(e.outDir, name, "kernel.log"))
	}
	return r
}

// in is the environment with a folder of its own for artifacts.
func (e *env) in(t *testing.T, dir string) *env {
	t.Helper()
	own := *e
	own.outDir = filepath.Join(e.outDir, dir)
	if err := os.MkdirAll(own.outDir, 0o755); err != nil {
		t.Fatal(err)
	}
	return &own
}

// ofDevice begins scripts: $dev is the card's netdev.
const ofDevice = "dev=$(basename /sys/class/net/e*)\n"

// peerLinkLocal is the address that the peer's kernel makes of the MAC address
// 02:e8:10:00:00:02 of its card (RFC 4291, appendix A).
const peerLinkLocal = "fe80::e8:10ff:fe00:2"

// wantPings wants that as many pings ran as there are counts, each with so many
// requests, all of them answered.
func wantPings(t *testing.T, r run, counts ...int) {
	t.Helper()
	sums := regexp.MustCompile(`(?m)^\d+ packets transmitted.*$`).FindAllString(r.stdout, -1)
	if len(sums) != len(counts) {
		t.Fatalf("%d pings report, want %d\n%v", len(sums), len(counts), r)
	}
	for i, n := range counts {
		if want := fmt.Sprintf("%d packets transmitted, %d received, 0%% packet loss", n, n); !strings.HasPrefix(sums[i], want) {
			t.Errorf("ping %d: %q, want %q", i, sums[i], want)
		}
	}
}

func pingOn(kernel string) func(*testing.T, *env) {
	return func(t *testing.T, e *env) {
		// A frame of 1500 bytes is the longest, and 9000 with --mtu 9000: one
		// byte more is refused, so nothing passes in fragments.
		const script = ofDevice + `
			ping -c 20 -i 0.2 peer &&
			ping -6 -c 10 -i 0.2 ` + peerLinkLocal + `%$dev &&
			ping -c 5 -i 0.2 -M do -s 1472 peer &&
			ping -c 1 -M do -s 1473 peer 2>&1 | grep -qi 'message too long'`
		wantPings(t, e.in(t, "mtu1500").pair(t, "-k", kernel, "--", "sh", "-c", script), 20, 10, 5)

		const jumbo = ofDevice + `
			ping -c 20 -i 0.2 -M do -s 8972 peer &&
			ping -6 -c 10 -i 0.2 -M do -s 8952 ` + peerLinkLocal + `%$dev &&
			ping -c 1 -M do -s 8973 peer 2>&1 | grep -qi 'message too long'`
		wantPings(t, e.in(t, "mtu9000").pair(t, "-k", kernel, "--mtu", "9000", "--", "sh", "-c", jumbo), 20, 10)
	}
}

// iperfReport is what iperf3 -J prints, as far as it is looked at.
type iperfReport struct {
	Error     string
	Intervals []struct {
		Sum struct {
			Start, Seconds float64
			Bytes          int64
		}
	}
	End struct {
		SumSent     struct{ Retransmits int } `json:"sum_sent"`
		SumReceived struct {
			Bytes         int64
			Seconds       float64
			BitsPerSecond float64 `json:"bits_per_second"`
		} `json:"sum_received"`
	}
}

// iperfBothWays wants traffic in every second of 10, one way and then the other.
func iperfBothWays(t *testing.T, e *env) {
	const seconds = 10
	script := fmt.Sprintf("iperf3 -c peer -t %d -J && iperf3 -c peer -t %[1]d -R -J", seconds)
	r := e.pair(t, "--peer", "iperf3 -s", "--", "sh", "-c", script)
	reports := json.NewDecoder(strings.NewReader(r.stdout))
	for _, way := range []string{"to peer", "from peer"} {
		var p iperfReport
		if err := reports.Decode(&p); err != nil || p.Error != "" {
			t.Fatalf("%s: %v %s\n%v", way, err, p.Error, r)
		}
		whole := 0
		for _, i := range p.Intervals {
			if i.Sum.Seconds < 0.5 {
				continue // what was left at the end
			}
			whole++
			if i.Sum.Bytes == 0 {
				t.Errorf("%s: nothing passed from second %.1f on for %.1f s", way, i.Sum.Start, i.Sum.Seconds)
			}
		}
		got := p.End.SumReceived
		if whole < seconds-1 || got.Bytes == 0 {
			t.Errorf("%s: %d intervals, %d bytes in all, want %d s of traffic", way, whole, got.Bytes, seconds)
		}
		e.part(t, way, "iperf3", fmt.Sprintf("%.0f Mbit/s, %d retransmits", got.BitsPerSecond/1e6, p.End.SumSent.Retransmits), time.Duration(got.Seconds*float64(time.Second)))
	}
}

// randomFile makes a file of n bytes that look random, the same for the same
// seed, and returns their SHA-256.
func randomFile(t *testing.T, path string, n int64, seed string) string {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	source := rand.NewChaCha8(sha256.Sum256([]byte(seed)))
	if _, err := io.CopyN(io.MultiWriter(f, h), source, n); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// counter finds the value of "NAME: VALUE" or "NAME VALUE" in the text.
func counter(t *testing.T, text, name string) int {
	t.Helper()
	m := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(name) + `:?\s+(\d+)`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no counter %s in\n%s", name, text)
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// corruption copies a file over a bad link: TCP has to notice and repair every
// frame with a wrong bit. Damage is done behind the FCS, as a bad switch does it,
// so it is not the MAC's counter of CRC errors that moves but those of checksums:
// the card's, which drivers keep of what descriptors say, and the kernel's, which
// looks again.
func corruption(t *testing.T, e *env) {
	const (
		size    = 100e6
		percent = 1
	)
	file := filepath.Join(t.TempDir(), "file")
	want := randomFile(t, file, size, "corruption")
	// An end of nc leaves at once when the other has no more to say: this one has.
	const script = ofDevice + `
		mkfifo /tmp/open && nc peer 5000 <>/tmp/open | sha256sum && ethtool -S $dev && nstat -asz`
	const peer = ofDevice + `
		nc -l -p 5000 < /root/file; ethtool -S $dev && nstat -asz`
	r := e.pair(t, "--impair", fmt.Sprintf("corrupt=%d%%,seed=1", percent), "--copy", file, "--timeout", "10m", "--peer", peer, "--", "sh", "-c", script)
	if got, _, _ := strings.Cut(r.stdout, " "); got != want {
		t.Errorf("SHA-256 of what came: %s, want %s", got, want)
	}
	received := strings.ReplaceAll(r.stderr, "peer: ", "")
	for _, side := range []struct{ name, text string }{{"guest", r.stdout}, {"peer", received}} {
		frames, bad := counter(t, side.text, "rx_unicast.nic"), counter(t, side.text, "rx_csum_bad.nic")
		kernel := counter(t, side.text, "TcpInCsumErrors") + counter(t, side.text, "IpExtInCsumErrors")
		// Nearly every bit is under the checksum of IP or TCP. In an
		// acknowledgement fewer are: it is padded.
		share := 100 * float64(bad) / float64(frames)
		if share < percent/2.0 || share > percent*1.5 {
			t.Errorf("%s: the card found %d of %d frames bad, want about %d %%", side.name, bad, frames, percent)
		}
		// They differ in headers so bad that one of the two looks no further.
		if math.Abs(float64(kernel-bad)) > 0.2*float64(bad) {
			t.Errorf("%s: the kernel counted %d bad checksums, the card %d", side.name, kernel, bad)
		}
		if n := counter(t, side.text, "rx_crc_errors.nic"); n != 0 {
			t.Errorf("%s: %d CRC errors of frames whose FCS is right", side.name, n)
		}
		e.part(t, side.name, "ethtool -S, nstat", fmt.Sprintf("%d frames, bad checksums: %d by the card, %d by the kernel", frames, bad, kernel), 0)
	}
}
