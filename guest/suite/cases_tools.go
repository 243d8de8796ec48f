// SPDX-License-Identifier: Apache-2.0

package suite

func toolCases() []*Case { return nil }
