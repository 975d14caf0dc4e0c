// Chaos is a program of the tests. It reads what strace recorded of a server and makes
// the files that a power cut could have left, at many moments and in several ways; each
// is opened as a start does and checked. Or it flips bits of a database. It is a program of its own because under the
// race detector, with which the tests run, SQLite is ten times as slow.
package main

import (
	"encoding/json"
	"flag"
	"log"
	"math/rand/v2"
	"os"
)

var schema string

func main() {
	log.SetFlags(0)
	dir := flag.String("dir", "", "the folder of the database semel.db while it was recorded, as the kernel names it")
	sql := flag.String("schema", "schema.sql", "the schema of a new database")
	states := flag.Int("states", 600, "how many files to look at")
	seed := flag.Uint64("seed", 0, "what chance does")
	work := flag.String("work", os.TempDir(), "a folder for the files")
	flips := flag.Int("flips", 0, "how many bits to flip, one at a time, in the database that is the argument, instead")
	flag.Parse() // the arguments are records, one for each process
	b, err := os.ReadFile(*sql)
	if err != nil {
		log.Fatal(err)
	}
	schema = string(b)
	rng := rand.New(rand.NewPCG(*seed, 1))
	if *flips > 0 {
		write(flip(flag.Arg(0), *work, *flips, rng))
		return
	}
	tr := newTrace(*dir)
	for _, record := range flag.Args() {
		tr.read(record)
	}
	r := cutEverywhere(*work, tr.steps, *states, rng)
	r.Steps = len(tr.steps)
	write(r)
}

func write(report any) {
	if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
		log.Fatal(err)
	}
}
