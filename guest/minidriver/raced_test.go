// SPDX-License-Identifier: Apache-2.0

//go:build race

package minidriver

// raced: the race detector watches, and everything takes several times as long.
const raced = true
