package password

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func TestAPasswordFitsItsHashAndNoOther(t *testing.T) {
	h := NewHasher()
	hash, err := h.Hash(t.Context(), "correct horsé")
	if err != nil || !strings.HasPrefix(hash, "$argon2id$v=19$m=19456,t=2,p=1$") || strings.Contains(hash, "horse") {
		t.Fatal(hash, err)
	}
	if other := Hash("correct horsé"); other == hash {
		t.Error("two hashes of one password are the same")
	}
	for password, want := range map[string]bool{"correct horsé": true, "correct horse\u0301": true, "correct horse": false, "": false, "correct horsé ": false} {
		if fits, err := h.Fits(t.Context(), password, hash); err != nil || fits != want {
			t.Errorf("%q: %t, %v", password, fits, err)
		}
	}
	parts := strings.Split(hash, "$")
	for _, bad := range []string{
		"", "$", "x", strings.ReplaceAll(hash, "argon2id", "argon2i"), strings.ReplaceAll(hash, "v=19", "v=16"), strings.ReplaceAll(hash, "m=19456", "m=99999999"),
		strings.ReplaceAll(hash, "t=2", "t=0"), strings.ReplaceAll(hash, "p=1", "p=0"), strings.Join(parts[:5], "$") + "$", strings.Join(parts[:4], "$") + "$$" + parts[5], hash + "$",
	} {
		if fits, err := h.Fits(t.Context(), "correct horsé", bad); err != nil || fits {
			t.Errorf("it fits %q, %v", bad, err)
		}
	}
}

func TestNobodysPasswordFitsNothing(t *testing.T) {
	h := NewHasher()
	if fits, err := h.Fits(t.Context(), "", ""); fits || err != nil {
		t.Error(fits, err)
	}
	// The same work: as often, by the same parameters.
	work := func(hash string) int64 {
		before := derived.Load()
		if fits, err := h.Fits(t.Context(), "y", hash); fits || err != nil {
			t.Error(fits, err)
		}
		return derived.Load() - before
	}
	if one, none := work(Hash("x")), work(""); one != none {
		t.Errorf("%d hashes for an account, %d for none", one, none)
	}
	if hash := Hash("x"); strings.Join(strings.Split(nobody(), "$")[:4], "$") != strings.Join(strings.Split(hash, "$")[:4], "$") {
		t.Errorf("%s and %s take different times", nobody(), hash)
	}
}

// X18: what cannot be hashed soon is refused at once, and those who hash are two.
func TestX18OfManyAtOnceSomeAreTurnedAway(t *testing.T) {
	h := NewHasher()
	h.turns <- struct{}{}
	h.turns <- struct{}{} // two hash
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	var refused atomic.Int64
	errs := make(chan error, 200)
	for range 200 {
		wg.Go(func() {
			_, err := h.Hash(ctx, "x")
			if errors.Is(err, ErrBusy) && refused.Add(1) == 200-queue-atOnce {
				cancel() // only those who wait are left
			}
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	n := map[string]int{}
	for err := range errs {
		n[err.Error()]++
	}
	if n[ErrBusy.Error()] != 200-queue-atOnce || n[context.Canceled.Error()] != queue+atOnce {
		t.Errorf("%v", n)
	}
	if len(h.places) != 0 {
		t.Errorf("%d places are not given back", len(h.places))
	}
	<-h.turns
	<-h.turns
	if _, err := h.Hash(t.Context(), "x"); err != nil {
		t.Error(err)
	}
}
