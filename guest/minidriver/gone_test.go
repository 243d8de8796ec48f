// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
)

// client is a connection that its owner can also write to as it likes.
type client struct {
	*vfiouser.Client
	conn *net.UnixConn
}

func dial(t *testing.T, ctx context.Context, socket string) client {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	must(t, err)
	c, err := vfiouser.NewClient(conn.(*net.UnixConn), vfiouser.ClientOptions{})
	must(t, err)
	return client{c, conn.(*net.UnixConn)}
}

// message is one of the protocol that the client does not wait for.
func message(cmd vfiouser.Command, payload []byte) []byte {
	const header = 16
	b := make([]byte, header, header+len(payload))
	vfiouser.Header{ID: 0x7777, Command: cmd, Size: uint32(header + len(payload))}.Put(b)
	return append(b, payload...)
}

// regionWrite is the payload of one register's write.
func regionWrite(off, v uint32) []byte {
	b := le.AppendUint64(nil, uint64(off))
	b = le.AppendUint32(b, bar0)
	b = le.AppendUint32(b, 4)
	return le.AppendUint32(b, v)
}

// dmaMessage is the payload of a map (with flags and offset) or of an unmap.
func dmaMessage(iova, size uint64, mapped bool) []byte {
	if !mapped {
		return le.AppendUint64(le.AppendUint64(le.AppendUint32(le.AppendUint32(nil, 24), 0), iova), size)
	}
	b := le.AppendUint32(le.AppendUint32(nil, 32), vfiouser.DMARead)
	return le.AppendUint64(le.AppendUint64(le.AppendUint64(b, 0), iova), size)
}

// goodbye is a way to leave with work under way.
type goodbye struct {
	name string
	do   func(t *testing.T, rnd *rand.Rand, m *machine, c client)
}

func goodbyes() []goodbye {
	// part sends what comes before a cut of the message: in its header, right
	// behind it, in the payload, one byte before its end.
	part := func(t *testing.T, rnd *rand.Rand, c client, msg []byte, fds ...int) {
		t.Helper()
		cuts := []int{1, 1 + rnd.IntN(15), 15, 16, 17 + rnd.IntN(len(msg)-17), len(msg) - 1}
		var oob []byte
		if len(fds) > 0 {
			oob = unix.UnixRights(fds...)
		}
		_, _, err := c.conn.WriteMsgUnix(msg[:cuts[rnd.IntN(len(cuts))]], oob, nil)
		must(t, err)
	}
	// send sends messages at once: the first unexpected reply ends a client.
	send := func(t *testing.T, c client, msgs ...[]byte) {
		t.Helper()
		_, err := c.conn.Write(slices.Concat(msgs...))
		must(t, err)
	}
	reset := func(kind ResetType) func(*testing.T, *rand.Rand, *machine, client) {
		return func(t *testing.T, rnd *rand.Rand, m *machine, _ client) {
			m.i.TriggerReset(kind)
			if rnd.IntN(2) == 0 {
				_, err := m.i.WaitReset()
				must(t, err)
			}
			if rnd.IntN(2) == 0 {
				must(t, m.r.RemoveInReset())
				must(t, m.i.PrepareForReset(true))
			}
		}
	}
	return []goodbye{
		{"at once", func(*testing.T, *rand.Rand, *machine, client) {}},
		{"in a register's write", func(t *testing.T, rnd *rand.Rand, m *machine, c client) {
			part(t, rnd, c, message(vfiouser.CmdRegionWrite, regionWrite(PFPE_CQPDB, 5)))
		}},
		{"in many writes", func(t *testing.T, rnd *rand.Rand, m *machine, c client) {
			payload := le.AppendUint64(nil, 40)
			for range 40 {
				payload = append(payload, regionWrite(PFPE_WQEALLOC, 3)...)
				payload = append(payload, 0, 0, 0, 0)
			}
			part(t, rnd, c, message(vfiouser.CmdRegionWriteMulti, payload))
		}},
		{"in a read", func(t *testing.T, rnd *rand.Rand, m *machine, c client) {
			part(t, rnd, c, message(vfiouser.CmdRegionRead, regionWrite(GLGEN_STAT, 0)[:16]))
		}},
		{"in a map with its descriptor", func(t *testing.T, rnd *rand.Rand, m *machine, c client) {
			part(t, rnd, c, message(vfiouser.CmdDMAMap, dmaMessage(0x9_0000_0000, pageSize, true)), m.f.Guest.fd)
		}},
		{"in interrupts with their descriptors", func(t *testing.T, rnd *rand.Rand, m *machine, c client) {
			var payload []byte
			for _, w := range []uint32{20, vfiouser.IRQSetDataEventFD | vfiouser.IRQSetTrigger, msixIndex, 0, 2} {
				payload = le.AppendUint32(payload, w)
			}
			part(t, rnd, c, message(vfiouser.CmdSetIRQs, payload), m.f.vectors[0].fd, m.f.vectors[1].fd)
		}},
		{"with replies to unmaps due", func(t *testing.T, rnd *rand.Rand, m *machine, c client) {
			var msgs [][]byte
			for _, r := range m.f.Guest.Ranges() {
				msgs = append(msgs, message(vfiouser.CmdDMAUnmap, dmaMessage(r.IOVA, r.Size, false)))
			}
			send(t, c, msgs...)
		}},
		{"with a reply to a device reset due", func(t *testing.T, rnd *rand.Rand, m *machine, c client) {
			msgs := [][]byte{message(vfiouser.CmdDeviceReset, nil)}
			if rnd.IntN(2) == 0 {
				msgs = append(msgs, message(vfiouser.CmdRegionRead, regionWrite(GLGEN_STAT, 0)[:16]))
			}
			send(t, c, msgs...)
		}},
		{"in a PF reset", func(t *testing.T, rnd *rand.Rand, m *machine, c client) {
			m.f.Write32(PFGEN_CTRL, pfgenCtrlPFSWR)
		}},
		{"in a CORER", reset(CORER)},
		{"in a GLOBR", reset(GLOBR)},
		{"in an EMPR", reset(EMPR)},
	}
}

// The client goes at any moment, with traffic under way: in a message, in a
// reset, before replies. The next one has the same memory, in which nobody
// writes any more, and finds a card that was just switched on; the process is
// as large as before.
func TestClientGone(t *testing.T) {
	ctx, sockets, _ := cards(t, 1)
	g := newGuestOf(t, 256)
	rnd := rand.New(rand.NewPCG(8, 1))
	kernels := Kernels()
	ways := goodbyes()
	cycles := len(ways) * 3 / 2
	if *full {
		cycles = 100
	}
	connect := func() (*Function, client) {
		c := dial(t, ctx, sockets[0])
		f, err := AttachClient(ctx, c.Client, g)
		must(t, err)
		if r := rackOf(ctx); r != nil {
			f.Pace = r.cards[sockets[0]].pace
		}
		return f, c
	}
	f, c := connect()
	defer func() { f.Detach() }()
	var before size
	for n := range cycles {
		way := ways[n%len(ways)]
		m, tr := loaded(t, f, kernels[n%len(kernels)], uint64(n))
		if !slices.Contains(m.i.Trace(), ice_aqc_opc_download_pkg) {
			t.Fatalf("cycle %d: the package of the client before is there", n)
		}
		must(t, tr.post())
		way.do(t, rnd, m, c)
		f.Detach()
		f, c = connect()
		tr.drop()
		m.abandon()
		silent(t, f)
		if v := f.Read32(GLGEN_RSTAT); v != 0 {
			t.Errorf("GLGEN_RSTAT is %#x for a new client", v)
		}
		if t.Failed() {
			t.Fatalf("cycle %d: after a client that left %s", n, way.name)
		}
		if n == len(ways)/2 {
			before = processSize()
		}
	}
	if err := before.grown(); err != nil {
		t.Error(err)
	}
	worksStill(t, f, Linux73())
}
