# SPDX-License-Identifier: Apache-2.0

"""Datagrams that nobody repeats, each of which can be told from the others.

    datagrams.py receive OWN N        room for N; a line of JSON: the queue pair
    datagrams.py send OWN PEER QPN N

OWN is an address of this machine whose GID is used, PEER the other's. A sender
ends when all are sent, a receiver when there is a file /tmp/stop; the last line is
JSON: how many were sent; or how many came, how many different ones, and how many
that nobody sent.
"""

import ipaddress
import json
import os
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

from verbs import PAGE, Memory, check, context, gid_index, pattern, read, write

QKEY = 0x11223344
SIZE = 256
GRH = 40  # before each datagram in memory
SLOT = 512
TEXT = pattern(64 * SIZE, 8)


def datagram(n):
    """datagram is the n-th: its number, and bytes that follow from it."""
    at = n % 63 * SIZE + n % 251
    return struct.pack(">I", n) + TEXT[at : at + SIZE - 4]


class Side:
    def __init__(self, own, slots, send, recv):
        self.ctx = context()
        self.pd, self.cq = PD(self.ctx), CQ(self.ctx, max(send, recv) + 1)
        self.mem = Memory(-(-slots * SLOT // PAGE) * PAGE)
        self.mr = MR(self.pd, self.mem.length, e.IBV_ACCESS_LOCAL_WRITE, address=self.mem.addr)
        cap = QPCap(max_send_wr=send, max_recv_wr=recv, max_send_sge=1, max_recv_sge=1)
        self.qp = QP(self.pd, QPInitAttr(qp_type=e.IBV_QPT_UD, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=1))
        self.gid = gid_index(self.ctx, own)
        a = QPAttr(port_num=1)
        a.qkey = QKEY
        self.qp.to_rts(a)

    def sge(self, slot, length):
        return SGE(self.mem.addr + slot * SLOT, length, self.mr.lkey)

    def poll(self):
        n, wcs = self.cq.poll(64)
        for wc in wcs[:n]:
            check(wc.status == e.IBV_WC_SUCCESS, "completion", wc.wr_id, "has status", wc.status)
        return wcs[:n]


def receive(own, n):
    s = Side(own, n, 1, n)
    for i in range(n):
        s.qp.post_recv(RecvWR(wr_id=i, num_sge=1, sg=[s.sge(i, SLOT)]))
    print(json.dumps({"qpn": s.qp.qp_num}), flush=True)
    came, numbers, bad = 0, set(), 0
    while True:
        over = os.path.exists("/tmp/stop")
        wcs = s.poll()
        for wc in wcs:
            came += 1
            data = read(s.mem.addr + wc.wr_id * SLOT + GRH, SIZE)
            number = struct.unpack(">I", data[:4])[0]
            if wc.byte_len != GRH + SIZE or data != datagram(number):
                bad += 1
            numbers.add(number)
        if over and not wcs:
            break
        if not wcs:
            time.sleep(0.01)
    print(json.dumps({"came": came, "different": len(numbers), "bad": bad}), flush=True)


def send(own, peer, qpn, n):
    DEPTH = 32
    s = Side(own, DEPTH, DEPTH, 1)
    text = f"{int(ipaddress.IPv6Address(('::ffff:' if '.' in peer else '') + peer)):032x}"
    dgid = ":".join(text[i : i + 4] for i in range(0, 32, 4))
    ah = AH(s.pd, attr=AHAttr(gr=GlobalRoute(dgid=GID(dgid), sgid_index=s.gid, hop_limit=1), is_global=1, port_num=1))
    sent, done, end = 0, 0, time.monotonic() + 100
    while done < n:
        while sent < n and sent - done < DEPTH:
            write(s.mem.addr + sent % DEPTH * SLOT, datagram(sent))
            wr = SendWR(wr_id=sent, opcode=e.IBV_WR_SEND, num_sge=1, sg=[s.sge(sent % DEPTH, SIZE)])
            wr.set_wr_ud(ah, qpn, QKEY)
            s.qp.post_send(wr)
            sent += 1
        for wc in s.poll():
            check(wc.wr_id == done, "completion", wc.wr_id, "after", done)
            done += 1
        check(time.monotonic() < end, "of", sent, "datagrams", done, "are complete")
    print(json.dumps({"sent": done}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive(sys.argv[2], int(sys.argv[3]))
    else:
        send(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
