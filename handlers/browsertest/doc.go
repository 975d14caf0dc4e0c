// Package browsertest drives the real server with a real browser: Chromium on
// one side, the handlers or the built binary on the other, and between them a
// proxy that loses what it is told to lose.
//
// After every scenario the page must show what the database holds, and the
// database must hold what the contract promises; see (*rig).check.
package browsertest
