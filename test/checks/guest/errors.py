# SPDX-License-Identifier: Apache-2.0

"""Makes every error that a program can make, and tells what both sides see of it.

    errors.py [--ip6] [CASE…]         both sides in this machine
    errors.py [--ip6] --listen        the responder, for a requester elsewhere
    errors.py [--ip6] --peer HOST [CASE…]

The cases are in errors.json, with what is to be seen. A line of JSON on stdout for
each: what requester and responder saw, in the same form. A queue pair sends three
WRs, of which the second is wrong as a rule, and has one receive buffer; its peer
has three.
"""

import ctypes
import json
import os
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

from verbs import ALL, PAGE, Events, Line, Memory, check, context, name

PORT = 18515
SIZE = 64  # of messages
SMALL = SIZE // 2
QKEY = 0x11223344
SPOILT = "local-qp-operation", "local-qp-operation-write-datagram"
LW, RW, RR = e.IBV_ACCESS_LOCAL_WRITE, e.IBV_ACCESS_REMOTE_WRITE, e.IBV_ACCESS_REMOTE_READ

CASES = {c["case"]: c for c in json.load(open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "errors.json")))}


class Side:
    """Side is a queue pair with its peer elsewhere."""

    def __init__(self, line, ip6):
        self.line, self.ip6 = line, ip6
        self.ctx = context()
        self.events = Events(self.ctx)
        self.gid = self._gid()
        self.pd, self.other = PD(self.ctx), PD(self.ctx)
        self.mem = Memory(4 * PAGE)
        self.mr = MR(self.pd, PAGE, ALL, address=self.mem.addr)

    def _gid(self):
        for i in range(self.ctx.query_port(1).gid_tbl_len):
            gid = str(self.ctx.query_gid(1, i))
            mapped = gid.startswith("0000:0000:0000:0000:0000:ffff:")
            if self.ip6 and gid.startswith("fd77:") or not self.ip6 and mapped:
                return i
        check(False, "no such GID")

    def open(self, case):
        """open makes a queue pair, tells the peer of it and connects it."""
        self.case, self.udp = case, case.endswith("-datagram")
        self.cq = CQ(self.ctx, 64)
        cap = QPCap(max_send_wr=16, max_recv_wr=16, max_send_sge=2, max_recv_sge=1)
        kind = e.IBV_QPT_UD if self.udp else e.IBV_QPT_RC
        self.qp = QP(self.pd, QPInitAttr(qp_type=kind, scq=self.cq, rcq=self.cq, cap=cap))
        self.seen, self.posted = {"send": {}, "recv": {}}, {"send": 0, "recv": 0}
        self.regions = []
        key = {"remote-access-pd": lambda: self.region(ALL, self.other), "remote-access-write": lambda: self.region(LW | RR),
               "remote-access-read": lambda: self.region(LW | RW)}.get(case, lambda: self.mr)()
        self.peer = self.line.swap({"qpn": self.qp.qp_num, "gid": str(self.ctx.query_gid(1, self.gid)), "addr": self.mem.addr, "rkey": key.rkey})
        a = QPAttr(port_num=1, path_mtu=e.IBV_MTU_1024)
        if self.udp:
            a.qkey = QKEY
        else:
            a.qp_access_flags = ALL
            a.ah_attr = self.route()
            a.dest_qp_num = self.peer["qpn"]
            a.max_dest_rd_atomic = a.max_rd_atomic = 4
            a.min_rnr_timer, a.timeout, a.retry_cnt, a.rnr_retry = 12, 14, 2, 1
        a.rq_psn = a.sq_psn = 0xFFFFFE  # it wraps
        self.attr = a
        self.qp.to_init(a)

    def route(self):
        return AHAttr(gr=GlobalRoute(dgid=GID(self.peer["gid"]), sgid_index=self.gid, hop_limit=1), is_global=1, port_num=1)

    def region(self, access, pd=None):
        self.regions.append(MR(pd or self.pd, PAGE, access, address=self.mem.addr))
        return self.regions[-1]

    def close(self):
        self.qp.close()
        self.cq.close()
        for r in self.regions:
            r.close()

    def receive(self, length=SIZE, lkey=None):
        length += 40 if self.udp else 0
        self.qp.post_recv(RecvWR(wr_id=100 + self.posted["recv"], num_sge=1, sg=[SGE(self.mem.addr + PAGE // 2, length, lkey or self.mr.lkey)]))
        self.posted["recv"] += 1

    def post(self, opcode=e.IBV_WR_SEND, sges=None, rkey=None, addr=0, ah=None):
        sges = sges or [(self.mem.addr, SIZE, self.mr.lkey)]
        wr = SendWR(wr_id=self.posted["send"], opcode=opcode, num_sge=len(sges), sg=[SGE(*s) for s in sges])
        if self.udp:
            self.ah = ah or AH(self.pd, attr=self.route())
            self.regions.append(self.ah)
            wr.set_wr_ud(self.ah, self.peer["qpn"], QKEY)
        elif opcode != e.IBV_WR_SEND:
            wr.set_wr_rdma(rkey or self.peer["rkey"], addr or self.peer["addr"])
        self.qp.post_send(wr)
        self.posted["send"] += 1

    def wrong(self):
        """wrong posts what the case is about."""
        here, lkey = self.mem.addr, self.mr.lkey
        sge = lambda a=here, n=SIZE, k=lkey: [(a, n, k)]
        write, read = e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ
        wrongs = {
            "local-length": lambda: self.post(sges=2 * sge(n=1 << 30)),
            "local-length-datagram": lambda: self.post(sges=sge(n=1600)),
            "local-protection-key": lambda: self.post(sges=sge(k=lkey ^ 0x55)),
            "local-protection-bounds": lambda: self.post(sges=sge(a=here + PAGE - SIZE + 1)),
            "local-protection-pd": lambda: self.post(sges=sge(k=self.region(ALL, self.other).lkey)),
            "local-protection-rights": lambda: self.post(read, sge(k=self.region(0).lkey)),
            "local-qp-operation": lambda: self.post(sges=sge(a=here + 0x123, n=0x457)),
            "local-qp-operation-write-datagram": lambda: self.post(sges=sge(a=here + 0x123, n=0x457)),
            "local-qp-operation-datagram": lambda: self.post(ah=AH(self.other, attr=self.route())),
            "remote-access-key": lambda: self.post(write, rkey=self.peer["rkey"] ^ 0x55),
            "remote-access-bounds": lambda: self.post(write, addr=self.peer["addr"] + PAGE - SIZE + 1),
            "remote-access-pd": lambda: self.post(write),
            "remote-access-write": lambda: self.post(write),
            "remote-access-read": lambda: self.post(read),
        }
        wrongs.get(self.case, self.post)()

    def spoil(self):
        """spoil changes the operation of the second WQE in the send queue, and takes
        its valid bit away. It returns what gives that back."""
        # A fragment is valid by its last bit, in a new ring (uk.c:irdma_set_fragment).
        mark = struct.pack("<QII", self.mem.addr + 0x123, self.mr.lkey, 1 << 31 | 0x457)
        found = []
        with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb") as mem:
            for line in maps:
                bounds, rights = line.split()[:2]
                start, end = (int(n, 16) for n in bounds.split("-"))
                if not rights.startswith("rw") or end - start > 64 << 20:
                    continue
                try:
                    mem.seek(start)
                    text = mem.read(end - start)
                except OSError:
                    continue  # of a device
                at = text.find(mark)
                while at >= 0:
                    if at % 32 == 0 and text[at + 28] & 0x3F == 3:  # defs.h:IRDMAQP_OP_RDMA_SEND
                        found.append(start + at)
                    at = text.find(mark, at + 1)
        check(len(found) == 1, "the WQE is at", found)
        header = ctypes.c_uint64.from_address(found[0] + 24)
        code = 0 if self.udp else 0x3B  # IRDMAQP_OP_RDMA_WRITE, or none
        spoilt = header.value & ~(0x3F << 32) | code << 32
        header.value = spoilt & ~(1 << 63)

        def give():
            header.value = spoilt
        return give

    def take(self):
        n, wcs = self.cq.poll(16)
        for wc in wcs[:n]:
            kind = "recv" if wc.wr_id >= 100 else "send"
            i = wc.wr_id % 100
            check(i < self.posted[kind] and i == len(self.seen[kind]), "completion of", kind, i, "after", self.seen)
            status = name(e.ibv_wc_status, wc.status)
            if status in ("GENERAL_ERR", "FATAL_ERR"):  # which may be what libirdma makes of something else
                status += f" {wc.vendor_err:#x}"
            self.seen[kind][i] = status

    def wait(self, sends, recvs, seconds=60):
        end = time.monotonic() + seconds
        while (len(self.seen["send"]) < sends or len(self.seen["recv"]) < recvs) and time.monotonic() < end:
            self.take()

    def state(self):
        attr, _ = self.qp.query(e.IBV_QP_STATE)
        return name(e.ibv_qp_state, attr.qp_state)

    def report(self, want):
        """report waits for what is wanted, and tells what came in the end."""
        self.wait(len(want.get("send", [])), len(want.get("recv", [])))
        got = {}
        event = self.events.next(30 if "event" in want else 0.1)
        if event:
            got["event"] = event
            another = self.events.next(0.1)
            check(not another, "another event", another)
        self.take()
        for kind in "send", "recv":
            if self.seen[kind]:
                got[kind] = [self.seen[kind][i] for i in sorted(self.seen[kind])]
        got["state"] = self.state()
        return got

    def to_error(self):
        self.qp.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)


def requester(side, case):
    side.open(case)
    side.receive()
    side.line.swap("ready")
    if case in SPOILT:
        # Nothing in the queue is looked at before RTS.
        side.qp.to_rtr(side.attr)
        side.post()
        side.wrong()
        give = side.spoil()
        side.qp.to_rts(side.attr)
        side.wait(1, 0)
        give()
        side.post()
    else:
        side.qp.to_rts(side.attr)
        side.post()
        if case not in ("retry-exceeded", "flush", "reflush"):
            side.wait(1, 0)
        side.wrong()
        side.post()
    if case in ("flush", "reflush"):
        side.to_error()
        if case == "reflush":
            for _ in range(2):
                side.wait(side.posted["send"], side.posted["recv"])
                side.state()
                side.post()
                side.receive()
    got = {"case": case, "requester": side.report(CASES[case]["requester"])}
    got["responder"] = side.line.swap("done")
    side.close()
    return got


def responder(side, case):
    side.open(case)
    if case not in ("retry-exceeded", "flush", "reflush"):
        side.qp.to_rts(side.attr)
    side.receive()
    if case != "rnr-exceeded":
        side.receive(*{"remote-invalid-request": (SMALL,), "remote-operation": (SIZE, side.mr.lkey ^ 0x55)}.get(case, ()))
        side.receive()
    side.line.swap("ready")
    side.line.hear()
    if case in ("flush", "reflush"):
        side.to_error()
        if case == "reflush":
            for _ in range(2):
                side.wait(0, side.posted["recv"])
                side.state()
                side.receive()
    side.line.tell(side.report(CASES[case]["responder"]))
    side.close()


def respond(line, ip6):
    side = Side(line, ip6)
    while case := line.hear():
        responder(side, case)


def main():
    args = sys.argv[1:]
    ip6 = "--ip6" in args
    args = [a for a in args if a != "--ip6"]
    if args == ["--listen"]:
        with socket.create_server(("", PORT)) as server:
            respond(Line(server.accept()[0]), ip6)
        return
    if args[:1] == ["--peer"]:
        line, cases = Line(socket.create_connection((args[1], PORT))), args[2:]
    else:
        ours, theirs = socket.socketpair()
        if os.fork() == 0:
            ours.close()
            respond(Line(theirs), ip6)
            return
        theirs.close()
        line, cases = Line(ours), args
    side = Side(line, ip6)
    for case in cases or CASES:
        line.tell(case)
        print(json.dumps(requester(side, case)), flush=True)
    line.tell("")


main()
