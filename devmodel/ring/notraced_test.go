// SPDX-License-Identifier: Apache-2.0

//go:build !race

package ring

const raced = false
