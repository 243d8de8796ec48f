# SPDX-License-Identifier: Apache-2.0

"""Registers memory of every kind and uses it through the card.

    regions.py [GROUP…] [few-pbles] [few-maps]

Groups are sizes, huge, access, odp, rereg, dmabuf, windows and invalidate; of
sizes and access there are smaller ones (see GROUPS). With few-pbles regions of
more than 512 MiB may be refused for want of page buffer list entries; with
few-maps there are only such as need few maps of an IOMMU, of which QEMU has 65535
and which it makes one by one while the kernel waits: 32 MiB in pages of 4 KiB,
and 1 GiB as one page.

A line on stdout for each case, and at the end their number. The first thing
that is not as it must be ends the program with a status that is not 0.
"""

import errno
import os
import sys

from pyverbs import enums as e
from pyverbs.mr import MR, MW, DmaBufMR, MWBind, MWBindInfo
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.wr import RecvWR, SGE, SendWR

from verbs import (ALL, GIB, MIB, PAGE, Failed, Memory, Pair, check, context, dmabuf, pattern, read, status, write)

LW, RW, RR = e.IBV_ACCESS_LOCAL_WRITE, e.IBV_ACCESS_REMOTE_WRITE, e.IBV_ACCESS_REMOTE_READ
ATOMIC, BIND, ZERO, ODP = e.IBV_ACCESS_REMOTE_ATOMIC, e.IBV_ACCESS_MW_BIND, e.IBV_ACCESS_ZERO_BASED, e.IBV_ACCESS_ON_DEMAND
RELAXED = e.IBV_ACCESS_RELAXED_ORDERING

KERNEL = tuple(int(n) for n in os.uname().release.split(".")[:2])
PROBE = 2 * PAGE + 777  # more than fits a page or a packet

cases = 0


def case(name, *details):
    global cases
    cases += 1
    print("case", name, *details, flush=True)


class Card:
    """Card is a device with what every case needs of it."""

    def __init__(self):
        self.ctx = context()
        self.pd = PD(self.ctx)
        self.memory = Memory(16 * PAGE)
        self.mr = MR(self.pd, self.memory.length, ALL, address=self.memory.addr)
        self.pair = None
        self.connect()

    def connect(self):
        """connect replaces the queue pairs, after an error for one."""
        if self.pair:
            self.pair.close()
        self.pair = Pair(self.ctx, self.pd)

    def close(self):
        self.pair.close()
        self.mr.close()
        self.memory.close()
        self.pd.close()
        self.ctx.close()

    def scratch(self, n, data=None):
        """scratch is memory of the other side, as an SGE."""
        write(self.memory.addr, data if data else bytes(n))
        return self.memory.addr, n, self.mr.lkey

    def got(self, n):
        return read(self.memory.addr, n)


def use(card, key, to, addr, length, probes, name):
    """use moves data into and out of a region in every way there is.

    to is the address that accesses name, addr where the program sees it.
    """
    pair, mr = card.pair, card.mr
    for seed, off in enumerate(probes):
        n = min(PROBE, length - off)
        here, there = (to + off, n, key), addr + off

        def same(got, want, how):
            check(got == want, name, how, "at", off, "length", n, "other bytes")

        data = pattern(n, seed)
        pair.write(card.scratch(n, data), key, to + off)
        same(read(there, n), data, "RDMA WRITE into the region")
        pair.read(card.scratch(n), key, to + off)
        same(card.got(n), data, "RDMA READ of the region")
        data = pattern(n, seed + 1000)
        write(there, data)
        pair.send(here, card.scratch(n))
        same(card.got(n), data, "SEND from the region")
        data = pattern(n, seed + 2000)
        pair.send(card.scratch(n, data), here)
        same(read(there, n), data, "RECEIVE into the region")
        pair.write(here, mr.rkey, card.scratch(n)[0])
        same(card.got(n), data, "RDMA WRITE from the region")
        data = pattern(n, seed + 3000)
        pair.read(here, mr.rkey, card.scratch(n, data)[0])
        same(read(there, n), data, "RDMA READ into the region")


def probes(length):
    """probes are offsets where walks go wrong: ends, borders of lists of 512."""
    last = max(0, length - PROBE)
    at = {0, last, length // 2, 511 * PAGE, 512 * PAGE - 5, 2 * MIB * 255 - PAGE, 2 * MIB * 256 - 1, last // PAGE * PAGE}
    return sorted(off for off in at if off < length)


def region(card, mem, offset, length, access=ALL, name="region"):
    mr = MR(card.pd, length, access, address=mem.addr + offset)
    check(mr.length == length, name, "has length", mr.length)
    use(card, mr.rkey, mem.addr + offset, mem.addr + offset, length, probes(length), name)
    mr.close()
    case(name, f"length={length} offset={offset}")


def sizes(card, most):
    small = Memory(1100 * PAGE, shuffle=True)
    for offset, length in (
        (0, 1), (PAGE - 1, 1), (0, PAGE), (1, PAGE), (PAGE - 3, 5), (0, 2 * PAGE), (0, 511 * PAGE), (0, 512 * PAGE), (0, 513 * PAGE),
        (123, 512 * PAGE), (4095, 1024 * PAGE + 2),
    ):
        region(card, small, offset, length, name="pages")
    try:
        mr = MR(card.pd, 0, ALL, address=small.addr)
    except PyverbsRDMAError as err:
        check(err.error_code in (errno.EINVAL, errno.ENOMEM), "length 0 is refused with", err.error_code)
        case("length-0", "refused", errno.errorcode[err.error_code])
    else:
        check(False, "a region of length 0 was registered with key", mr.rkey)
    small.close()
    if most < 16 * MIB:
        return
    big = Memory(most, shuffle=True)
    two_levels(card, big)  # before the pool of entries grows
    for offset, length in ((0, 16 * MIB), (777, 64 * MIB), (PAGE, 256 * MIB), (5, most - PAGE), (0, most)):
        if offset + length <= most:
            try:
                region(card, big, offset, length, name="big")
            except PyverbsRDMAError as err:
                check(err.error_code == errno.ENOMEM and "few-pbles" in sys.argv and length > 512 * MIB, "big", err)
                case("big", f"length={length} offset={offset} no-entries")
    big.close()


def two_levels(card, mem):
    """two_levels has free page buffer list entries in two places, neither of
    which holds the whole list of a region, so that the driver makes lists of
    512 and a list of these."""
    half, wedge, length = 130000 * PAGE, 1500 * PAGE, 153600 * PAGE
    if mem.length < length:
        return
    first = MR(card.pd, half, ALL, address=mem.addr)
    between = MR(card.pd, wedge, ALL, address=mem.addr)
    first.close()
    region(card, mem, 9, length - 2 * PAGE, name="two-level")
    between.close()


def huge(card, gigantic):
    two = Memory(16 * MIB, huge=21)
    for offset, length in ((0, 2 * MIB), (0, 16 * MIB), (PAGE + 5, 3 * MIB), (2 * MIB - 1, 2), (777, 16 * MIB - 777)):
        region(card, two, offset, length, name="huge-2M")
    region(card, two, 0, 4 * MIB, ALL | e.IBV_ACCESS_HUGETLB, name="huge-2M-flag")
    two.close()
    if not gigantic:
        return
    try:
        one = Memory(GIB, huge=30)
    except OSError as err:
        case("huge-1G", "none:", err.strerror)
        return
    for offset, length in ((0, GIB), (3 * PAGE + 7, GIB - 4 * PAGE), (GIB - 1, 1)):
        if offset and length > MIB and "few-maps" in sys.argv:
            continue
        region(card, one, offset, length, name="huge-1G")
    one.close()


def allowed(card, mr, mem, zero_based=False):
    """allowed is what a region lets one do, by doing it."""
    n, got = 64, 0
    base = 0 if zero_based else mem.addr

    def attempt(right, operation, *args):
        nonlocal got
        try:
            operation(*args)
            got |= right
        except Failed:
            card.connect()

    attempt(RW, card.pair.write, card.scratch(n, b"w" * n), mr.rkey, base)
    check((read(mem.addr, n) == b"w" * n) == bool(got & RW), "a write that was refused arrived, or the other way round")
    write(mem.addr, b"r" * n)
    attempt(RR, card.pair.read, card.scratch(n), mr.rkey, base)
    check((card.got(n) == b"r" * n) == bool(got & RR), "a read that was refused brought data, or the other way round")
    attempt(LW, card.pair.read, (base, n, mr.lkey), card.mr.rkey, card.scratch(n, b"l" * n)[0])
    check((read(mem.addr, n) == b"l" * n) == bool(got & LW), "a local write that was refused arrived, or the other way round")
    write(mem.addr, b"s" * n)
    card.pair.send((base, n, mr.lkey), card.scratch(n))
    check(card.got(n) == b"s" * n, "a region can always be sent from")
    return got


def access(card, flags):
    """access registers with every combination of the flags."""
    mem = Memory(PAGE)
    for bits in range(1 << len(flags)):
        want = sum(f for i, f in enumerate(flags) if bits >> i & 1)
        try:
            mr = MR(card.pd, PAGE, want, address=mem.addr)
        except PyverbsRDMAError as err:
            check(err.error_code == errno.EINVAL, f"access {want:#x}:", err)
            check(want & (RW | ATOMIC) and not want & LW, f"access {want:#x} is refused")
            case("access", f"{want:#x} refused")
            continue
        check(not want & (RW | ATOMIC) or want & LW, f"access {want:#x}: the right to write remotely without that to write")
        got = want & ALL
        if not want & RELAXED:  # which is between the driver and PCIe
            got = allowed(card, mr, mem, want & ZERO)
            check(got == want & ALL, f"access {want:#x} lets one do {got:#x}")
        mr.close()
        case("access", f"{want:#x} {got:#x}")
    mem.close()


# ib_check_mr_access says so since 6.2.
ODP_REFUSED = errno.EINVAL if KERNEL < (6, 2) else errno.EOPNOTSUPP


def refused(name, want, call, *args, **named):
    got = status(call, *args, **named)
    check(got == want, name, "gives", errno.errorcode.get(got, got), "want", errno.errorcode[want])
    case(name, "refused", errno.errorcode[want])


def odp(card):
    check(card.ctx.query_device_ex().odp_caps.general_caps == 0, "the card offers paging on demand")
    mem = Memory(4 * PAGE)
    refused("odp", ODP_REFUSED, MR, card.pd, 4 * PAGE, ODP | LW, address=mem.addr)
    refused("odp-implicit", ODP_REFUSED, MR, card.pd, 0, ODP | LW, implicit=True)
    mem.close()


def rereg(card):
    old, new = Memory(600 * PAGE, shuffle=True), Memory(700 * PAGE, shuffle=True)
    mr = MR(card.pd, old.length, ALL, address=old.addr)
    key = mr.rkey
    try:
        mr.rereg(e.IBV_REREG_MR_CHANGE_ACCESS, card.pd, old.addr, old.length, LW | RR)
    except PyverbsRDMAError as err:
        check(KERNEL < (6, 5), "rereg:", err)
        case("rereg", "refused", errno.errorcode.get(err.error_code, err.error_code))
        mr.close()
        # The region is as it was, or the card would not have let it go.
        for m in old, new:
            m.close()
        return
    check(mr.rkey == key, "the key changed")
    check(allowed(card, mr, old) == LW | RR, "access did not change")
    case("rereg-access")
    mr.rereg(e.IBV_REREG_MR_CHANGE_ACCESS | e.IBV_REREG_MR_CHANGE_TRANSLATION, card.pd, new.addr + 3, new.length - 5, ALL)
    use(card, mr.rkey, new.addr + 3, new.addr + 3, new.length - 5, probes(new.length - 5), "rereg")
    case("rereg-translation")
    other = PD(card.ctx)
    mr.rereg(e.IBV_REREG_MR_CHANGE_PD, other, 0, 0, 0)
    try:
        card.pair.write(card.scratch(8, b"12345678"), mr.rkey, new.addr + 3)
        check(False, "a region of another PD was written")
    except Failed:
        card.connect()
    case("rereg-pd")
    mr.close()
    other.close()
    old.close()
    new.close()


def dmabufs(card):
    mem = Memory(PAGE)
    if not os.path.exists("/dev/udmabuf"):
        with open("/dev/zero") as f:
            got = status(DmaBufMR, card.pd, PAGE, ALL, dmabuf=f.fileno())
        check(got, "what is no dmabuf was registered")
        case("dmabuf", "no udmabuf;", errno.errorcode.get(got, got))
        return
    for length, offset, size in ((PAGE, 0, PAGE), (3 * MIB, 0, 3 * MIB), (3 * MIB, 5 * PAGE, 2 * MIB)):
        fd, mem = dmabuf(length)
        try:
            mr = DmaBufMR(card.pd, size, ALL, dmabuf=fd, offset=offset)
        except PyverbsRDMAError as err:
            check(KERNEL < (6, 5), "dmabuf:", err)
            case("dmabuf", "refused", errno.errorcode.get(err.error_code, err.error_code))
            os.close(fd)
            mem.close()
            return
        # Accesses begin at the offset, which is what pyverbs asks for.
        use(card, mr.rkey, offset, mem.addr + offset, size, probes(size), "dmabuf")
        mr.close()
        os.close(fd)
        mem.close()
        case("dmabuf", f"length={size} offset={offset}")


def windows(card):
    mem = Memory(600 * PAGE, shuffle=True)
    mr = MR(card.pd, mem.length, ALL | BIND, address=mem.addr)
    if card.ctx.query_device().max_mw == 0:
        refused("window", errno.EOPNOTSUPP, MW, card.pd, e.IBV_MW_TYPE_1)
        mr.close()
        mem.close()
        return
    refused("window-type-2", errno.ENOTSUP, MW, card.pd, e.IBV_MW_TYPE_2)
    mw = MW(card.pd, e.IBV_MW_TYPE_1)
    start, length = mem.addr + 100 * PAGE + 33, 450 * PAGE

    def bind(addr, n, rights):
        card.pair.a.bind_mw(mw, MWBind(MWBindInfo(mr, addr, n, rights), e.IBV_SEND_SIGNALED))
        card.pair.wait()

    def only(addr, n, rights, name):
        for right in RW, RR:
            data = pattern(n, right)
            try:
                write(addr, data)
                sge = card.scratch(n, data[::-1])
                (card.pair.write if right == RW else card.pair.read)(sge, mw.rkey, addr)
                got = read(addr, n) if right == RW else card.got(n)
                check(rights & right and got == (data[::-1] if right == RW else data), name, "right", right)
            except Failed:
                check(not rights & right, name, "is refused right", right)
                card.connect()

    old = mw.rkey
    only(start, 8, 0, "a window before it is bound")
    bind(start, length, RW | RR)
    check(mw.rkey != old, "a bind leaves the key")
    only(start, PROBE, RW | RR, "window")
    only(start + length - PROBE, PROBE, RW | RR, "the window's end")
    only(start - 1, 8, 0, "before the window")
    only(start + length - 4, 8, 0, "over the window's end")
    case("window-1", f"length={length}")
    for rights in RR, RW:
        bind(start + PAGE, 5, rights)
        only(start + PAGE, 5, rights, "rebound")
        only(start, 5, 0, "where it was bound before")
        case("window-1-rebound", f"{rights:#x}")
    bind(start, 0, 0)
    only(start + PAGE, 5, 0, "unbound")
    case("window-1-unbound")
    mw.close()
    check(allowed(card, mr, mem) == ALL, "the region lost rights")
    mr.close()
    mem.close()
    case("window-closed")


def invalidate(card):
    mem = Memory(3 * PAGE)

    def dead(mr, name):
        try:
            card.pair.read(card.scratch(8), mr.rkey, mem.addr)
        except Failed:
            card.connect()
        else:
            check(False, name, "and the key is still good")

    mr = MR(card.pd, mem.length, ALL, address=mem.addr)
    wr = SendWR(opcode=e.IBV_WR_LOCAL_INV)
    wr.imm_data = mr.rkey
    card.pair.a.post_send(wr)
    card.pair.wait()
    dead(mr, "invalidated")
    mr.close()
    case("local-invalidate")

    mr = MR(card.pd, mem.length, ALL, address=mem.addr)
    card.pair.b.post_recv(RecvWR(num_sge=1, sg=[SGE(*card.scratch(8))]))
    wr = SendWR(opcode=e.IBV_WR_SEND_WITH_INV, num_sge=1, sg=[SGE(card.memory.addr + PAGE, 8, card.mr.lkey)])
    wr.imm_data = mr.rkey
    card.pair.a.post_send(wr)
    told = [wc for wc in card.pair.wait(2) if wc.opcode & e.IBV_WC_RECV]
    check(len(told) == 1 and told[0].wc_flags & e.IBV_WC_WITH_INV, "the receiver is not told", told)
    check(told[0].imm_data == mr.rkey, "the receiver is told of key", told[0].imm_data)
    dead(mr, "invalidated by the peer")
    mr.close()
    case("send-with-invalidate")
    mem.close()


GROUPS = {
    "sizes": lambda c: sizes(c, 32 * MIB if "few-maps" in sys.argv else GIB),
    "small-sizes": lambda c: sizes(c, 0),
    "huge": lambda c: huge(c, True),
    "huge-2M": lambda c: huge(c, False),
    "access": lambda c: access(c, (LW, RW, RR, ATOMIC, BIND, ZERO, RELAXED)),
    "some-access": lambda c: access(c, (LW, RW, RR)),
    "odp": odp, "rereg": rereg, "dmabuf": dmabufs, "windows": windows, "invalidate": invalidate,
}


def main():
    groups = [a for a in sys.argv[1:] if not a.startswith("few-")] or ["sizes", "huge", "access", "odp", "rereg", "dmabuf", "windows", "invalidate"]
    card = Card()
    for g in groups:
        GROUPS[g](card)
    card.close()
    print("cases", cases)


main()
