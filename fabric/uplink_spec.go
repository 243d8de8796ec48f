// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Kinds of uplinks.
const (
	KindDgram  = "dgram"  // unix datagrams: QEMU's -netdev dgram,local.type=unix
	KindStream = "stream" // a unix stream: QEMU's -netdev stream,addr.type=unix
	KindUDP    = "udp"    // QEMU's -netdev dgram,local.type=inet
	KindTCP    = "tcp"    // QEMU's -netdev stream,addr.type=inet
	KindTAP    = "tap"    // a TAP interface of this host
)

// UplinkSpec says what an uplink is made of.
type UplinkSpec struct {
	Kind   string
	Local  string // dgram: path; udp: HOST:PORT; stream, tcp: where to listen or connect; tap: name
	Remote string // dgram: path; udp: HOST:PORT
	Server bool   // stream, tcp: listen
}

var uplinkForms = map[string]string{
	KindDgram:  "dgram:LOCAL,REMOTE",
	KindStream: "stream:PATH[,server]",
	KindUDP:    "udp:LOCAL:PORT,REMOTE:PORT",
	KindTCP:    "tcp:HOST:PORT[,server]",
	KindTAP:    "tap:NAME",
}

// ParseUplink reads dgram:LOCAL,REMOTE | stream:PATH[,server] |
// udp:LOCAL:PORT,REMOTE:PORT | tcp:HOST:PORT[,server] | tap:NAME. Paths have no
// comma in them. A local HOST may be empty: any address.
func ParseUplink(text string) (UplinkSpec, error) {
	kind, rest, _ := strings.Cut(text, ":")
	form, ok := uplinkForms[kind]
	if !ok {
		return UplinkSpec{}, fmt.Errorf("uplink %q: %q is none of dgram, stream, udp, tcp, tap", text, kind)
	}
	u := UplinkSpec{Kind: kind}
	words := strings.Split(rest, ",")
	u.Local = words[0]
	var err error
	switch kind {
	case KindDgram, KindUDP:
		if len(words) != 2 {
			err = errors.New("needs a local and a remote address")
			break
		}
		u.Remote = words[1]
	case KindStream, KindTCP:
		if len(words) == 2 && words[1] == "server" {
			u.Server = true
		} else if len(words) != 1 {
			err = fmt.Errorf("%q is not the word server", strings.Join(words[1:], ","))
		}
	case KindTAP:
		if len(words) != 1 {
			err = errors.New("has nothing after the name")
		}
	}
	if err == nil {
		err = u.check()
	}
	if err != nil {
		return UplinkSpec{}, fmt.Errorf("uplink %q: %w (want %s)", text, err, form)
	}
	return u, nil
}

// String is the specification in the words of ParseUplink.
func (u UplinkSpec) String() string {
	s := u.Kind + ":" + u.Local
	if u.Remote != "" {
		s += "," + u.Remote
	}
	if u.Server {
		s += ",server"
	}
	return s
}

func (u UplinkSpec) check() error {
	switch u.Kind {
	case KindDgram:
		if u.Local == u.Remote {
			return errors.New("local and remote are the same")
		}
		return errors.Join(checkPath(u.Local), checkPath(u.Remote))
	case KindStream:
		return checkPath(u.Local)
	case KindUDP:
		return errors.Join(checkHostPort(u.Local, true), checkHostPort(u.Remote, false))
	case KindTCP:
		return checkHostPort(u.Local, u.Server)
	case KindTAP:
		return checkInterface(u.Local)
	}
	return fmt.Errorf("%q is no kind of uplink", u.Kind)
}

// checkPath: an address of a unix socket in the file system.
func checkPath(path string) error {
	switch {
	case path == "":
		return errors.New("a path is empty")
	case path[0] == '@':
		return fmt.Errorf("%q is an abstract address, not a path", path)
	case len(path) >= len(unix.RawSockaddrUnix{}.Path):
		return fmt.Errorf("path %q is longer than %d bytes", path, len(unix.RawSockaddrUnix{}.Path)-1)
	case strings.ContainsRune(path, 0):
		return fmt.Errorf("path %q has a NUL in it", path)
	}
	return nil
}

func checkHostPort(addr string, local bool) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%q is not HOST:PORT", addr)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("port %q is not from 1 to 65535", port)
	}
	if host == "" && !local {
		return fmt.Errorf("%q has no host", addr)
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsMulticast() {
		return fmt.Errorf("%s is a multicast address", host)
	}
	return nil
}

// checkInterface: dev_valid_name in the kernel's net/core/dev.c, without the
// patterns that the kernel would expand.
func checkInterface(name string) error {
	if name == "" || name == "." || name == ".." || len(name) >= unix.IFNAMSIZ || strings.ContainsAny(name, "/:% \t\n\v\f\r\x00") {
		return fmt.Errorf("%q is not the name of an interface", name)
	}
	return nil
}
