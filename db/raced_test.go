//go:build race

package db_test

func init() { checks = "4" } // the race detector makes each ten times as long
