# SPDX-License-Identifier: Apache-2.0

"""Has many queue pairs of one program talk at once.

    scale.py PAIRS                    until there is a file /tmp/stop

In each round every queue pair writes random bytes to memory of the one that it is
connected to; all that comes is compared. The file /tmp/rounds tells how far it is,
/tmp/connected that all are connected. At the end it prints a line of JSON.
"""

import json
import os
import random
import sys
import time

from pyverbs import enums as e
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

from verbs import ALL, Memory, check, connect, context, name, read, write

SLICE = 3000  # three packets, and rings that no page begins with

pairs = int(sys.argv[1])
n = 2 * pairs
ctx = context()
pd = PD(ctx)
cq = CQ(ctx, n + 1)
size = (n * SLICE + 4095) & ~4095
here, there = Memory(size), Memory(size)
source, sink = MR(pd, size, ALL, address=here.addr), MR(pd, size, ALL, address=there.addr)


def make():
    cap = QPCap(max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1)
    return QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap, sq_sig_all=1))


def publish(path, value):
    with open(path + ".new", "w") as f:
        f.write(str(value))
    os.replace(path + ".new", path)


gid, begun = ctx.query_gid(1, 1), time.monotonic()
qps = [make() for _ in range(n)]
for i in range(0, n, 2):
    for qp, peer in (qps[i], qps[i + 1]), (qps[i + 1], qps[i]):
        connect(qp, peer.qp_num, gid, psn=0xFFFFF0, reads=1, timeout=18)
took = time.monotonic() - begun
publish("/tmp/connected", n)

rnd, rounds = random.Random(pairs), 0
while not os.path.exists("/tmp/stop"):
    data = rnd.randbytes(n * SLICE)
    write(here.addr, data)
    for i, qp in enumerate(qps):
        wr = SendWR(wr_id=i, opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(here.addr + i * SLICE, SLICE, source.lkey)])
        wr.set_wr_rdma(sink.rkey, there.addr + i * SLICE)
        qp.post_send(wr)
    seen, end = set(), time.monotonic() + 300
    while len(seen) < n:
        came, wcs = cq.poll(64)
        if not came:
            time.sleep(0.001)  # others have work to do, too
        for wc in wcs:
            check(wc.status == e.IBV_WC_SUCCESS, "write of queue pair", wc.wr_id, name(e.ibv_wc_status, wc.status))
            check(wc.wr_id not in seen, "two completions of write", wc.wr_id)
            seen.add(wc.wr_id)
        check(time.monotonic() < end, len(seen), "of", n, "completions came")
    check(read(there.addr, n * SLICE) == data, "other bytes have come in round", rounds)
    rounds += 1
    publish("/tmp/rounds", rounds)

print(json.dumps({"queue_pairs": n, "rounds": rounds, "seconds": round(took, 1)}), flush=True)
for qp in qps:
    qp.close()
cq.close()
source.close()
sink.close()
pd.close()
ctx.close()
