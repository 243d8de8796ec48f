// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vrnic/vrnic/guest/launch"
	"github.com/vrnic/vrnic/guest/wire"
	"github.com/vrnic/vrnic/images"
)

func init() {
	table = append(table,
		check{5, "capture", false, "vrnic serve --pcap FILE, two guests; tshark -r FILE -Y _ws.malformed; frames = counters", captured},
	)
}

// capture is a pcapng file that is being written, read with tshark.
type capture struct {
	t      *testing.T
	path   string
	tshark []string
}

func newCapture(t *testing.T, path string) *capture {
	t.Helper()
	dir, err := images.DefaultDir()
	if err != nil {
		t.Fatal(err)
	}
	cache, err := images.Open(images.Options{Dir: dir, Logger: hclog.NewNullLogger()})
	if err != nil {
		t.Fatal(err)
	}
	c := &capture{t: t, path: path}
	if c.tshark, err = cache.Tshark(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// read runs tshark on the file.
func (c *capture) read(args ...string) (string, error) {
	argv := append(append([]string{}, c.tshark...), append([]string{"-r", c.path}, args...)...)
	cmd := exec.CommandContext(c.t.Context(), argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "HOME="+c.t.TempDir()) // nobody's preferences
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("tshark %s: %w\n%s", strings.Join(args, " "), err, errs.String())
	}
	return string(out), nil
}

// nothing wants that no frame passes a display filter.
func (c *capture) nothing(filter string, options ...string) {
	c.t.Helper()
	out, err := c.read(append(options, "-Y", filter)...)
	if err != nil {
		c.t.Error(err)
	} else if out != "" {
		c.t.Errorf("tshark -r %s %s -Y '%s':\n%s", c.path, strings.Join(options, " "), filter, tail(out, 20))
	}
}

// done removes the file, which takes much room and is only of use after a failure.
func (c *capture) done() {
	c.t.Helper()
	if c.t.Failed() {
		return
	}
	if err := os.Remove(c.path); err != nil {
		c.t.Error(err)
	}
}

// Directions of a captured frame (pcapng, epb_flags).
const (
	inbound  = "1"
	outbound = "2"
)

// side is one direction of one port.
type side struct{ port, direction string }

// frames counts the frames of each side by their content: length and hash.
func (c *capture) frames() (map[side]map[string]int, error) {
	out, err := c.read("-o", "frame.generate_md5_hash:TRUE", "-T", "fields",
		"-e", "frame.interface_name", "-e", "frame.packet_flags_direction", "-e", "frame.len", "-e", "frame.md5_hash")
	if err != nil {
		return nil, err
	}
	sides := map[side]map[string]int{}
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 4 || f[3] == "" {
			return nil, fmt.Errorf("tshark says %q of a frame", line)
		}
		direction, err := strconv.ParseUint(f[1], 0, 32)
		if err != nil {
			return nil, fmt.Errorf("tshark says %q of a frame: %w", line, err)
		}
		s := side{f[0], strconv.FormatUint(direction, 10)}
		if sides[s] == nil {
			sides[s] = map[string]int{}
		}
		sides[s][f[2]+" "+f[3]]++
	}
	return sides, nil
}

// traffic is how much passed a port in one direction.
type traffic struct{ frames, bytes int }

func (a traffic) minus(b traffic) traffic { return traffic{a.frames - b.frames, a.bytes - b.bytes} }

// sum adds up frames as the card's port counts them: with FCS.
func sum(frames map[string]int) (sum traffic) {
	for f, n := range frames {
		length, _, _ := strings.Cut(f, " ")
		k, _ := strconv.Atoi(length)
		sum.frames += n
		sum.bytes += n * (k + 4)
	}
	return sum
}

// portTraffic is what the port of a guest's card has counted, and how many
// frames its netdev has sent, segments counted one by one.
type portTraffic struct {
	tx, rx traffic
	netdev int
}

func (m *machine) portTraffic() (p portTraffic) {
	m.t.Helper()
	text := m.do(`ethtool -S $dev; echo "netdev: $(cat /sys/class/net/$dev/statistics/tx_packets)"`)
	for _, d := range []struct {
		name string
		to   *traffic
	}{{"tx", &p.tx}, {"rx", &p.rx}} {
		for _, class := range []string{"unicast", "multicast", "broadcast"} {
			d.to.frames += counter(m.t, text, d.name+"_"+class+".nic")
		}
		d.to.bytes = counter(m.t, text, d.name+"_bytes.nic")
	}
	p.netdev = counter(m.t, text, "netdev")
	return p
}

// moment is what everybody had counted when nothing was under way.
type moment struct {
	guests [2]portTraffic
	frames map[side]map[string]int
}

// still waits for a moment between frames.
func (c *capture) still(guests [2]*machine) moment {
	c.t.Helper()
	count := func() (n [2]portTraffic) {
		for i, g := range guests {
			n[i] = g.portTraffic()
		}
		return n
	}
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); {
		before := count()
		frames, err := c.frames()
		if after := count(); err == nil && before == after {
			return moment{after, frames}
		} else if err != nil {
			c.t.Log(err) // the file ends within a frame
		}
	}
	c.t.Fatal("the guests do not stop talking")
	return moment{}
}

// talk is traffic of many kinds from the first guest to the second, whose
// link-local address all is told.
const talk = `
say() { "$@" > /tmp/out 2>&1 || { echo "FAILED: $*: $(tail -n 5 /tmp/out)"; }; }
all() {
	say ping -c 5 -i 0.2 192.168.77.2
	say ping -6 -c 5 -i 0.2 $1%$dev
	say iperf3 -c 192.168.77.2 -n 10M
	say iperf3 -c 192.168.77.2 -n 10M -R
	say iperf3 -c $1%$dev -n 5M
	say iperf3 -c 192.168.77.2 -u -b 40M -n 2M
	say ip link set $dev mtu 9000
	say ping -c 5 -i 0.2 -M do -s 8972 192.168.77.2
	say ping -c 5 -i 0.2 -s 30000 192.168.77.2
	say iperf3 -c 192.168.77.2 -n 10M
	say ip link add link $dev name vlan100 type vlan id 100
	say ip addr add 192.168.100.1/24 dev vlan100
	say ip link set vlan100 up
	say ping -c 5 -i 0.2 192.168.100.2
	say iperf3 -c 192.168.100.2 -n 5M
	say ethtool -K $dev rx off tx off tso off gso off
	say iperf3 -c 192.168.77.2 -n 2M
	say iperf3 -c 192.168.77.2 -n 2M -R
	say ethtool -K $dev rx on tx on tso on gso on
	say ip link del vlan100
}
`

// captured has two guests, of the oldest and of the newest kernel, talk in many
// ways. Each frame has to be in the capture once where it was sent and once where
// it came, as often as the cards' counters and the netdevs say, and another's
// dissector must find nothing wrong with any.
func captured(t *testing.T, e *env) {
	path := filepath.Join(e.outDir, "capture.pcapng")
	c := newCapture(t, path)
	server := startServer(t, e, 2, "--pcap", path)
	var guests [2]*machine
	var configs []launch.Config
	kernels := []string{"debian-backports", "debian-12"}
	for i, kernel := range kernels {
		g := smallGuest(t, e, fmt.Sprintf("guest%d", i), kernel, server.sockets[i:i+1])
		g.Guest.Nets = []wire.Net{{Addresses: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, 77, byte(i + 1)}), 24)}}}
		configs = append(configs, g)
	}
	for i, g := range bootAll(t, configs) {
		own := e.in(t, fmt.Sprintf("guest%d", i))
		guests[i] = newMachine(t, own, server, g, ofDevice+talk)
	}
	guests[1].do(`iperf3 -s > /tmp/iperf3 2>&1 &
		modprobe 8021q; ip link set $dev mtu 9000
		ip link add link $dev name vlan100 type vlan id 100
		ip addr add 192.168.100.2/24 dev vlan100; ip link set vlan100 up`)

	local := strings.TrimSpace(guests[1].do(`ip -o -6 addr show dev $dev scope link | sed 's/.*inet6 //; s,/.*,,'`))
	if !strings.HasPrefix(local, "fe80::") {
		t.Fatalf("link-local address of the second guest: %q", local)
	}

	before := c.still(guests)
	begin := time.Now()
	if out := guests[0].do("all " + local); out != "" {
		t.Error(out)
	}
	took := time.Since(begin)
	after := c.still(guests)

	for i, g := range after.guests {
		old, port := before.guests[i], fmt.Sprintf("card%d", i)
		for _, d := range []struct {
			direction string
			counted   traffic
		}{{outbound, g.tx.minus(old.tx)}, {inbound, g.rx.minus(old.rx)}} {
			s := side{port, d.direction}
			if got := sum(after.frames[s]).minus(sum(before.frames[s])); got != d.counted {
				t.Errorf("port %s, direction %s: %+v in the capture, %+v counted by the card", port, d.direction, got, d.counted)
			}
		}
		if sent := g.netdev - old.netdev; sent != g.tx.frames-old.tx.frames {
			t.Errorf("%s: the netdev sent %d frames, the port %d", port, sent, g.tx.frames-old.tx.frames)
		}
		other := side{fmt.Sprintf("card%d", 1-i), inbound}
		if !maps.Equal(after.frames[side{port, outbound}], after.frames[other]) {
			t.Errorf("what %s sent is not what %s got", port, other.port)
		}
		e.part(t, port, "ethtool -S, tshark -T fields", fmt.Sprintf("%d frames out, %d in", g.tx.frames-old.tx.frames, g.rx.frames-old.rx.frames), took)
	}
	if len(after.frames) != 4 {
		t.Errorf("%d directions of ports in the capture, want 4", len(after.frames))
	}
	if t.Failed() {
		return
	}

	for _, g := range guests {
		if err := g.guest.Close(); err != nil {
			t.Errorf("power off: %v", err)
		}
		wantCleanLog(t, g.e.kernelLog())
	}
	if err := server.stop(); err != nil {
		t.Errorf("vrnic serve: %v", err)
	}
	wantQuietCard(t, filepath.Join(e.outDir, "serve.log"))
	c.nothing("_ws.malformed")
	c.nothing("ip.checksum.status == Bad || tcp.checksum.status == Bad || udp.checksum.status == Bad || icmp.checksum.status == Bad || icmpv6.checksum.status == Bad",
		"-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE")
	c.done()
}
