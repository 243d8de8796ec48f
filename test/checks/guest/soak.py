# SPDX-License-Identifier: Apache-2.0

"""Traffic of all kinds between two machines, both ways at once, every byte of it
looked at.

    soak.py OWN          waits for the other
    soak.py OWN PEER     until there is a file /tmp/stop

OWN is an address of this machine, whose GID is used. By PEER, any address of the
other, they find each other. Connections are four, each of another path MTU, with
sends, writes, writes with immediate data and reads under way at once. Both sides
draw the same numbers, so each knows what comes. Between them pass datagrams, which
may be lost, or come twice.

The file /tmp/soaked tells how many messages have come. At the end each side prints
a line of JSON; that all that was sent has come, once and in order, is checked
before.
"""

import ctypes
import json
import os
import random
import select
import socket
import struct
import sys
import time

from pyverbs import enums as e
from pyverbs.addr import AH, GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

from datagrams import GRH, QKEY, SIZE, datagram
from verbs import ALL, MIB, PAGE, Line, Memory, check, connect, context, gid_index, name, pattern, read, write

PORT = 18517
PATH_MTUS = 1024, 4096, 256, 2048
SLOTS = 8  # messages that the peer has not looked at, and operations of others
SLOT = 32 << 10
TURNOVER = 64  # operations until a region is made anew
PATIENCE = 100  # seconds without a completion

TEXT = pattern(MIB, 4)
SEND, WRITE, READ, MIRROR = range(4)  # MIRROR: a write that is read back


def plan(direction, flow):
    """plan is the messages of a connection, one way: kind, and where in the text
    their bytes are."""
    draw = random.Random(f"{direction} {flow}")
    while True:
        longest = draw.choice((64, 2000, 9000, SLOT))
        length = draw.randrange(1, longest + 1)
        yield draw.randrange(4), draw.randrange(MIB - length), length


class Flow:
    """Flow is a connection.

    Its memory is slots for messages that the peer sends, slots for those that it
    writes, slots that are its own to write and read back, slots for what is read
    here, and words: how many messages the peer has looked at, and what tells it so.
    """

    def __init__(self, side, number):
        self.side, self.number = side, number
        self.mem = Memory(4 * SLOTS * SLOT + PAGE)
        self.mr = MR(side.pd, self.mem.length, ALL, address=self.mem.addr)
        area = lambda i: self.mem.addr + i * SLOTS * SLOT
        self.received, self.written, self.mirrored, self.fetched, self.words = (area(i) for i in range(5))
        write(self.words, bytes(PAGE))
        cap = QPCap(max_send_wr=4 * SLOTS, max_recv_wr=SLOTS, max_send_sge=1, max_recv_sge=1)
        self.qp = QP(side.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=side.cq, rcq=side.cq, cap=cap, sq_sig_all=1))
        self.landing = self.region()
        self.out, self.into = plan(side.way, number), plan(1 - side.way, number)
        self.sent = self.seen = self.told = self.done = 0
        self.free, self.busy = list(range(SLOTS)), {}  # wr_id: what to do when it is complete
        self.wr_id = self.ops = 0
        self.next = next(self.out)

    def region(self):
        return MR(self.side.pd, SLOTS * SLOT, ALL, address=self.fetched)

    def connect(self, peer, gid):
        self.peer = peer
        mtu = getattr(e, f"IBV_MTU_{PATH_MTUS[self.number % len(PATH_MTUS)]}")
        connect(self.qp, peer["qpn"], GID(peer["gid"]), gid, psn=0xFFFF00, mtu=mtu)  # PSNs wrap
        for slot in range(SLOTS):  # before the peer is told that it may send
            self.receive(slot)

    def receive(self, slot):
        ctypes.memset(self.received + slot * SLOT, 0, SLOT)
        self.qp.post_recv(RecvWR(wr_id=slot, num_sge=1, sg=[SGE(self.received + slot * SLOT, SLOT, self.mr.lkey)]))

    def post(self, opcode, addr, length, lkey, remote=0, imm=None, done=None):
        """post sends work, whose completion calls done."""
        wr = SendWR(wr_id=self.wr_id, opcode=opcode, num_sge=1, sg=[SGE(addr, length, lkey)], **({} if imm is None else {"imm_data": imm}))
        if remote:
            wr.set_wr_rdma(*remote)
        self.qp.post_send(wr)
        self.busy[self.wr_id] = done or (lambda: None)
        self.wr_id += 1

    def there(self, area, slot=0):
        """there is a slot of the peer's memory, in the same area."""
        return self.peer["rkey"], self.peer["addr"] + area - self.mem.addr + slot * SLOT

    def credit(self):
        """credit is how many messages the peer has looked at."""
        return struct.unpack("<Q", read(self.words, 8))[0]

    def step(self, more):
        """step begins what can begin. It tells whether that was anything."""
        if self.told != self.seen and len(self.busy) < 2 * SLOTS:
            self.told = self.seen
            word = self.words + 8 * (1 + self.wr_id % (4 * SLOTS))
            write(word, struct.pack("<Q", self.told))
            self.post(e.IBV_WR_RDMA_WRITE, word, 8, self.mr.lkey, self.there(self.words))
        if not more or len(self.busy) >= 2 * SLOTS:
            return False
        kind, at, length = self.next
        text, lkey = self.side.text.addr + at, self.side.text_mr.lkey
        if kind in (SEND, WRITE):
            if self.sent - self.credit() >= SLOTS:
                return False
            slot = self.sent % SLOTS
            if kind == SEND:
                self.post(e.IBV_WR_SEND_WITH_IMM, text, length, lkey, imm=self.sent)
            else:
                self.post(e.IBV_WR_RDMA_WRITE_WITH_IMM, text, length, lkey, self.there(self.written, slot), imm=self.sent)
            self.sent += 1
        else:
            if self.ops >= TURNOVER:
                if len(self.free) < SLOTS:
                    return False  # until nothing is under way there
                self.landing.close()
                self.landing, self.ops = self.region(), 0
            if not self.free:
                return False
            slot = self.free.pop()
            self.ops += 1
            source = self.peer["text_rkey"], self.peer["text"] + at
            if kind == MIRROR:
                source = self.there(self.mirrored, slot)
                self.post(e.IBV_WR_RDMA_WRITE, text, length, lkey, source)
            here = self.fetched + slot * SLOT
            ctypes.memset(here, 0, length)
            self.post(e.IBV_WR_RDMA_READ, here, length, self.landing.lkey, source, done=lambda: self.fetch(slot, kind, at, length))
        self.next = next(self.out)
        return True

    def fetch(self, slot, kind, at, length):
        check(read(self.fetched + slot * SLOT, length) == TEXT[at : at + length], "connection", self.number, "reads other bytes, kind", kind)
        self.free.append(slot)
        self.done += 1

    def came(self, wc):
        """came looks at a message."""
        kind, at, length = next((k, a, n) for k, a, n in self.into if k in (SEND, WRITE))
        what = "connection", self.number, "message", self.seen
        check(wc.imm_data == self.seen, *what, "has the number", wc.imm_data)
        check((wc.opcode == e.IBV_WC_RECV_RDMA_WITH_IMM) == (kind == WRITE), *what, "has opcode", wc.opcode)
        check(wc.byte_len == length, *what, "has", wc.byte_len, "bytes of", length)
        slot = self.seen % SLOTS
        addr = self.written + slot * SLOT if kind == WRITE else self.received + wc.wr_id * SLOT
        check(read(addr, length) == TEXT[at : at + length], *what, "has other bytes")
        if kind == WRITE:
            ctypes.memset(addr, 0, length)
        self.receive(wc.wr_id)
        self.seen += 1

    def close(self):
        for x in self.qp, self.landing, self.mr:
            x.close()


class Datagrams:
    """Datagrams is a queue pair of those that may be lost."""

    DEPTH = 256

    def __init__(self, side):
        self.side = side
        self.mem = Memory(2 * self.DEPTH * 512)
        self.mr = MR(side.pd, self.mem.length, e.IBV_ACCESS_LOCAL_WRITE, address=self.mem.addr)
        self.cq = CQ(side.ctx, 2 * self.DEPTH)
        cap = QPCap(max_send_wr=self.DEPTH, max_recv_wr=self.DEPTH, max_send_sge=1, max_recv_sge=1)
        self.qp = QP(side.pd, QPInitAttr(qp_type=e.IBV_QPT_UD, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=1))
        self.sent = self.complete = self.came = 0
        self.numbers = set()

    def connect(self, peer, gid):
        a = QPAttr(port_num=1)
        a.qkey = QKEY
        self.qp.to_rts(a)
        self.ah = AH(self.side.pd, attr=AHAttr(gr=GlobalRoute(dgid=GID(peer["gid"]), sgid_index=gid, hop_limit=1), is_global=1, port_num=1))
        self.qpn = peer["datagrams"]
        for i in range(self.DEPTH):
            self.receive(i)

    def sge(self, slot, length):
        return SGE(self.mem.addr + slot * 512, length, self.mr.lkey)

    def receive(self, slot):
        self.qp.post_recv(RecvWR(wr_id=slot, num_sge=1, sg=[self.sge(slot, 512)]))

    def step(self, more):
        n, wcs = self.cq.poll(16)
        for wc in wcs[:n]:
            check(wc.status == e.IBV_WC_SUCCESS, "a datagram has status", name(e.ibv_wc_status, wc.status))
            if not wc.opcode & e.IBV_WC_RECV:
                self.complete += 1
                continue
            data = read(self.mem.addr + wc.wr_id * 512 + GRH, SIZE)
            number = struct.unpack(">I", data[:4])[0]
            check(wc.byte_len == GRH + SIZE and data == datagram(number), "a datagram that nobody sent")
            self.came += 1
            self.numbers.add(number)
            self.receive(wc.wr_id)
        if more and self.sent - self.complete < 4:
            slot = self.DEPTH + self.sent % self.DEPTH
            write(self.mem.addr + slot * 512, datagram(self.sent))
            wr = SendWR(wr_id=self.sent, opcode=e.IBV_WR_SEND, num_sge=1, sg=[self.sge(slot, SIZE)])
            wr.set_wr_ud(self.ah, self.qpn, QKEY)
            self.qp.post_send(wr)
            self.sent += 1

    def close(self):
        for x in self.qp, self.ah, self.cq, self.mr:
            x.close()


class Side:
    def __init__(self, sock, own, way):
        self.sock, self.line, self.way = sock, Line(sock), way
        self.ctx = context()
        self.pd, self.cq = PD(self.ctx), CQ(self.ctx, 1024)
        self.text = Memory(MIB)
        write(self.text.addr, TEXT)
        self.text_mr = MR(self.pd, MIB, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_READ, address=self.text.addr)
        gid = gid_index(self.ctx, own)
        self.flows = [Flow(self, i) for i in range(len(PATH_MTUS))]
        self.datagrams = Datagrams(self)
        self.by_qpn = {f.qp.qp_num: f for f in self.flows}
        own_gid = str(self.ctx.query_gid(1, gid))
        peer = self.line.swap({
            "gid": own_gid, "text": self.text.addr, "text_rkey": self.text_mr.rkey, "datagrams": self.datagrams.qp.qp_num,
            "flows": [{"gid": own_gid, "qpn": f.qp.qp_num, "addr": f.mem.addr, "rkey": f.mr.rkey} for f in self.flows],
        })
        for f, p in zip(self.flows, peer["flows"]):
            f.connect({**p, "text": peer["text"], "text_rkey": peer["text_rkey"]}, gid)
        self.datagrams.connect(peer, gid)
        self.last = time.monotonic()
        self.line.swap("ready")

    def poll(self):
        """poll takes completions, and tells how many."""
        n, wcs = self.cq.poll(32)
        for wc in wcs[:n]:
            f = self.by_qpn[wc.qp_num]
            check(wc.status == e.IBV_WC_SUCCESS, "connection", f.number, "ends with", name(e.ibv_wc_status, wc.status), hex(wc.vendor_err))
            if wc.opcode & e.IBV_WC_RECV:
                f.came(wc)
            else:
                f.busy.pop(wc.wr_id)()
        if n:
            self.last = time.monotonic()
        idle = time.monotonic() - self.last
        check(idle < PATIENCE, "no completion for", PATIENCE, "s;", [(f.sent, f.credit(), f.seen, len(f.busy)) for f in self.flows])
        return n

    def stopped(self):
        """stopped tells, at either side, that it is enough."""
        if self.way == 0:
            if not os.path.exists("/tmp/stop"):
                return False
            self.line.tell("stop")
            return True
        if not select.select([self.sock], [], [], 0)[0]:
            return False
        check(self.line.hear() == "stop", "the other side says something else")
        return True

    def run(self):
        told = 0
        while not self.stopped():
            begun = False
            for f in self.flows:
                begun = f.step(True) or begun
            self.datagrams.step(True)
            if not self.poll() and not begun:
                time.sleep(0.001)
            n = sum(f.seen + f.done for f in self.flows)
            if n >= told + 50:
                told = n
                with open("/tmp/soaked.new", "w") as file:
                    file.write(str(n))
                os.replace("/tmp/soaked.new", "/tmp/soaked")  # whole, whoever reads it

    def finish(self):
        """finish waits for all that is under way, here and there."""
        self.last = time.monotonic()
        while any(f.busy for f in self.flows):
            self.poll()
            self.datagrams.step(False)
        due = self.line.swap([f.sent for f in self.flows])
        self.last = time.monotonic()
        while any(f.seen < n for f, n in zip(self.flows, due)):
            self.poll()
            self.datagrams.step(False)
        check([f.seen for f in self.flows] == due, "received", [f.seen for f in self.flows], "of", due)
        self.line.swap("done")
        self.datagrams.step(False)
        n, _ = self.cq.poll(1)
        check(n == 0, "something comes after the end")
        d = self.datagrams
        print(json.dumps({
            "sent": sum(f.sent for f in self.flows), "received": sum(f.seen for f in self.flows), "read": sum(f.done for f in self.flows),
            "datagrams": d.sent, "came": d.came, "different": len(d.numbers),
        }), flush=True)
        for f in self.flows:
            f.close()
        d.close()
        for x in self.text_mr, self.cq, self.pd, self.ctx:
            x.close()


def main():
    own, peer = sys.argv[1], sys.argv[2:]
    if peer:
        side = Side(socket.create_connection((peer[0], PORT)), own, 0)
    else:
        with socket.create_server(("::", PORT), family=socket.AF_INET6, dualstack_ipv6=True) as server:
            side = Side(server.accept()[0], own, 1)
    side.run()
    side.finish()


main()
