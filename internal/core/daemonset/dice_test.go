package daemonset

import (
	"math/rand/v2"

	"pgregory.net/rapid"
)

// dice make the choices of a history or of a set of facts.
type dice interface {
	roll(n int, what string) int // 0 to n-1
}

// rapidDice are rolled again with fewer and smaller eyes when a check fails.
type rapidDice struct{ t *rapid.T }

func (d rapidDice) roll(n int, what string) int { return rapid.IntRange(0, n-1).Draw(d.t, what) }

// seededDice roll the same each time.
type seededDice struct{ *rand.Rand }

func seeded(seed uint64) seededDice { return seededDice{rand.New(rand.NewPCG(seed, 0))} }

func (d seededDice) roll(n int, _ string) int { return d.IntN(n) }

// byteDice roll what a fuzzer writes, and zeros behind its end.
type byteDice struct{ left *[]byte }

func (d byteDice) roll(n int, _ string) int {
	if len(*d.left) == 0 {
		return 0
	}
	b := (*d.left)[0]
	*d.left = (*d.left)[1:]
	return int(b) % n
}

func pick[T any](d dice, what string, of ...T) T { return of[d.roll(len(of), what)] }

// rarely happens once in n times; the smallest roll is that it does not.
func rarely(d dice, n int, what string) bool { return d.roll(n, what) == n-1 }

// shuffled is the input in another order.
func (in Input) shuffled(d dice) Input {
	r := seeded(uint64(d.roll(1<<16, "order")))
	in.Nodes, in.Pods = inOrder(r, in.Nodes), inOrder(r, in.Pods)
	in.Revisions, in.Places = inOrder(r, in.Revisions), inOrder(r, in.Places)
	return in
}

func inOrder[T any](r seededDice, in []T) []T {
	out := append([]T(nil), in...)
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
