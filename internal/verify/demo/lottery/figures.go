package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-1795987d/onerun/internal/verify/demo/stage"
)

// table reads back from the database what has come of the rounds.
func (d *director) table(ctx context.Context) (*stage.Table, error) {
	b, err := database{d.run.DB}.books(ctx)
	if err != nil {
		return nil, err
	}
	var table stage.Table
	for round := 1; round <= rounds; round++ {
		by := b.drawnBy(round)
		winners := 0
		for _, w := range b.winners {
			if w.Round == round && slices.Contains(b.draws, w.drawing) {
				winners++
			}
		}
		table.Exactly(fmt.Sprintf("draws of round %d", round), 1, len(by),
			"by "+cmp.Or(strings.ReplaceAll(strings.Join(by, ","), ",replica ", ", "), "nobody"))
		table.Exactly(fmt.Sprintf("winners in round %d", round), winnersPerRound, winners, surplus(winners))
	}
	if d.kill {
		b.addCutShort(&table)
	}
	return &table, nil
}

// drawnBy returns the replicas that have finished a draw of the round.
func (b books) drawnBy(round int) (replicas []string) {
	for _, d := range b.draws {
		if d.Round == round {
			replicas = append(replicas, d.Replica)
		}
	}
	return replicas
}

func surplus(winners int) string {
	if winners <= winnersPerRound {
		return ""
	}
	return fmt.Sprintf("%d too many", winners-winnersPerRound)
}

// addCutShort adds what the replicas that were killed have left behind.
func (b books) addCutShort(table *stage.Table) {
	cutShort, winners := map[drawing]bool{}, 0
	for _, w := range b.winners {
		if !slices.Contains(b.draws, w.drawing) {
			cutShort[w.drawing] = true
			winners++
		}
	}
	table.AtLeast("draws cut short by a kill", rounds, len(cutShort), fmt.Sprintf("their %d winners do not count", winners))
}
