package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The model of the tests is made here: a small Llama with weights from a seeded
// source of chance, in the format of
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. It babbles, but it is
// a model: it reads its prompt, samples each token, and may come upon the token that
// ends an answer.

const (
	ggufWidth   = 64
	ggufHeads   = 4
	ggufKVHeads = 2
	ggufInner   = 128
	ggufBlocks  = 2
	ggufContext = 1024
)

// babble is what the model can say. Characters of several bytes are among it.
var babble = strings.Fields(`river water stone bridge morning harbour lantern garden winter window letter silver
	copper meadow island forest candle mirror orchard thunder valley village winding quiet early
	distant narrow golden heavy gentle hidden ancient simple bright broken and or but with under over
	between behind beyond along towards slowly seldom never always often perhaps here there where
	once upon a the this that every another one two three four five , . ; : ? ! 小河 春天 夜晚 桥 灯 
	你好 再见 。 ， café naïve übrig 🙂 🌊 été`)

// Kinds of tokens.
const (
	ggufNormal  = 1
	ggufUnknown = 2
	ggufControl = 3
	ggufByte    = 6
)

// writeModel writes the model that chance gives for seed and returns its path. One
// that is endless goes on until it is stopped or reaches a limit.
func writeModel(t testing.TB, seed uint64, endless bool) string {
	t.Helper()
	var g gguf
	tokens, kinds := []string{"<unk>", "<s>", "</s>"}, []int32{ggufUnknown, ggufControl, ggufControl}
	for b := range 256 {
		tokens, kinds = append(tokens, fmt.Sprintf("<0x%02X>", b)), append(kinds, ggufByte)
	}
	for _, word := range babble {
		if len(word) > 1 || word == "a" {
			word = "▁" + word
		}
		tokens, kinds = append(tokens, word), append(kinds, ggufNormal)
	}
	g.string("general.architecture", "llama")
	g.string("general.name", "babbler")
	g.uint32("llama.context_length", ggufContext)
	g.uint32("llama.embedding_length", ggufWidth)
	g.uint32("llama.feed_forward_length", ggufInner)
	g.uint32("llama.block_count", ggufBlocks)
	g.uint32("llama.attention.head_count", ggufHeads)
	g.uint32("llama.attention.head_count_kv", ggufKVHeads)
	g.float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
	g.uint32("llama.rope.dimension_count", ggufWidth/ggufHeads)
	g.uint32("llama.vocab_size", uint32(len(tokens)))
	g.string("tokenizer.ggml.model", "llama")
	g.strings("tokenizer.ggml.tokens", tokens)
	g.float32s("tokenizer.ggml.scores", make([]float32, len(tokens)))
	g.int32s("tokenizer.ggml.token_type", kinds)
	g.uint32("tokenizer.ggml.bos_token_id", 1)
	g.uint32("tokenizer.ggml.eos_token_id", 2)
	g.uint32("tokenizer.ggml.unknown_token_id", 0)

	rng := rand.New(rand.NewPCG(seed, 0))
	// The first dimension is the same for each token and no block adds to it: it is
	// the bias that the output of a Llama lacks.
	g.tensor("token_embd.weight", len(tokens), ggufWidth, func(_, column int) float64 {
		if column == 0 {
			return 8
		}
		return rng.NormFloat64()
	})
	g.tensor("output.weight", len(tokens), ggufWidth, func(token, column int) float64 {
		switch {
		case column > 0 && kinds[token] == ggufNormal:
			return rng.NormFloat64() / 4
		case column > 0:
			return 0
		case tokens[token] == "</s>" && !endless:
			return 0.6 // answers of some fifty words
		case kinds[token] != ggufNormal:
			return -8 // half a character is never said
		}
		return 0
	})
	ones := func(int, int) float64 { return 1 }
	g.tensor("output_norm.weight", 1, ggufWidth, ones)
	const kv = ggufWidth / ggufHeads * ggufKVHeads
	for b := range ggufBlocks {
		matrix := func(name string, rows, columns int) {
			g.tensor(fmt.Sprintf("blk.%d.%s.weight", b, name), rows, columns, func(int, int) float64 {
				return rng.NormFloat64() / math.Sqrt(float64(columns))
			})
		}
		into := func(name string, columns int) { // what is added to the dimensions
			g.tensor(fmt.Sprintf("blk.%d.%s.weight", b, name), ggufWidth, columns, func(row, _ int) float64 {
				if row == 0 {
					return 0
				}
				return rng.NormFloat64() / math.Sqrt(float64(columns))
			})
		}
		g.tensor(fmt.Sprintf("blk.%d.attn_norm.weight", b), 1, ggufWidth, ones)
		matrix("attn_q", ggufWidth, ggufWidth)
		matrix("attn_k", kv, ggufWidth)
		matrix("attn_v", kv, ggufWidth)
		into("attn_output", ggufWidth)
		g.tensor(fmt.Sprintf("blk.%d.ffn_norm.weight", b), 1, ggufWidth, ones)
		matrix("ffn_gate", ggufInner, ggufWidth)
		matrix("ffn_up", ggufInner, ggufWidth)
		into("ffn_down", ggufInner)
	}
	path := filepath.Join(t.TempDir(), "babbler.gguf")
	if err := os.WriteFile(path, g.bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A gguf is a file in the making: keys with values, and tensors of float32.
type gguf struct {
	keys, tensors, data bytes.Buffer
	keyCount, count     uint64
}

const ggufAlignment = 32

func put(b *bytes.Buffer, v any) {
	if err := binary.Write(b, binary.LittleEndian, v); err != nil {
		panic(err) // numbers into memory
	}
}

func putString(b *bytes.Buffer, s string) {
	put(b, uint64(len(s)))
	b.WriteString(s)
}

// Types of values.
const (
	ggufUint32  uint32 = 4
	ggufInt32   uint32 = 5
	ggufFloat32 uint32 = 6
	ggufString  uint32 = 8
	ggufArray   uint32 = 9
)

func (g *gguf) key(name string, kind ...uint32) {
	g.keyCount++
	putString(&g.keys, name)
	put(&g.keys, kind)
}

func (g *gguf) string(name, v string) {
	g.key(name, ggufString)
	putString(&g.keys, v)
}

func (g *gguf) uint32(name string, v uint32) {
	g.key(name, ggufUint32)
	put(&g.keys, v)
}

func (g *gguf) float32(name string, v float32) {
	g.key(name, ggufFloat32)
	put(&g.keys, v)
}

func (g *gguf) strings(name string, list []string) {
	g.key(name, ggufArray, ggufString)
	put(&g.keys, uint64(len(list)))
	for _, v := range list {
		putString(&g.keys, v)
	}
}

func (g *gguf) float32s(name string, list []float32) {
	g.key(name, ggufArray, ggufFloat32)
	put(&g.keys, uint64(len(list)))
	put(&g.keys, list)
}

func (g *gguf) int32s(name string, list []int32) {
	g.key(name, ggufArray, ggufInt32)
	put(&g.keys, uint64(len(list)))
	put(&g.keys, list)
}

// tensor adds a matrix, a vector when it has one row.
func (g *gguf) tensor(name string, rows, columns int, value func(row, column int) float64) {
	g.count++
	putString(&g.tensors, name)
	dimensions := []uint64{uint64(columns), uint64(rows)} // the innermost first
	if rows == 1 {
		dimensions = dimensions[:1]
	}
	put(&g.tensors, uint32(len(dimensions)))
	put(&g.tensors, dimensions)
	const float32Tensor uint32 = 0
	put(&g.tensors, float32Tensor)
	put(&g.tensors, uint64(g.data.Len()))
	for row := range rows {
		for column := range columns {
			put(&g.data, float32(value(row, column)))
		}
	}
	align(&g.data)
}

func align(b *bytes.Buffer) {
	for b.Len()%ggufAlignment > 0 {
		b.WriteByte(0)
	}
}

func (g *gguf) bytes() []byte {
	var b bytes.Buffer
	b.WriteString("GGUF")
	put(&b, uint32(3))
	put(&b, g.count)
	put(&b, g.keyCount)
	b.Write(g.keys.Bytes())
	b.Write(g.tensors.Bytes())
	align(&b)
	b.Write(g.data.Bytes())
	return b.Bytes()
}
