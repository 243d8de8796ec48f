// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/vrnic/vrnic/guest/launch"
)

func init() {
	const what = "two guests: nvmet-rdma in one, nvme-rdma in the other, "
	for _, k := range worldKernels {
		table = append(table,
			check{8, "nvme-" + k, false, what + "mkfs.ext4, 64 MiB written and read back, register_always=Y and N, " + k, nvmeOn(k, (*storage).stores)},
			check{8, "nvme-link-" + k, false, what + "the link away for 5 s while it writes, " + k, nvmeOn(k, (*storage).linkAway)},
			check{8, "nvme-kill-" + k, false, what + "the target's QEMU killed while it writes, " + k, nvmeOn(k, (*storage).targetKilled)},
		)
	}
}

// storageLibrary has what a host of storage and its target need.
const storageLibrary = worldLibrary + programLibrary + `
NVMET=/sys/kernel/config/nvmet
# target: a disk in memory, for whoever asks at this address
target() {
	had=$(held)
	modprobe nvmet_rdma && modprobe brd rd_nr=1 rd_size=163840 || echo "FAILED: modprobe"
	mkdir -p $NVMET/subsystems/disk/namespaces/1 $NVMET/ports/1
	cd $NVMET/subsystems/disk
	echo 1 > attr_allow_any_host
	echo /dev/ram0 > namespaces/1/device_path
	echo 1 > namespaces/1/enable
	cd $NVMET/ports/1
	echo rdma > addr_trtype; echo ipv4 > addr_adrfam; echo $self > addr_traddr; echo 4420 > addr_trsvcid
	ln -s $NVMET/subsystems/disk subsystems/disk
	cd /
	cm || echo "FAILED: nobody listens"
}
# untarget: and nothing is left, but completion queues, which the kernel keeps for
# the next (core/cq.c:ib_cq_pool_put)
untarget() {
	rm $NVMET/ports/1/subsystems/disk
	rmdir $NVMET/ports/1 $NVMET/subsystems/disk/namespaces/1 $NVMET/subsystems/disk
	n=0
	until now=$(held); [ "$now" = "$had" ]; do
		n=$((n+1)); [ $n -lt 200 ] || { echo "FAILED: left behind: $now, before $had"; return; }
		sleep 0.1
	done
}
held() { rdma resource show $IB | sed 's/ cq [0-9]*//'; }
# disk: the one that a guest has as a host, once it is there
disk() {
	n=0
	until d=$(ls /sys/block | grep -x 'nvme[0-9]*n[0-9]*'); do
		n=$((n+1)); [ $n -lt 600 ] || { echo "FAILED: no disk"; return; }
		sleep 0.05
	done
	echo /dev/$d
}
# attach: the disk at the other guest, with further options
attach() {
	modprobe nvme_rdma
	echo "transport=rdma,traddr=$peer,trsvcid=4420,nqn=disk,nr_io_queues=2,$1" > /dev/nvme-fabrics || echo "FAILED: connect"
	DISK=$(disk)
}
detach() {
	for c in /sys/class/nvme/nvme*; do echo 1 > $c/delete_controller; done
	modprobe -r nvme_rdma
}
mounts() { modprobe ext4; mkdir -p /mnt/disk; mount -t ext4 "$@" /mnt/disk || echo "FAILED: mount"; }
sum() { sha256sum < $1; }
# stored: the sum of what the disk has, not of what this guest's memory has
stored() { echo 3 > /proc/sys/vm/drop_caches; sum /mnt/disk/data; }
data() { dd if=/dev/urandom of=/tmp/data bs=1M count=64 2> /dev/null; sum /tmp/data; }
store() { dd if=/tmp/data of=/mnt/disk/data bs=1M conv=fsync; }
# writes: again and again, until /tmp/stop is there or something went wrong
writes() {
	rm -f /tmp/stop; echo 0 > /tmp/rounds
	(
		n=0
		until [ -e /tmp/stop ]; do
			store || { echo "status $?"; exit 1; }
			n=$((n+1)); echo $n > /tmp/rounds
		done
		echo "status 0"
	) > /tmp/writer 2>&1 & writer=$!
}
writing() { kill -0 $writer 2> /dev/null && echo yes; }
`

// storage is a guest whose disk is in another.
type storage struct {
	t      *testing.T
	e      *env
	server *server
	kernel string
	host   *machine // nvme-rdma
	target *machine // nvmet-rdma

	log []allowedLine // expected of the host's kernel
}

// nvmeOn runs a test between two guests, and wants that it leaves nothing behind,
// and that nobody has anything to say.
func nvmeOn(kernel string, test func(*storage) string) func(*testing.T, *env) {
	return func(t *testing.T, e *env) {
		server := startServer(t, e, 2)
		names := []string{"host", "target"}
		var configs []launch.Config
		for i, name := range names {
			c := numbered(smallGuest(t, e, name, kernel, server.sockets[i:i+1]), i+1)
			c.MemoryMiB = 1024
			if name == "host" {
				c.CPUs = 2 // and as many queues
			}
			configs = append(configs, c)
		}
		var machines []*machine
		for i, g := range bootAll(t, configs) {
			m := newMachine(t, e.in(t, names[i]), server, g, storageLibrary)
			m.names(i+1, 2-i)
			machines = append(machines, m)
		}
		s := &storage{t: t, e: e, server: server, kernel: kernel, host: machines[0], target: machines[1]}
		s.target.quiet("target")
		s.host.quiet("attach; detach") // and the kernel has the completion queues that it keeps
		before := s.host.left()
		begin := time.Now()
		measured := test(s)
		if after := s.host.left(); after != before {
			t.Errorf("left behind: %q, before %q", after, before)
		}
		e.part(t, "nvme", "dd conv=fsync, 64 MiB, "+kernel, measured, time.Since(begin))
		for _, m := range machines {
			if err := m.guest.Close(); err != nil {
				t.Errorf("power off: %v", err)
			}
		}
		if err := server.stop(); err != nil {
			t.Errorf("vrnic serve: %v", err)
		}
		wantCleanLog(t, s.host.e.kernelLog(), s.log...)
		wantCleanLog(t, s.target.e.kernelLog())
		wantQuietCard(t, filepath.Join(e.outDir, "serve.log"))
	}
}

// left is what a guest's kernel and its card hold.
func (m *machine) left() string {
	m.t.Helper()
	return strings.TrimSpace(m.do("rdma resource show $IB")) + "; " + m.objects().String()
}

// filled makes a file system with the data, and tells their sum.
func (s *storage) filled() string {
	s.t.Helper()
	sum := s.host.do("data")
	s.host.quiet("mkfs.ext4 -q $DISK; mounts $DISK")
	s.wantStatus(s.host.do("store; echo status $?"), 0)
	s.wantStored(sum)
	return sum
}

func (s *storage) wantStatus(text string, status int) {
	s.t.Helper()
	if !strings.HasSuffix(text, fmt.Sprintf("status %d\n", status)) {
		s.t.Fatalf("a write ends with %q, want status %d", text, status)
	}
}

func (s *storage) wantStored(sum string) {
	s.t.Helper()
	if got := s.host.do("stored"); got != sum || len(sum) != len("  -\n")+64 {
		s.t.Errorf("written %q, read %q", sum, got)
	}
}

// wantAtTarget wants, when the host has gone, that the target has the data.
func (s *storage) wantAtTarget(sum string) {
	s.t.Helper()
	s.host.quiet("umount /mnt/disk; detach")
	s.target.quiet("untarget; mounts -o ro /dev/ram0")
	if got := s.target.do("sum /mnt/disk/data"); got != sum {
		s.t.Errorf("written %q, the target has %q", sum, got)
	}
	s.target.quiet("umount /mnt/disk")
}

// stores writes, and reads from another connection than the one that wrote.
// register_always=N has the target reach all of the host's memory by one key,
// where a request is of one piece.
func (s *storage) stores() string {
	before := s.host.statistics()
	s.host.quiet("attach")
	sum := s.filled()
	s.host.quiet("umount /mnt/disk; detach; modprobe nvme_rdma register_always=N; attach; mounts $DISK")
	s.wantStored(sum)
	sum = s.host.do("data")
	s.wantStatus(s.host.do("store; echo status $?"), 0)
	s.wantStored(sum)
	moved := s.host.statistics().minus(before)
	// The target reads what is to be stored and writes what is asked for.
	for counter, least := range map[string]int{"InRdmaReads": 128, "InRdmaWrites": 192, "InRdmaSends": 300, "RdmaInv": 300} {
		if moved[counter] < least {
			s.t.Errorf("%s of the host moved by %d, want %d at least", counter, moved[counter], least)
		}
	}
	s.wantAtTarget(sum)
	return fmt.Sprintf("sums equal; %d RDMA READs and %d WRITEs of the target", moved["InRdmaReads"], moved["InRdmaWrites"])
}

// underWay starts to write, and waits until the target has taken some of it.
func (s *storage) underWay() {
	s.t.Helper()
	before := s.host.statistics()
	s.host.quiet("writes")
	for {
		if s.host.do("writing") == "" {
			s.t.Fatalf("the write has ended: %s", s.host.do("cat /tmp/writer"))
		}
		if s.host.statistics().minus(before)["InRdmaReads"] >= 8 {
			return
		}
	}
}

// linkAway takes the host's link away.
func (s *storage) linkAway() string {
	const away = 5 * time.Second
	s.host.quiet("attach reconnect_delay=1,ctrl_loss_tmo=600")
	sum := s.filled()
	s.underWay()
	before := s.host.statistics()
	s.host.ctl("link", "down")
	s.host.do("dmesg -c")
	at := s.host.do("cat /tmp/rounds")
	time.Sleep(away)
	if now := s.host.do("cat /tmp/rounds; writing"); now != at+"yes\n" {
		s.t.Errorf("without a link: rounds, and whether it still writes: %q, before %q", now, at)
	}
	s.host.ctl("link", "up")
	s.host.quiet("carrier $NET")
	s.host.quiet("touch /tmp/stop")
	s.wantStatus(s.host.do("wait $writer; cat /tmp/writer"), 0)
	s.wantStored(sum)
	again := s.host.statistics().minus(before)["RetransSegs"]
	anew := strings.Count(s.host.do("dmesg"), "Successfully reconnected")
	if again == 0 && anew == 0 {
		s.t.Error("nothing was sent again, and nobody has reconnected")
	}
	s.wantAtTarget(sum)
	return fmt.Sprintf("sums equal; %d packets sent again, reconnected %d times", again, anew)
}

// diskLost are lines of a kernel that has lost a disk with a file system.
var diskLost = allowedLine{
	Line:   `I/O error|EXT4-fs|JBD2: |Aborting journal|lost (a?sync )?page write`,
	Reason: "the target is gone: the file system's writes fail",
}

// targetKilled ends the target, and wants that programs on the host are told.
func (s *storage) targetKilled() string {
	const (
		patience = 5 // seconds until requests fail that wait for a connection
		bound    = 2 * time.Minute
	)
	s.log = append(s.log, diskLost)
	s.host.quiet(fmt.Sprintf("attach reconnect_delay=2,ctrl_loss_tmo=30,fast_io_fail_tmo=%d", patience))
	s.filled()
	s.underWay()
	begin := time.Now()
	s.target.guest.Kill()
	for s.host.do("writing") != "" {
		if time.Since(begin) > bound {
			s.t.Fatalf("%v after the target's end the write has none", bound)
		}
		time.Sleep(time.Second / 4)
	}
	took := time.Since(begin)
	text := s.host.do("wait $writer; cat /tmp/writer")
	s.wantStatus(text, 1)
	if !regexp.MustCompile(`Input/output error|Read-only file system`).MatchString(text) {
		s.t.Errorf("the write ends with %q", text)
	}
	s.host.quiet("umount /mnt/disk; detach")
	// The card goes on.
	s.host.quiet("serve cm rping -s -C 10 -a $self")
	for _, side := range []string{"ask rping -c -C 10 -V -a $self", "served"} {
		if text := s.host.do(side); !strings.HasPrefix(text, "status 0\n") {
			s.t.Errorf("%s: %s", side, text)
		}
	}
	return fmt.Sprintf("an I/O error after %.0f s", took.Seconds())
}
