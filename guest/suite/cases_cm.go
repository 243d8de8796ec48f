// SPDX-License-Identifier: Apache-2.0

package suite

func cmCases() []*Case { return nil }
