# SPDX-License-Identifier: Apache-2.0

"""Makes and ends queue pairs, regions and address handles while data goes through
others, and through themselves.

    churn.py SECONDS [SEED]

Every byte that arrives is compared with what was sent. What a region that has
ended lies in is filled with a pattern at once, which nothing may change from then
on. One line of JSON on stdout: how often what was done. The first thing that is
not as it must be ends the program with a status that is not 0.
"""

import collections
import json
import random
import sys
import time

from pyverbs import enums as e
from pyverbs.addr import AH, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

from verbs import ALL, PAGE, Memory, Pair, check, context, name, pattern, read, write

SLICE = 24 << 10  # of a write: several packets
DEPTH = 8  # writes of a cell under way at once
CELLS = 12
HANDLES = 16
QKEY = 0x11111111
DATAGRAM, GRH = 512, 40

seconds, seed = float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
rnd = random.Random(seed)
ctx = context()
pd = PD(ctx)
done = collections.Counter()
poison = bytes([0xEE]) * (DEPTH * SLICE)


class Cell:
    """Cell is two connected queue pairs and a region at each end."""

    def __init__(self):
        self.pair = Pair(ctx, pd)
        self.mem = [Memory(DEPTH * SLICE, shuffle=rnd.random() < 0.5) for _ in range(2)]
        self.mr = [MR(pd, m.length, ALL, address=m.addr) for m in self.mem]
        self.data, self.flying = [], 0
        done["cells"] += 1

    def push(self):
        """push puts writes under way."""
        if self.flying:
            return
        self.data = [rnd.randbytes(rnd.randrange(1, SLICE)) for _ in range(rnd.randrange(1, DEPTH + 1))]
        for i, d in enumerate(self.data):
            write(self.mem[0].addr + i * SLICE, d)
            self.pair.post(e.IBV_WR_RDMA_WRITE, (self.mem[0].addr + i * SLICE, len(d), self.mr[0].lkey), self.mr[1].rkey, self.mem[1].addr + i * SLICE)
        self.flying = len(self.data)

    def settle(self):
        """settle waits for the writes and looks at what has come."""
        if not self.flying:
            return
        self.pair.wait(self.flying, 120)
        self.flying = 0
        for i, d in enumerate(self.data):
            check(read(self.mem[1].addr + i * SLICE, len(d)) == d, "other bytes have come, write", i, "of", len(self.data))
        done["writes"] += len(self.data)

    def end(self):
        """end takes everything away, in an order of many, while writes are under way."""
        self.push()
        parts = ["a", "b", "mr0", "mr1"]
        rnd.shuffle(parts)
        told = False
        for p in parts:
            if p in "ab":
                getattr(self.pair, p).close()
                done["queue pairs ended"] += 1
            else:
                i = int(p[2])
                self.mr[i].close()
                done["regions ended"] += 1
                if i == 1:
                    # No packet finds it from now on.
                    write(self.mem[1].addr, poison)
                    told = True
        self.pair.cq.close()
        check(told and read(self.mem[1].addr, len(poison)) == poison, "memory of a region that had ended was written to")
        graves.append(self.mem[1])
        self.mem[0].close()


class Datagrams:
    """Datagrams is a queue pair that sends to itself by handles that come and go."""

    def __init__(self):
        self.cq = CQ(ctx, 64)
        cap = QPCap(max_send_wr=16, max_recv_wr=16, max_send_sge=1, max_recv_sge=1)
        self.qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_UD, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=1))
        a = QPAttr(port_num=1)
        a.qkey = QKEY
        self.qp.to_rts(a)
        self.mem = Memory(PAGE)
        self.mr = MR(pd, PAGE, ALL, address=self.mem.addr)
        self.handles = []

    def send(self):
        if len(self.handles) < HANDLES and rnd.random() < 0.7 or not self.handles:
            gid = 1
            attr = AHAttr(gr=GlobalRoute(dgid=ctx.query_gid(1, gid), sgid_index=gid, hop_limit=rnd.randrange(1, 255)), is_global=1, port_num=1)
            self.handles.append(AH(pd, attr=attr))
            done["handles"] += 1
        ah = rnd.choice(self.handles)
        data = rnd.randbytes(DATAGRAM)
        write(self.mem.addr, data)
        write(self.mem.addr + PAGE // 2, bytes(GRH + DATAGRAM))
        self.qp.post_recv(RecvWR(num_sge=1, sg=[SGE(self.mem.addr + PAGE // 2, GRH + DATAGRAM, self.mr.lkey)]))
        wr = SendWR(opcode=e.IBV_WR_SEND, num_sge=1, sg=[SGE(self.mem.addr, DATAGRAM, self.mr.lkey)])
        wr.set_wr_ud(ah, self.qp.qp_num, QKEY)
        self.qp.post_send(wr)
        n, end = 0, time.monotonic() + 120
        while n < 2:
            _, wcs = self.cq.poll(2 - n)
            for wc in wcs:
                check(wc.status == e.IBV_WC_SUCCESS, "datagram", name(e.ibv_wc_status, wc.status))
                n += 1
            check(time.monotonic() < end, "no completion of a datagram")
        check(read(self.mem.addr + PAGE // 2 + GRH, DATAGRAM) == data, "another datagram has come")
        done["datagrams"] += 1
        if rnd.random() < 0.5:
            self.handles.remove(ah)
            ah.close()
            done["handles ended"] += 1

    def close(self):
        for h in self.handles:
            h.close()
        self.qp.close()
        self.cq.close()
        self.mr.close()
        self.mem.close()


graves = collections.deque()  # memory that nothing may write to
cells, datagrams = [Cell() for _ in range(2)], Datagrams()
end = time.monotonic() + seconds
while time.monotonic() < end:
    for c in cells:
        c.push()
    what = rnd.random()
    if what < 0.3 and len(cells) < CELLS:
        cells.append(Cell())
    elif what < 0.6 and len(cells) > 2:
        cells.pop(rnd.randrange(len(cells))).end()
    else:
        datagrams.send()
    for c in cells:
        c.settle()
    while len(graves) > CELLS:
        m = graves.popleft()
        check(read(m.addr, len(poison)) == poison, "memory of a region that had ended was written to later")
        m.close()
for c in cells:
    c.end()
datagrams.close()
for m in graves:
    check(read(m.addr, len(poison)) == poison, "memory of a region that had ended was written to at last")
pd.close()
ctx.close()
print(json.dumps(done), flush=True)
