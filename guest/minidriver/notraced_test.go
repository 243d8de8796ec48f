// SPDX-License-Identifier: Apache-2.0

//go:build !race

package minidriver

const raced = false
