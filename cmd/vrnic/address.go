// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
)

// The addresses of the first card and guest of vrnic run, unless flags say others.
const (
	defaultMAC     = "02:e8:10:00:00:01"
	defaultAddress = "192.168.77.1/24"
)

// countMACs returns n addresses for cards, from first upwards.
func countMACs(first string, n int) (macs [][6]byte, err error) {
	a, err := net.ParseMAC(first)
	if err != nil || len(a) != 6 {
		return nil, fmt.Errorf("--mac %q: want six bytes such as %s", first, defaultMAC)
	}
	base := binary.BigEndian.Uint64(append([]byte{0, 0}, a...))
	for i := range n {
		var wide [8]byte
		binary.BigEndian.PutUint64(wide[:], base+uint64(i))
		mac := [6]byte(wide[2:])
		// So it is before the addresses of 48 bits are used up, too.
		if mac[0]&1 != 0 {
			return nil, fmt.Errorf("--mac %s: card%d would have %s, a multicast address", first, i, macText(mac))
		}
		if mac == ([6]byte{}) {
			return nil, fmt.Errorf("--mac %s: a card cannot have the address of zeros", first)
		}
		macs = append(macs, mac)
	}
	return macs, nil
}

func macText(mac [6]byte) string { return net.HardwareAddr(mac[:]).String() }

// countAddresses returns the addresses of n guests: from the IPv4 prefix of the
// first upwards, and the one in fd77::/64 that ends in the same byte.
func countAddresses(first string, n int) (addresses [][]netip.Prefix, err error) {
	p, err := netip.ParsePrefix(first)
	if err != nil || !p.Addr().Is4() {
		return nil, fmt.Errorf("--address %q: want an IPv4 prefix such as %s", first, defaultAddress)
	}
	v4 := p.Addr()
	for i := range n {
		if !p.Contains(v4) || !isHost(v4, p.Bits()) {
			return nil, fmt.Errorf("--address %s: guest %d would have %s, which is no host's there", first, i, v4)
		}
		last := v4.As4()[3]
		if last == 0 {
			return nil, fmt.Errorf("--address %s: guest %d would have %s; a last byte of 0 gives no IPv6 address", first, i, v4)
		}
		addresses = append(addresses, []netip.Prefix{
			netip.PrefixFrom(v4, p.Bits()),
			netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x77, 15: last}), 64),
		})
		v4 = v4.Next() // invalid, and in no prefix, after the last
	}
	return addresses, nil
}

// isHost tells an address that a host may have from those of networks, of
// everybody and of nobody.
func isHost(a netip.Addr, bits int) bool {
	if !a.IsGlobalUnicast() && !a.IsLinkLocalUnicast() {
		return false
	}
	b := a.As4()
	network := uint32(uint64(1<<32-1) << (32 - bits))
	host := binary.BigEndian.Uint32(b[:]) &^ network
	return bits >= 31 || host != 0 && host != ^network
}
