// SPDX-License-Identifier: Apache-2.0

package suite

func errorCases() []*Case { return nil }
