// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strconv"
	"testing"
)

// captureFrames reads a pcapng file (IETF draft-ietf-opsawg-pcapng), of
// little-endian sections of Ethernet as ours, and hands on every frame.
func captureFrames(path string, take func(s side, frame []byte)) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 1<<20)
	var ports []string
	const (
		interfaceBlock, packetBlock = 1, 6
		sectionBlock                = 0x0a0d0d0a
		nameOption, flagsOption     = 2, 2
	)
	option := func(b []byte, code uint16) []byte {
		for len(b) >= 4 {
			k, n := binary.LittleEndian.Uint16(b), int(binary.LittleEndian.Uint16(b[2:]))
			if k == 0 || 4+n > len(b) {
				return nil
			}
			if k == code {
				return b[4 : 4+n]
			}
			b = b[min(len(b), 4+(n+3)&^3):]
		}
		return nil
	}
	for {
		var head [8]byte
		if _, err := io.ReadFull(r, head[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		kind, length := binary.LittleEndian.Uint32(head[:]), binary.LittleEndian.Uint32(head[4:])
		if length < 12 || length > 1<<20 {
			return fmt.Errorf("%s: a block of %d bytes", path, length)
		}
		body := make([]byte, length-8)
		if _, err := io.ReadFull(r, body); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		body = body[:len(body)-4] // the length again
		switch kind {
		case sectionBlock:
			ports = nil
		case interfaceBlock:
			ports = append(ports, string(option(body[8:], nameOption)))
		case packetBlock:
			port, n := int(binary.LittleEndian.Uint32(body)), int(binary.LittleEndian.Uint32(body[12:]))
			if port >= len(ports) || 20+n > len(body) || n != int(binary.LittleEndian.Uint32(body[16:])) {
				return fmt.Errorf("%s: a frame of %d bytes of port %d, not all of it in its block", path, n, port)
			}
			direction := "0"
			if flags := option(body[20+(n+3)&^3:], flagsOption); len(flags) == 4 {
				direction = strconv.Itoa(int(flags[0] & 3))
			}
			take(side{ports[port], direction}, body[20:20+n])
		}
	}
}

// hardwarePacket is a CNP that a ConnectX-4 Lx sent (scapy: test/contrib/roce.uts).
const hardwarePacket = "e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a001201" +
	"000012b7002800008100ffff40000118000000000000000000000000000000000000000082fd002a"

const rocePort = 4791

// rocePacket finds the IP packet of a frame, with its UDP header and what is in
// it; ok: it is one of RoCEv2. tail is the place of its ICRC in the frame.
func rocePacket(f []byte) (ip, udp []byte, tail int, ok bool) {
	at := 12
	for len(f) >= at+4 && binary.BigEndian.Uint16(f[at:]) == 0x8100 {
		at += 4
	}
	if len(f) < at+2 {
		return nil, nil, 0, false
	}
	kind := binary.BigEndian.Uint16(f[at:])
	at += 2
	ip = f[at:]
	header, length := 0, 0
	switch {
	case kind == 0x0800 && len(ip) >= 20 && ip[9] == 17:
		header, length = int(ip[0]&15)*4, int(binary.BigEndian.Uint16(ip[2:]))
	case kind == 0x86dd && len(ip) >= 40 && ip[6] == 17:
		header, length = 40, 40+int(binary.BigEndian.Uint16(ip[4:]))
	default:
		return nil, nil, 0, false
	}
	if length > len(ip) || length < header+8+12+4 {
		return nil, nil, 0, false
	}
	ip, udp = ip[:length], ip[header:length]
	return ip, udp, at + length - 4, binary.BigEndian.Uint16(udp[2:]) == rocePort
}

// icrcOf computes the invariant CRC of a RoCEv2 packet (InfiniBand specification,
// annex A17.3.3): that of Ethernet over the packet from IP on, after 8 bytes of
// ones, and with ones where routers change something.
func icrcOf(ip, udp []byte) uint32 {
	b := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, ip[:len(ip)-4]...)
	header := b[8:]
	if ip[0]>>4 == 4 {
		header[1], header[8], header[10], header[11] = 0xff, 0xff, 0xff, 0xff // TOS, TTL, checksum
	} else {
		header[0] |= 0x0f // traffic class, flow label, hop limit
		header[1], header[2], header[3], header[7] = 0xff, 0xff, 0xff, 0xff
	}
	at := len(ip) - len(udp)
	header[at+6], header[at+7] = 0xff, 0xff // checksum
	header[at+8+4] = 0xff                   // FECN, BECN and what is reserved beside
	return crc32.ChecksumIEEE(b)
}

// rightICRC tells whether a packet of RoCEv2 ends in its ICRC.
func rightICRC(ip, udp []byte) bool {
	return binary.LittleEndian.Uint32(ip[len(ip)-4:]) == icrcOf(ip, udp)
}

// TestICRC holds the function above against a packet of hardware.
func TestICRC(t *testing.T) {
	f, err := hex.DecodeString(hardwarePacket)
	if err != nil {
		t.Fatal(err)
	}
	ip, udp, tail, ok := rocePacket(f)
	if !ok || !rightICRC(ip, udp) || tail != len(f)-4 {
		t.Errorf("of the packet %x: %t, ICRC at %d, computed %#x", f, ok, tail, icrcOf(ip, udp))
	}
	ip[8]--          // TTL: a router's to change
	udp[8+4] |= 0x80 // FECN
	if !rightICRC(ip, udp) {
		t.Error("changes on the way count")
	}
	udp[8+11] ^= 1 // PSN
	if rightICRC(ip, udp) {
		t.Error("another PSN has the same ICRC")
	}
}

// rocePackets is what passed a port in one direction.
type rocePackets struct{ frames, bad int }

// roce counts the packets of RoCEv2 of a capture, and wants that all end in their
// ICRC.
func (c *capture) roce() map[side]rocePackets {
	c.t.Helper()
	seen := map[side]rocePackets{}
	var first string
	err := captureFrames(c.path, func(s side, f []byte) {
		ip, udp, _, ok := rocePacket(f)
		if !ok {
			return
		}
		n := seen[s]
		n.frames++
		if !rightICRC(ip, udp) {
			if n.bad++; first == "" {
				first = fmt.Sprintf("%x, want ICRC %08x", f, icrcOf(ip, udp))
			}
		}
		seen[s] = n
	})
	if err != nil {
		c.t.Error(err)
	}
	for s, n := range seen {
		if n.bad > 0 {
			c.t.Errorf("port %s, direction %s: %d of %d packets have a wrong ICRC; the first of all: %s", s.port, s.direction, n.bad, n.frames, first)
		}
	}
	return seen
}

// dissected wants that another's dissector understands all of a capture, as what
// it is.
func (c *capture) dissected() {
	c.t.Helper()
	for _, filter := range []string{
		`_ws.malformed || _ws.short || _ws.expert.severity >= "Error"`,
		`udp.dstport == 4791 && !infiniband.bth`,
		`infiniband.vendor || infiniband.bth.tver != 0`,
		`infiniband && !infiniband.invariant.crc`,
	} {
		c.nothing(filter, plainRoCE...)
	}
}

// plainRoCE has tshark read what packets carry as bytes: programs send what they
// like, which a guess at a protocol on top would find wrong. That RoCEv2 leaves out
// the checksum of UDP over IPv6, too, it has to be told (annex A17.3.1.2.2; Linux
// rxe does the same, rxe_net.c:prepare_udp_hdr).
var plainRoCE = append([]string{"-o", "udp.ignore_ipv6_zero_checksum:TRUE"}, withoutHeuristics("smcr_infiniband", "smb_direct_infiniband", "rpcrdma_infiniband", "nvme_rdma", "lnet_ib",
	"iser_infiniband", "eth_over_ib", "mellanox_eoib", "sdp_infiniband", "fc_infiniband", "drbd_rdma")...)

func withoutHeuristics(names ...string) (args []string) {
	for _, n := range names {
		args = append(args, "--disable-heuristic", n)
	}
	return args
}
