// SPDX-License-Identifier: Apache-2.0

//go:build race

package ring

// raced: pools then forget things on purpose.
const raced = true
