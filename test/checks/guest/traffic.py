# SPDX-License-Identifier: Apache-2.0

"""Writes to the memory of a program elsewhere and reads it back, all the time.

    traffic.py OWN                    waits for the other
    traffic.py OWN PEER [MTU]         until there is a file /tmp/stop, or an error

OWN is an address of this machine, whose GID is used. By PEER, any address of the
other, they find each other. The file /tmp/rounds tells how far it is. At the end
each side prints a line of JSON: rounds, the status of the last completion, the
state of the queue pair and the event of it that came. (Those of ports and of GIDs
are not of interest.)
"""

import json
import os
import random
import socket
import sys
import time

from pyverbs import enums as e
from pyverbs.addr import GID
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

from verbs import ALL, MIB, Events, Line, Memory, check, connect, context, gid_index, name, read, write

PORT = 18516
LONGEST = 60_000


class Side:
    def __init__(self, line, own, mtu):
        self.ctx = context()
        self.events = Events(self.ctx)
        self.pd, self.cq = PD(self.ctx), CQ(self.ctx, 16)
        self.mem = Memory(MIB)
        self.mr = MR(self.pd, MIB, ALL, address=self.mem.addr)
        cap = QPCap(max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1)
        self.qp = QP(self.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=1))
        gid = gid_index(self.ctx, own)
        self.peer = line.swap({"qpn": self.qp.qp_num, "gid": str(self.ctx.query_gid(1, gid)), "addr": self.mem.addr, "rkey": self.mr.rkey})
        connect(self.qp, self.peer["qpn"], GID(self.peer["gid"]), gid, psn=0xFFFF00, mtu=mtu)
        line.swap("ready")

    def do(self, opcode, at, n):
        """do moves n bytes and returns the status of that."""
        wr = SendWR(opcode=opcode, num_sge=1, sg=[SGE(self.mem.addr + at, n, self.mr.lkey)])
        wr.set_wr_rdma(self.peer["rkey"], self.peer["addr"])
        self.qp.post_send(wr)
        end = time.monotonic() + 120
        while time.monotonic() < end:
            n, wcs = self.cq.poll(1)
            if n:
                return name(e.ibv_wc_status, wcs[0].status)
        return "none"

    def rounds(self):
        """rounds moves data there and back."""
        source, n = random.Random(1), 0
        while not os.path.exists("/tmp/stop"):
            data = source.randbytes(source.randrange(1, LONGEST))
            write(self.mem.addr, data)
            write(self.mem.addr + LONGEST, bytes(len(data)))
            for opcode, at in (e.IBV_WR_RDMA_WRITE, 0), (e.IBV_WR_RDMA_READ, LONGEST):
                status = self.do(opcode, at, len(data))
                if status != "SUCCESS":
                    return n, status
            check(read(self.mem.addr + LONGEST, len(data)) == data, "other bytes came back in round", n)
            n += 1
            with open("/tmp/rounds.new", "w") as f:
                f.write(str(n))
            os.replace("/tmp/rounds.new", "/tmp/rounds")  # whole, whoever reads it
        return n, "SUCCESS"

    def end(self, rounds, status):
        seconds = 10 if status != "SUCCESS" else 0.2
        event = self.events.next(seconds)
        while event and not event.startswith("QP_"):
            event = self.events.next(seconds)
        attr, _ = self.qp.query(e.IBV_QP_STATE)
        print(json.dumps({"rounds": rounds, "status": status, "state": name(e.ibv_qp_state, attr.qp_state), "event": event}), flush=True)
        self.qp.close()
        self.cq.close()
        self.mr.close()
        self.pd.close()
        self.ctx.close()


def main():
    own, peer = sys.argv[1], sys.argv[2:]
    if peer:
        line = Line(socket.create_connection((peer[0], PORT)))
    else:
        with socket.create_server(("::", PORT), family=socket.AF_INET6, dualstack_ipv6=True) as server:
            line = Line(server.accept()[0])
    side = Side(line, own, getattr(e, "IBV_MTU_" + (peer[1] if len(peer) > 1 else "1024")))
    if peer:
        side.end(*side.rounds())
    else:
        line.file.readline()  # of an end that comes
        side.end(0, "SUCCESS")


main()
