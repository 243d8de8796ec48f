# SPDX-License-Identifier: Apache-2.0

"""Changes queues while they work: the size of completion queues under traffic, and
queue pairs that drain.

A line on stdout for each case. The first thing that is not as it must be ends the
program with a status that is not 0.
"""

import random
import time

from pyverbs import enums as e
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

from verbs import ALL, MIB, Memory, check, connect, context, name, pattern, read, write

ctx = context()
pd = PD(ctx)
mem = Memory(2 * MIB)
mr = MR(pd, mem.length, ALL, address=mem.addr)
DEPTH = 32  # of work queues


def connected(scq, rcq, n=1, gid=1):
    """connected makes n pairs of queue pairs."""
    cap = QPCap(max_send_wr=DEPTH, max_recv_wr=DEPTH, max_send_sge=1, max_recv_sge=1)
    pairs = []
    for _ in range(n):
        pair = [QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=scq, rcq=rcq, cap=cap, sq_sig_all=1)) for _ in range(2)]
        for qp, peer in pair, pair[::-1]:
            connect(qp, peer.qp_num, ctx.query_gid(1, gid), gid)
        pairs.append(pair)
    return pairs


def poll(cq, take, done, seconds=60):
    """poll hands completions to take until done."""
    end = time.monotonic() + seconds
    while not done():
        n, wcs = cq.poll(8)
        for wc in wcs[:n]:
            take(wc)
        check(time.monotonic() < end, "no completion within", seconds, "s")


def resize(messages=1500):
    """resize changes both CQs of four senders under their traffic. Receives have
    immediate data, so that their completions take two entries."""
    draw = random.Random(7)
    scq, rcq = CQ(ctx, 4 * DEPTH), CQ(ctx, 4 * DEPTH)
    pairs = connected(scq, rcq, 4)
    receivers = {b.qp_num: i for i, (_, b) in enumerate(pairs)}
    senders = {a.qp_num: i for i, (a, _) in enumerate(pairs)}
    posted, sent, received, armed = [0] * 4, [0] * 4, [0] * 4, [0] * 4
    sizes = {"scq": [], "rcq": []}

    def good(wc, what, counts, index):
        i = index[wc.qp_num]
        check(wc.status == e.IBV_WC_SUCCESS, what, counts[i], "of", i, "ends with", name(e.ibv_wc_status, wc.status))
        check(wc.wr_id == counts[i], what, wc.wr_id, "of", i, "after", counts[i])
        counts[i] += 1
        return i

    def took_send(wc):
        good(wc, "send", sent, senders)

    def took_receive(wc):
        i = good(wc, "receive", received, receivers)
        check(wc.wc_flags & e.IBV_WC_WITH_IMM and wc.imm_data == wc.wr_id << 4 | i, "immediate data", wc.imm_data, "of message", wc.wr_id, "of", i)

    while sum(received) < 4 * messages:
        i = draw.randrange(4)
        a, b = pairs[i]
        while armed[i] < messages and armed[i] - received[i] < DEPTH - 1:
            b.post_recv(RecvWR(wr_id=armed[i], num_sge=1, sg=[SGE(mem.addr + MIB, 4096, mr.lkey)]))
            armed[i] += 1
        for _ in range(draw.randrange(8)):
            if posted[i] < messages and posted[i] - sent[i] < DEPTH - 1 and posted[i] < armed[i]:
                a.post_send(SendWR(wr_id=posted[i], opcode=e.IBV_WR_SEND_WITH_IMM, imm_data=posted[i] << 4 | i,
                                   num_sge=1, sg=[SGE(mem.addr, draw.randrange(1, 4096), mr.lkey)]))
                posted[i] += 1
        # Never smaller than what may be there at once.
        if draw.randrange(12) == 0:
            n = draw.randrange(4 * DEPTH, 2000)
            scq.resize(n)
            sizes["scq"].append(n)
        if draw.randrange(12) == 0:
            n = draw.randrange(4 * DEPTH, 2000)
            rcq.resize(n)
            sizes["rcq"].append(n)
        for cq, take in (scq, took_send), (rcq, took_receive):
            if draw.randrange(3) == 0:
                n, wcs = cq.poll(draw.randrange(1, 16))
                for wc in wcs[:n]:
                    take(wc)
    poll(scq, took_send, lambda: sum(sent) == 4 * messages)
    check(sent == received == posted == [messages] * 4, "sent", sent, "received", received)
    for pair in pairs:
        for qp in pair:
            qp.close()
    scq.close()
    rcq.close()
    print("case resize", sum(received), "messages", len(sizes["scq"]) + len(sizes["rcq"]), "resizes", flush=True)


SLICE = 64 << 10


def drain():
    """drain takes a queue pair to SQD with work in its queue, and back.

    What has begun is done before it is drained. The driver flushes both queues then
    (verbs.c:irdma_modify_qp_roce takes SQD for a state beyond RTS).
    """
    scq, rcq = CQ(ctx, 64), CQ(ctx, 64)
    [(a, b)] = connected(scq, rcq)
    data = pattern(SLICE, 3)
    write(mem.addr, data)
    done, posted = [], 0

    def took(wc):
        check(wc.wr_id == len(done), "write", wc.wr_id, "after", len(done))
        done.append(name(e.ibv_wc_status, wc.status))

    def push(n):
        nonlocal posted
        for _ in range(n):
            wr = SendWR(wr_id=posted, opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(mem.addr, SLICE, mr.lkey)])
            wr.set_wr_rdma(mr.rkey, mem.addr + MIB + posted * SLICE)
            a.post_send(wr)
            posted += 1

    def came(i):
        return read(mem.addr + MIB + i * SLICE, SLICE) == data

    write(mem.addr + MIB, bytes(16 * SLICE))
    a.post_recv(RecvWR(wr_id=99, num_sge=1, sg=[SGE(mem.addr, 64, mr.lkey)]))
    push(8)
    poll(scq, took, lambda: done)
    a.modify(QPAttr(qp_state=e.IBV_QPS_SQD), e.IBV_QP_STATE)
    there = [came(i) for i in range(8)]
    poll(scq, took, lambda: len(done) == 8)
    good = done.count("SUCCESS")
    check(done == ["SUCCESS"] * good + ["WR_FLUSH_ERR"] * (8 - good), "the writes end with", done)
    check(there == [True] * good + [False] * (8 - good), "of", good, "writes when the queue had drained, there were", there)
    state, _ = a.query(e.IBV_QP_STATE)
    check(state.qp_state == e.IBV_QPS_SQD, "state", state.qp_state)
    flushed = []
    poll(rcq, flushed.append, lambda: flushed)
    check(len(flushed) == 1 and flushed[0].wr_id == 99 and flushed[0].status == e.IBV_WC_WR_FLUSH_ERR, "the receive ends with", flushed[0].status)
    push(4)
    n, _ = scq.poll(1)
    check(n == 0 and not came(8), "a queue that had drained was worked on")
    a.modify(QPAttr(qp_state=e.IBV_QPS_RTS), e.IBV_QP_STATE)
    poll(scq, took, lambda: len(done) == 12)
    check(done[8:] == ["SUCCESS"] * 4 and all(came(i) for i in range(8, 12)), "after RTS", done[8:])
    for qp in a, b:
        qp.close()
    scq.close()
    rcq.close()
    print("case drain", good, "of 8 writes before, 4 after", flush=True)


resize()
drain()
mr.close()
mem.close()
pd.close()
ctx.close()
