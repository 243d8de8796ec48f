// SPDX-License-Identifier: Apache-2.0

package checks

func init() {
	table = append(table,
		check{4, "conformance", true, "go test ./vfio-user -run TestConformance, by itself and with -server", conformant},
		check{4, "resets-debian-12", true, "every reset during ibv_rc_pingpong -n 1000000, debian-12", resetsOn("debian-12")},
		check{4, "resets-debian-13", true, "every reset during ibv_rc_pingpong -n 1000000, debian-13", resetsOn("debian-13")},
		check{4, "resets-debian-backports", true, "every reset during ibv_rc_pingpong -n 1000000, debian-backports", resetsOn("debian-backports")},
		check{4, "reattach", true, "QEMU killed at a random moment and started again, one vrnic serve", reattach},
		check{4, "iommu-debian-12", false, "vrnic run --iommu -k debian-12 -- ibv_rc_pingpong", iommuOn("debian-12")},
		check{4, "iommu-debian-13", false, "vrnic run --iommu -k debian-13 -- ibv_rc_pingpong", iommuOn("debian-13")},
		check{4, "iommu-debian-backports", true, "vrnic run --iommu -k debian-backports -- ibv_rc_pingpong", iommuOn("debian-backports")},
		check{4, "not-shared", true, "vrnic serve, QEMU with memory that is not shared", notShared},
		check{4, "storm", false, "go test -race ./guest/minidriver -run TestStorm -storm 60s", stormOver},
		check{4, "fuzz", false, "go test -fuzz, 6 targets, 10 minutes each", fuzz},
		check{4, "bench", false, "go test ./test/bench -measure -run TestMeasure", measured},
	)
}
