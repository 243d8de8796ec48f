// SPDX-License-Identifier: Apache-2.0

package checks

func init() {
	table = append(table,
		check{4, "resets-debian-12", true, "every reset during ibv_rc_pingpong -n 1000000, debian-12", resetsOn("debian-12")},
		check{4, "resets-debian-13", true, "every reset during ibv_rc_pingpong -n 1000000, debian-13", resetsOn("debian-13")},
		check{4, "resets-debian-backports", true, "every reset during ibv_rc_pingpong -n 1000000, debian-backports", resetsOn("debian-backports")},
	)
}
