// SPDX-License-Identifier: Apache-2.0

// Command train_text is the trainer of examples/train_text.md: ujoin-run --standalone --nproc-per-node 2 train_text
package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"slices"
	"ujoin.dev/go"
)

var (
	file   = flag.String("text", "/usr/share/common-licenses/GPL-3", "train on this file")
	out    = flag.String("out", "ujoin-example", "where the model goes")
	epochs = flag.Int("epochs", 3, "passes over the text")
	rounds = flag.Int("rounds", math.MaxInt, "at most so many batches of a rank in an epoch")
	seed   = flag.Uint64("seed", 42, "of initial values and of the order of batches")
)

const seen, embed, hidden, rows = 16, 32, 400, 128 // characters before the predicted one; widths; predictions in a batch

func check(err error) {
	if err != nil {
		log.Fatal("train_text: ", err)
	}
}
func must[T any](value T, err error) T { check(err); return value }

// next is splitmix64; stream begins a sequence of its own for each purpose.
func next(state *uint64) uint64 {
	*state += 0x9E3779B97F4A7C15
	z := (*state ^ *state>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}
func stream(purpose uint64) uint64 { state := *seed; return next(&state) ^ purpose }

// batches is the samples from one place to another, shuffled if there is a state.
func batches(from, to int, state uint64) [][]int {
	positions := []int{}
	for i := from + seen; i < to; i++ {
		positions = append(positions, i)
	}
	for i := len(positions); i > 1 && state != 0; i-- {
		j := next(&state) % uint64(i)
		positions[i-1], positions[j] = positions[j], positions[i-1]
	}
	return slices.Collect(slices.Chunk(positions, rows))
}

// multiply adds a b to out, k ascending; a[r][k] lies at r*row + k*column. float32(x * y) keeps Go from fusing.
func multiply(out, a []float32, row, column int, b []float32, height, depth, width int) {
	for r := range height {
		for k := range depth {
			x, to := a[r*row+k*column], out[r*width:][:width]
			for c, y := range b[k*width:][:width] {
				to[c] += float32(x * y)
			}
		}
	}
}

// model has parameters (embedding, weight1, bias1, weight2, bias2), gradients, and what each layer holds for a batch.
type model struct {
	width       [3]int
	value, grad []float32    // all parameters, one after the other, and their gradients
	w, g        [5][]float32 // parts of them
	params      []ujoin.Param
	x           [4][]float32 // of each layer; then the squared ReLU's derivative
}

func newModel(v int) *model {
	total, state := 205200+433*v, stream(0)
	m := &model{width: [3]int{seen * embed, hidden, v}, value: make([]float32, total), grad: make([]float32, total)}
	value, grad, shapes := m.value, m.grad, [5][]int{{v, embed}, {seen * embed, hidden}, {hidden}, {hidden, v}, {v}}
	for i, name := range []string{"embedding", "weight1", "bias1", "weight2", "bias2"} {
		count := shapes[i][0] * append(shapes[i], 1)[1]
		m.w[i], m.g[i], value, grad = value[:count], grad[:count], value[count:], grad[count:]
		m.params = append(m.params, ujoin.NewParam(name, m.w[i], m.g[i], shapes[i]...))
		for j := range m.w[i][:count*(len(shapes[i])-1)] { // of biases none: they begin with 0
			m.w[i][j] = (2*float32(next(&state)>>40)/(1<<24) - 1) / []float32{2, 8, 0, 16}[i]
		}
	}
	return m
}

// forward is the sum of -ln p(right character) over a batch; the last layer then holds the gradient of the mean.
func (m *model) forward(text []byte, batch []int) (loss float64) {
	m.x[0] = nil
	for i := range len(batch) * seen {
		m.x[0] = append(m.x[0], m.w[0][int(text[batch[i/seen]-seen+i%seen])*embed:][:embed]...)
	}
	for l, width := range m.width[1:] {
		m.x[l+1] = slices.Repeat(m.w[2+2*l], len(batch))
		multiply(m.x[l+1], m.x[l], m.width[l], 1, m.w[1+2*l], len(batch), m.width[l], width)
		for i := 0; l == 0 && i < len(m.x[1]); i++ { // squared ReLU
			positive := max(m.x[1][i], 0)
			m.x[1][i], m.x[3] = positive*positive, append(m.x[3][:i], 2*positive)
		}
	}
	for s, p := range slices.Collect(slices.Chunk(m.x[2], m.width[2])) {
		largest, sum, right := slices.Max(p), float32(0), text[batch[s]]
		loss -= float64(p[right] - largest)
		for c := range p {
			p[c] = float32(math.Exp(float64(p[c] - largest)))
			sum += p[c]
		}
		loss += math.Log(float64(sum))
		p[right] -= sum
		for c := range p {
			p[c] /= sum * float32(len(batch))
		}
	}
	return loss
}

// backward computes the gradients of the mean loss after forward, and calls ready as each is complete.
func (m *model) backward(text []byte, batch []int, ready func(int)) {
	clear(m.grad)
	e := m.x[2]
	for l := 1; l >= 0; l-- {
		in, width := m.width[l], m.width[l+1]
		multiply(m.g[2+2*l], []float32{1}, 0, 0, e, 1, len(batch), width)
		ready(2 + 2*l)
		multiply(m.g[1+2*l], m.x[l], 1, in, e, in, len(batch), width)
		ready(1 + 2*l)
		transposed, back := make([]float32, width*in), make([]float32, len(batch)*in)
		for i, x := range m.w[1+2*l] {
			transposed[i%width*in+i/width] = x
		}
		multiply(back, e, width, 1, transposed, len(batch), width, in)
		for i := 0; l == 1 && i < len(back); i++ {
			back[i] *= m.x[3][i]
		}
		e = back
	}
	for i, x := range e {
		m.g[0][int(text[batch[i/embed/seen]-seen+i/embed%seen])*embed+i%embed] += x
	}
	ready(0)
}

func main() {
	flag.Parse()
	text := must(os.ReadFile(*file))
	table, texts := slices.Compact(slices.Sorted(slices.Values(text))), [2][]byte{} // to train on, and held out
	for i, c := range text {
		texts[i/2000%10/9] = append(texts[i/2000%10/9], byte(slices.Index(table, c)))
	}
	check(os.MkdirAll(*out, 0o777))
	ctx := context.Background()
	group := must(ujoin.NewGroup(ctx, nil)) // as ujoin-run says
	rank, size := group.Rank(), group.Size()
	begin := func(r int) int { return len(texts[0]) * (2*size*r + r*(r-1)/2) / (size * (5*size - 1) / 2) }
	m := newModel(len(table))
	ddp := must(ujoin.NewDDP(group, m.params, &ujoin.DDPOptions{Division: ujoin.BySamples}))
	rule := ujoin.AdamW{LR: 0.004, Beta1: 0.9, Beta2: 0.999, Eps: 1e-6, WeightDecay: 0.01}
	opt := must(ujoin.NewZero(group, rule, m.params, nil))
	join := must(ujoin.NewJoin([]ujoin.Joinable{ddp, opt}, nil))
	evaluate := func() float64 { // bits per character on the held-out text; every rank takes each size-th batch
		loss, list := []float64{0}, batches(0, len(texts[1]), 0)
		for i := rank; i < len(list); i += size {
			loss[0] += m.forward(texts[1], list[i])
		}
		check(ujoin.AllReduce(ctx, group, nil, loss, ujoin.Sum))
		return loss[0] / float64(len(texts[1])-seen) / math.Ln2
	}
	fmt.Printf(" held-out text: %.3f bits per character before training\n", evaluate())
	for epoch := range *epochs {
		check(opt.SetHyper(ujoin.AllGroups, "lr", 0.004*float64(*epochs-epoch)/float64(*epochs)))
		check(join.Run(ctx, func() error {
			list := batches(begin(rank), begin(rank+1), stream(uint64(1+65536*epoch+rank)))
			for _, batch := range list[:min(len(list), *rounds)] { // ranks have different numbers of them
				if err := ddp.Iteration(len(batch), func(ready func(int)) error {
					fmt.Printf(" loss %.6f\n", m.forward(texts[0], batch)/float64(len(batch)))
					m.backward(texts[0], batch, ready)
					return nil
				}); err != nil {
					return err
				}
				if err := opt.Step(); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	bytes := must(binary.Append(nil, binary.LittleEndian, m.value))
	fmt.Printf(" parameters sha256 %x\n", sha256.Sum256(bytes))
	check(opt.Save(ctx, *out+"/model.safetensors", &ujoin.SaveOptions{Parts: ujoin.SaveParameters}))
	fmt.Printf(" held-out text: %.3f bits per character\n", evaluate())
	check(group.Close())
}
