//go:build race

package engine

func init() { *deathsFlag = 1 } // the race detector makes each state ten times as long
