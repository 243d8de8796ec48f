// SPDX-License-Identifier: Apache-2.0

package suite

func regionCases() []*Case { return nil }
