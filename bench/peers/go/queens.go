package main

// board has the columns of its queens, one for each row from the first; to the master, nil is a solution, and
// isDone says that a solver has worked on a board.
type board struct {
	queens []int8
	isDone bool
}

// queens: solvers place queens; they send boards with few queens back to the master, and solve the others.
func queens(given settings, result *outcome) error {
	keys, err := given.numbers("solvers", "threshold")
	if err != nil {
		return err
	}
	size := int(given.count)
	solutions := measure(result, func() uint64 { return distribute(size, int(keys[1]), keys[0]) })
	result.check("solutions", solutions, countSolutions(given.count, 0, 0, 0))
	return nil
}

// distribute is the master: it gives boards to the solvers in turn, until all have been worked on. While it waits
// for room at a solver it takes the messages of others, so that they do not wait for each other.
func distribute(size, threshold int, count uint64) (solutions uint64) {
	inbox := make(chan board, backlog)
	solvers := make([]chan board, count)
	for index := range solvers {
		solvers[index] = make(chan board, queue)
		go solve(size, threshold, solvers[index], inbox)
	}
	waiting := []board{{queens: []int8{}}}
	for open, turn := uint64(1), uint64(0); open > 0; {
		var solver chan<- board
		var first board
		if len(waiting) > 0 {
			solver, first = solvers[turn%count], waiting[0]
		}
		select {
		case solver <- first:
			waiting = waiting[1:]
			turn++
		case message := <-inbox:
			switch {
			case message.isDone:
				open--
			case message.queens == nil:
				solutions++
			default:
				open++
				waiting = append(waiting, message)
			}
		}
	}
	for _, solver := range solvers {
		close(solver)
	}
	return solutions
}

func solve(size, threshold int, boards <-chan board, master chan<- board) {
	for board := range boards {
		if depth := len(board.queens); depth == size {
			master <- solution
		} else if depth >= threshold {
			search(append(make([]int8, 0, size), board.queens...), size, master)
		} else {
			extend(board.queens, size, master)
		}
		master <- done
	}
}

var solution, done = board{}, board{isDone: true}

// extend sends the master each board with a further queen that no other attacks.
func extend(queens []int8, size int, master chan<- board) {
	for column := int8(0); column < int8(size); column++ {
		if isSafe(column, queens) {
			master <- board{queens: append(append(make([]int8, 0, len(queens)+1), queens...), column)}
		}
	}
}

// search sends the master a message for each solution with the queens of a board.
func search(queens []int8, size int, master chan<- board) {
	if len(queens) == size {
		master <- solution
		return
	}
	for column := int8(0); column < int8(size); column++ {
		if isSafe(column, queens) {
			search(append(queens, column), size, master)
		}
	}
}

func isSafe(column int8, queens []int8) bool {
	for distance := 1; distance <= len(queens); distance++ {
		step := int(queens[len(queens)-distance] - column)
		if step == 0 || step == distance || step == -distance {
			return false
		}
	}
	return true
}

// countSolutions counts those of a board whose taken columns and diagonals are sets of bits.
func countSolutions(size, columns, rising, falling uint64) (solutions uint64) {
	all := uint64(1)<<size - 1
	if columns == all {
		return 1
	}
	for free := all &^ (columns | rising | falling); free > 0; free &= free - 1 {
		queen := free & -free
		solutions += countSolutions(size, columns|queen, (rising|queen)<<1, (falling|queen)>>1)
	}
	return solutions
}
