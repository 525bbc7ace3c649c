// SPDX-License-Identifier: Apache-2.0

package ujoin

// For tests of what cannot be seen from outside.

// DroppedForTest is how many works of the group were collected without Wait.
func DroppedForTest(g *Group) int64 { return g.dropped.Load() }

// CheckABIForTest is what the package does at the start of the program with the library's number.
var CheckABIForTest = checkABI
