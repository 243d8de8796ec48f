// SPDX-License-Identifier: Apache-2.0

package devmodel

// UnmapDMA ends it: no access that begins later reaches the range. Settle tells
// when those under way are over.
//
// Behind an IOMMU this follows from what the driver does, and a region that is
// still registered there is told of. What it is told from is unmapping that no
// driver has a part in: of RAM, when QEMU ends or takes some out, and of all that
// a domain has, when it is left or the IOMMU is reset. Those ranges are large
// and not made of one region's pages.
func (d *Device) UnmapDMA(iova, size uint64) error {
	page := isPage(iova, size) || d.mem.IsMap(iova, size)
	if err := d.mem.Unmap(iova, size); err != nil || !page {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rdma.Unmapped(iova, size)
	return nil
}

// isPage tells whether a range is what one entry of an IOMMU's page tables can
// stand for: QEMU tells of a driver's unmapping by those.
func isPage(iova, size uint64) bool {
	const page4K, page2M, page1G = 1 << 12, 1 << 21, 1 << 30
	return (size == page4K || size == page2M || size == page1G) && iova%size == 0
}
