// SPDX-License-Identifier: Apache-2.0

// Package frametest makes the frames that tests hold the card's against, with
// another's code: gopacket's.
package frametest

import (
	"bytes"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Build serializes layers with all lengths and checksums right; the last network
// layer before a transport is what its checksum needs.
func Build(t testing.TB, l ...gopacket.SerializableLayer) []byte {
	t.Helper()
	var network gopacket.NetworkLayer
	for _, x := range l {
		if n, ok := x.(gopacket.NetworkLayer); ok {
			network = n
		}
		switch x := x.(type) {
		case *layers.TCP:
			_ = x.SetNetworkLayerForChecksum(network)
		case *layers.UDP:
			_ = x.SetNetworkLayerForChecksum(network)
		case *layers.ICMPv6:
			_ = x.SetNetworkLayerForChecksum(network)
		}
	}
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, l...); err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(b.Bytes())
}
