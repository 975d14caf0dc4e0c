package db

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A writer makes texts whose words are as rare and as common as in life: the n-th
// word of its dictionary is n times as rare as the first.
type textWriter struct {
	random *rand.Rand
	zipf   *rand.Zipf
	words  []string
}

func newTextWriter() *textWriter {
	random := rand.New(rand.NewPCG(1, 2))
	w := &textWriter{random: random, zipf: rand.NewZipf(random, 1.1, 4, 29_999)}
	for range 30_000 {
		n := 2 + random.IntN(8)
		word := make([]byte, n)
		for i := range word {
			word[i] = "etaoinshrdlucmfwypvbgkjqxz"[min(random.IntN(26), random.IntN(26))]
		}
		w.words = append(w.words, string(word))
	}
	return w
}

// text is about n bytes, half of them Chinese.
func (w *textWriter) text(n int) string {
	var b strings.Builder
	for b.Len() < n {
		if w.random.IntN(2) == 0 {
			for range 3 + w.random.IntN(12) {
				b.WriteString(w.words[w.zipf.Uint64()] + " ")
			}
			b.WriteString(".\n")
			continue
		}
		for range 4 + w.random.IntN(12) {
			b.WriteRune(rune(0x4E00 + w.zipf.Uint64()%6000))
		}
		b.WriteString("，")
	}
	return b.String()
}

// fillTexts stores n questions with their answers, past the write queue.
func fillTexts(tb testing.TB, d *DB, n int) {
	tb.Helper()
	w := newTextWriter()
	fill(tb, d, n)
	err := d.write(context.Background(), func(tx *Tx) error {
		for _, sql := range []string{`DROP TRIGGER snapshots_no_update`, `DROP TRIGGER messages_no_update`} {
			if _, err := tx.exec(sql); err != nil {
				return err
			}
		}
		for id := int64(1); id <= int64(n); id++ {
			question, answer := w.text(60+w.random.IntN(200)), w.text(300+w.random.IntN(2200))
			if id%997 == 0 {
				answer += " 秃发 ⭐ needle "
			}
			if _, err := tx.exec(`UPDATE messages SET content = ?1 WHERE tx = (SELECT accepted_tx FROM requests WHERE id = ?2)`, question, id); err != nil {
				return err
			}
			if _, err := tx.exec(`UPDATE snapshots SET content = ?1, sha256 = ?2 WHERE request_id = ?3`, answer, SnapshotDigest(answer, "", "[]"), id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
}

// BenchmarkSearch looks for what is rare, common, short and absent among 50,000
// messages of 0.8 KB.
func BenchmarkSearch(b *testing.B) {
	const messages = 50_000
	ctx := context.Background()
	path := filepath.Join(b.TempDir(), "search.db")
	d := openForTest(b, path)
	fillTexts(b, d, messages/2)
	if err := d.Close(); err != nil {
		b.Fatal(err)
	}
	before := fileSize(b, path)
	d = openForTest(b, path)
	defer func() {
		if err := d.Close(); err != nil {
			b.Error(err)
		}
	}()
	b.Run("index", func(b *testing.B) {
		n, slices := 0, 0
		for b.Loop() {
			slices++
			more, err := d.IndexSlice(ctx)
			if err != nil {
				b.Fatal(err)
			}
			if n += sliceMessages; !more {
				break
			}
		}
		b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "messages/s")
		b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(slices), "ms/slice")
	})
	for more := true; more; {
		var err error
		if more, err = d.IndexSlice(ctx); err != nil {
			b.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		b.Fatal(err)
	}
	b.Logf("the file: %d MB of which %d MB are the index", fileSize(b, path)>>20, (fileSize(b, path)-before)>>20)
	d = openForTest(b, path)
	w := newTextWriter()
	for _, c := range []struct{ name, q string }{
		{"rare Chinese", "秃发"}, {"rare emoji", "⭐"}, {"rare word", "needle"}, {"nothing", "xyzzyq 秃水"},
		{"common character", string(rune(0x4E00))}, {"common word", w.words[0]}, {"sign", "，"}, {"one letter", "e"}, {"two letters", "ta"}, {"three letters", "tae"},
		{"common and common", w.words[0] + " " + string(rune(0x4E00))}, {"common and rare", w.words[0] + " 秃发"},
		{"two commons that never meet", string(rune(0x4E00)) + w.words[1] + string(rune(0x4E00))},
		{"middling", w.words[300]}, {"middling and middling", w.words[300] + " " + w.words[400]},
	} {
		b.Run(strings.ReplaceAll(c.name, " ", "_"), func(b *testing.B) {
			found := 0
			for b.Loop() {
				list, _, err := d.Conversations(ctx, LocalUser, List{Query: c.q, Limit: 50})
				if err != nil {
					b.Fatal(err)
				}
				found = len(list)
			}
			b.ReportMetric(float64(found), "found")
		})
	}
	b.Run("list", func(b *testing.B) {
		for b.Loop() {
			if _, _, err := d.Conversations(ctx, LocalUser, List{Limit: 50}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func fileSize(tb testing.TB, path string) int64 {
	tb.Helper()
	fi, err := os.Stat(path)
	if err != nil {
		tb.Fatal(err)
	}
	return fi.Size()
}
