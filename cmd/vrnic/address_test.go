// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vrnic/vrnic/guest/launch"
)

func TestCountMACs(t *testing.T) {
	for _, tc := range []struct {
		first      string
		n          int
		want, fail string
	}{
		{defaultMAC, 2, "02:e8:10:00:00:01 02:e8:10:00:00:02", ""},
		{"02-E8-10-00-FF-FF", 2, "02:e8:10:00:ff:ff 02:e8:10:01:00:00", ""},
		{"00:00:00:00:00:01", 1, "00:00:00:00:00:01", ""},
		{"fe:ff:ff:ff:ff:ff", 1, "fe:ff:ff:ff:ff:ff", ""},
		{"fe:ff:ff:ff:ff:ff", 2, "", "card1 would have ff:00:00:00:00:00, a multicast address"},
		{"ff:ff:ff:ff:ff:ff", 2, "", "card0 would have ff:ff:ff:ff:ff:ff, a multicast address"},
		{"01:00:5e:00:00:01", 1, "", "multicast"},
		{"00:00:00:00:00:00", 2, "", "zeros"},
		{"02:e8:10:00:00", 1, "", "want six bytes"},
		{"02:e8:10:00:00:01:02:03", 1, "", "want six bytes"},
		{"", 1, "", "want six bytes"},
		{"card", 1, "", "want six bytes"},
	} {
		macs, err := countMACs(tc.first, tc.n)
		var got []string
		for _, m := range macs {
			got = append(got, macText(m))
		}
		checkCounted(t, tc.first, strings.Join(got, " "), tc.want, err, tc.fail)
	}
}

func TestCountAddresses(t *testing.T) {
	for _, tc := range []struct {
		first      string
		n          int
		want, fail string
	}{
		{defaultAddress, 2, "[192.168.77.1/24 fd77::1/64] [192.168.77.2/24 fd77::2/64]", ""},
		{"192.168.77.3/24", 1, "[192.168.77.3/24 fd77::3/64]", ""},
		{"10.0.0.254/8", 2, "[10.0.0.254/8 fd77::fe/64] [10.0.0.255/8 fd77::ff/64]", ""},
		{"10.0.0.2/31", 2, "[10.0.0.2/31 fd77::2/64] [10.0.0.3/31 fd77::3/64]", ""},
		{"10.0.0.2/32", 1, "[10.0.0.2/32 fd77::2/64]", ""},
		{"10.0.0.2/32", 2, "", "guest 1 would have 10.0.0.3"},
		{"10.0.0.255/8", 2, "", "last byte of 0"},
		{"192.168.77.254/24", 2, "", "guest 1 would have 192.168.77.255, which is no host's"},
		{"192.168.77.128/25", 1, "", "guest 0 would have 192.168.77.128, which is no host's"},
		{"255.255.255.255/0", 2, "", "no host's"},
		{"0.0.0.0/0", 1, "", "no host's"},
		{"224.0.0.1/4", 1, "", "no host's"},
		{"127.0.0.1/8", 1, "", "no host's"},
		{"192.168.77.1", 1, "", "want an IPv4 prefix"},
		{"fd77::1/64", 1, "", "want an IPv4 prefix"},
		{"", 1, "", "want an IPv4 prefix"},
	} {
		addresses, err := countAddresses(tc.first, tc.n)
		got := strings.Trim(fmt.Sprint(addresses), "[]")
		if got != "" {
			got = "[" + got + "]"
		}
		checkCounted(t, tc.first, got, tc.want, err, tc.fail)
	}
}

func checkCounted(t *testing.T, first, got, want string, err error, fail string) {
	t.Helper()
	if got != want || (err != nil) != (fail != "") || err != nil && !strings.Contains(err.Error(), fail) {
		t.Errorf("%q: %s, %v; want %s%s", first, got, err, want, fail)
	}
}

// Each guest has its own of the addresses, and knows the other's.
func TestGuestAddresses(t *testing.T) {
	r := &runFlags{guests: 2, cpus: 1, memory: "1G", mac: "02:00:00:00:01:ff", address: "10.1.2.3/16"}
	c, err := r.config([]string{"true"})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		"02:00:00:00:01:ff [10.1.2.3/16 fd77::3/64] [{10.1.2.4 peer} {fd77::4 peer}]",
		"02:00:00:00:02:00 [10.1.2.4/16 fd77::4/64] [{10.1.2.3 peer} {fd77::3 peer}]",
	} {
		var g launch.Config = r.guest(c, i, []string{"a", "b"})
		net := g.Guest.Nets[0]
		if got := fmt.Sprint(net.MAC, " ", net.Addresses, " ", g.Guest.Hosts); got != want {
			t.Errorf("guest %d has %s, want %s", i, got, want)
		}
	}
}
