// SPDX-License-Identifier: GPL-2.0
/*
 * Registers scattered pages by a fast-register work request, as storage over
 * RDMA does, uses them by rkey and invalidates them.
 *
 *	insmod frmr.ko pages=N [max=M] [wedge=1]
 *
 * The MR is allocated for M pages and maps N. With wedge, two others come before it,
 * of which the second stays: where there are 1024 page buffer list entries, no 601 of
 * them are left in one piece, but 512 and 89 and a list of these are. A queue pair that is connected to
 * itself reads every page and, if all bytes were right, writes every page. Then
 * the MR is invalidated, must be out of reach, and all is done again with other
 * pages. Each step is a line in the kernel log; insmod fails if one was not as it
 * must be.
 */

#include <linux/delay.h>
#include <linux/etherdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/scatterlist.h>
#include <net/ipv6.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>

#define say(fmt, ...) pr_info("frmr: " fmt "\n", ##__VA_ARGS__)

static unsigned int pages = 300;
module_param(pages, uint, 0444);
static unsigned int max;
module_param(max, uint, 0444);
static bool wedge;
module_param(wedge, bool, 0444);

/* One for all work requests: there is one at a time. */
struct wait {
	struct ib_cqe cqe;
	enum ib_wc_status status;
	bool done;
};

struct test {
	struct ib_device *dev;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp;
	struct ib_mr *mr, *wedge;
	struct page **page;
	struct scatterlist *sg;
	int mapped;
	void *buffer;
	u64 dma;
};

static void finished(struct ib_cq *cq, struct ib_wc *wc)
{
	struct wait *w = container_of(wc->wr_cqe, struct wait, cqe);

	w->status = wc->status;
	w->done = true;
}

/* post returns 0 or what the completion says, negative if there was none. */
static int post(struct test *t, struct ib_send_wr *wr)
{
	struct wait w = { .cqe.done = finished };
	unsigned long end = jiffies + 10 * HZ;
	int err;

	wr->wr_cqe = &w.cqe;
	wr->send_flags = IB_SEND_SIGNALED;
	err = ib_post_send(t->qp, wr, NULL);
	if (err)
		return err;
	while (!w.done) {
		ib_process_cq_direct(t->cq, 1);
		if (!w.done && time_after(jiffies, end)) {
			/* Nothing may complete into this stack later. */
			ib_destroy_qp(t->qp);
			t->qp = NULL;
			return -ETIMEDOUT;
		}
		cond_resched();
	}
	return w.status;
}

/* transfer moves one page between the buffer and the MR. */
static int transfer(struct test *t, enum ib_wr_opcode opcode, unsigned int page)
{
	struct ib_sge sge = { .addr = t->dma, .length = PAGE_SIZE, .lkey = t->pd->local_dma_lkey };
	struct ib_rdma_wr wr = {
		.wr = { .opcode = opcode, .sg_list = &sge, .num_sge = 1 },
		.remote_addr = t->mr->iova + (u64)page * PAGE_SIZE,
		.rkey = t->mr->rkey,
	};

	return post(t, &wr.wr);
}

/* pattern is what a page has: 64-bit words that no other page of any round has. */
static u64 pattern(unsigned int round, unsigned int page, unsigned int word)
{
	return ((u64)round << 48 | (u64)page << 16 | word) * 0x9e3779b97f4a7c15ULL;
}

static void fill(u64 *words, unsigned int round, unsigned int page)
{
	unsigned int i;

	for (i = 0; i < PAGE_SIZE / 8; i++)
		words[i] = pattern(round, page, i);
}

static bool same(const u64 *words, unsigned int round, unsigned int page)
{
	unsigned int i;

	for (i = 0; i < PAGE_SIZE / 8; i++)
		if (words[i] != pattern(round, page, i))
			return false;
	return true;
}

static int connect_to_self(struct test *t)
{
	const struct ib_gid_attr *gid = NULL;
	struct ib_qp_attr a = {
		.qp_state = IB_QPS_INIT, .port_num = 1,
		.qp_access_flags = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE,
	};
	struct net_device *ndev;
	u8 mac[ETH_ALEN];
	int i, err;

	for (i = 0; i < 16 && !gid; i++) {
		gid = rdma_get_gid_attr(t->dev, 1, i);
		if (IS_ERR(gid)) {
			gid = NULL;
			continue;
		}
		if (!ipv6_addr_v4mapped((struct in6_addr *)gid->gid.raw)) {
			rdma_put_gid_attr(gid);
			gid = NULL;
		}
	}
	if (!gid)
		return -EADDRNOTAVAIL;
	rcu_read_lock();
	ndev = rdma_read_gid_attr_ndev_rcu(gid);
	if (!IS_ERR(ndev))
		ether_addr_copy(mac, ndev->dev_addr);
	rcu_read_unlock();
	err = IS_ERR(ndev) ? PTR_ERR(ndev) : 0;
	if (err)
		goto out;

	err = ib_modify_qp(t->qp, &a, IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS);
	if (err)
		goto out;

	a.qp_state = IB_QPS_RTR;
	a.path_mtu = IB_MTU_1024;
	a.dest_qp_num = t->qp->qp_num;
	a.rq_psn = 1;
	a.max_dest_rd_atomic = 1;
	a.min_rnr_timer = 12;
	a.ah_attr.type = RDMA_AH_ATTR_TYPE_ROCE;
	rdma_ah_set_port_num(&a.ah_attr, 1);
	rdma_ah_set_grh(&a.ah_attr, (union ib_gid *)&gid->gid, 0, gid->index, 64, 0);
	ether_addr_copy(a.ah_attr.roce.dmac, mac);
	err = ib_modify_qp(t->qp, &a, IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN |
			   IB_QP_RQ_PSN | IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER);
	if (err)
		goto out;

	a.qp_state = IB_QPS_RTS;
	a.sq_psn = 1;
	a.max_rd_atomic = 1;
	a.timeout = 14;
	a.retry_cnt = 7;
	a.rnr_retry = 7;
	err = ib_modify_qp(t->qp, &a, IB_QP_STATE | IB_QP_SQ_PSN | IB_QP_MAX_QP_RD_ATOMIC |
			   IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY);
out:
	rdma_put_gid_attr(gid);
	return err;
}

static int make_qp(struct test *t)
{
	struct ib_qp_init_attr init = {
		.send_cq = t->cq, .recv_cq = t->cq, .qp_type = IB_QPT_RC, .sq_sig_type = IB_SIGNAL_REQ_WR,
		.cap = { .max_send_wr = 8, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	t->qp = ib_create_qp(t->pd, &init);
	if (IS_ERR(t->qp)) {
		int err = PTR_ERR(t->qp);

		t->qp = NULL;
		return err;
	}
	return connect_to_self(t);
}

/*
 * get_pages makes the list of pages: backwards, so that no two of them follow each
 * other in memory.
 */
static int get_pages(struct test *t, unsigned int n)
{
	unsigned int i;

	t->page = kvcalloc(n, sizeof(*t->page), GFP_KERNEL);
	t->sg = kvcalloc(n, sizeof(*t->sg), GFP_KERNEL);
	if (!t->page || !t->sg)
		return -ENOMEM;
	for (i = 0; i < n; i++) {
		t->page[i] = alloc_page(GFP_KERNEL);
		if (!t->page[i])
			return -ENOMEM;
	}
	for (i = 1; i < n; i++) {
		unsigned int j = i;

		for (; j > 0 && page_to_pfn(t->page[j - 1]) < page_to_pfn(t->page[j]); j--)
			swap(t->page[j - 1], t->page[j]);
	}
	sg_init_table(t->sg, n);
	for (i = 0; i < n; i++)
		sg_set_page(&t->sg[i], t->page[i], PAGE_SIZE, 0);
	t->mapped = ib_dma_map_sg(t->dev, t->sg, n, DMA_BIDIRECTIONAL);
	return t->mapped ? 0 : -ENOMEM;
}

static void put_pages(struct test *t, unsigned int n)
{
	unsigned int i;

	if (t->mapped)
		ib_dma_unmap_sg(t->dev, t->sg, n, DMA_BIDIRECTIONAL);
	t->mapped = 0;
	for (i = 0; t->page && i < n; i++)
		if (t->page[i])
			__free_page(t->page[i]);
	kvfree(t->page);
	kvfree(t->sg);
	t->page = NULL;
	t->sg = NULL;
}

/* use registers the pages, moves their data both ways and invalidates the MR. */
static int use(struct test *t, unsigned int round, unsigned int n)
{
	struct ib_reg_wr reg = { .wr.opcode = IB_WR_REG_MR };
	struct ib_send_wr inv = { .opcode = IB_WR_LOCAL_INV };
	unsigned int i, wrong = 0;
	int err;

	err = ib_map_mr_sg(t->mr, t->sg, t->mapped, NULL, PAGE_SIZE);
	if (err != t->mapped) {
		say("round %u: mapped %d of %d segments", round, err, t->mapped);
		return err < 0 ? err : -EINVAL;
	}
	ib_update_fast_reg_key(t->mr, ib_inc_rkey(t->mr->rkey));
	reg.mr = t->mr;
	reg.key = t->mr->rkey;
	reg.access = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE;
	err = post(t, &reg.wr);
	say("round %u: registered %u pages at %#llx, rkey %#x: status %d", round, n, t->mr->iova, t->mr->rkey, err);
	if (err)
		return -EIO;

	for (i = 0; i < n; i++)
		fill(page_address(t->page[i]), round, i);
	for (i = 0; i < n; i++) {
		memset(t->buffer, 0, PAGE_SIZE);
		err = transfer(t, IB_WR_RDMA_READ, i);
		if (err) {
			say("round %u: read of page %u: status %d", round, i, err);
			return -EIO;
		}
		if (!same(t->buffer, round, i))
			wrong++;
	}
	say("round %u: read %u pages, %u wrong", round, n, wrong);
	if (wrong)
		return -EIO; /* who knows where a write would go */

	for (i = 0; i < n; i++) {
		fill(t->buffer, round + 100, i);
		err = transfer(t, IB_WR_RDMA_WRITE, i);
		if (err) {
			say("round %u: write of page %u: status %d", round, i, err);
			return -EIO;
		}
	}
	for (i = 0; i < n; i++)
		if (!same(page_address(t->page[i]), round + 100, i))
			wrong++;
	say("round %u: wrote %u pages, %u wrong", round, n, wrong);
	if (wrong)
		return -EIO;

	inv.ex.invalidate_rkey = t->mr->rkey;
	err = post(t, &inv);
	say("round %u: invalidated: status %d", round, err);
	if (err)
		return -EIO;
	err = transfer(t, IB_WR_RDMA_READ, 0);
	say("round %u: read of what was invalidated: status %d", round, err);
	return err > 0 ? 0 : -EIO;
}

static int drive_wedge(struct test *t)
{
	struct ib_mr *first = ib_alloc_mr(t->pd, IB_MR_TYPE_MEM_REG, 440);

	if (IS_ERR(first))
		return PTR_ERR(first);
	t->wedge = ib_alloc_mr(t->pd, IB_MR_TYPE_MEM_REG, 10);
	ib_dereg_mr(first);
	if (IS_ERR(t->wedge)) {
		int err = PTR_ERR(t->wedge);

		t->wedge = NULL;
		return err;
	}
	return 0;
}

static int run(struct test *t)
{
	unsigned int round;
	int err;

	if (!max)
		max = pages;
	t->pd = ib_alloc_pd(t->dev, 0);
	if (IS_ERR(t->pd))
		return PTR_ERR(t->pd);
	t->cq = ib_alloc_cq(t->dev, NULL, 32, 0, IB_POLL_DIRECT);
	if (IS_ERR(t->cq)) {
		err = PTR_ERR(t->cq);
		goto no_cq;
	}
	err = -ENOMEM;
	t->buffer = (void *)get_zeroed_page(GFP_KERNEL);
	if (!t->buffer)
		goto no_buffer;
	t->dma = ib_dma_map_single(t->dev, t->buffer, PAGE_SIZE, DMA_BIDIRECTIONAL);
	if (ib_dma_mapping_error(t->dev, t->dma))
		goto no_dma;

	err = wedge ? drive_wedge(t) : 0;
	if (err)
		goto no_mr;
	t->mr = ib_alloc_mr(t->pd, IB_MR_TYPE_MEM_REG, max);
	err = PTR_ERR_OR_ZERO(t->mr);
	say("%s allocates an MR of %u pages, of %u that it promises: %d", dev_name(&t->dev->dev), max,
	    t->dev->attrs.max_fast_reg_page_list_len, err);
	if (err)
		goto no_mr;
	for (round = 0; round < 2 && !err; round++) {
		err = make_qp(t);
		if (err)
			say("no queue pair: %d", err);
		else
			err = get_pages(t, pages);
		if (!err)
			err = use(t, round, pages);
		if (t->qp)
			ib_destroy_qp(t->qp);
		t->qp = NULL;
		/* Deregistered before its pages go, as every kernel user does. */
		if (err || round == 1) {
			int gone = ib_dereg_mr(t->mr);

			if (gone)
				say("deregistered: %d", gone);
		}
		put_pages(t, pages);
	}
no_mr:
	if (t->wedge)
		ib_dereg_mr(t->wedge);
	ib_dma_unmap_single(t->dev, t->dma, PAGE_SIZE, DMA_BIDIRECTIONAL);
no_dma:
	free_page((unsigned long)t->buffer);
no_buffer:
	ib_free_cq(t->cq);
no_cq:
	ib_dealloc_pd(t->pd);
	return err;
}

static int result = -ENODEV;

static int found(struct ib_device *dev)
{
	if (dev->ops.driver_id == RDMA_DRIVER_IRDMA && result == -ENODEV) {
		struct test *t = kzalloc(sizeof(*t), GFP_KERNEL);

		if (!t)
			return -ENOMEM;
		t->dev = dev;
		result = run(t);
		kfree(t);
	}
	return -EOPNOTSUPP; /* nothing to be told of later */
}

static struct ib_client client = { .name = "frmr", .add = found };

static int __init frmr_init(void)
{
	int err = ib_register_client(&client);

	if (err)
		return err;
	ib_unregister_client(&client);
	say("result %d", result);
	return result;
}

static void __exit frmr_exit(void)
{
}

module_init(frmr_init);
module_exit(frmr_exit);
MODULE_DESCRIPTION("Fast registration of memory, tried on an irdma device");
MODULE_LICENSE("GPL");
