// The Go peer: a process is a goroutine, its mailbox a channel of its own.
//
// Class: green threads. A goroutine has a stack of its own and is preempted after some 10 ms, but it
// shares all memory, and a panic in it ends the whole program.
//
// Idioms: a goroutine ends when its channel is closed ("Go Concurrency Patterns: Pipelines and
// cancellation" of the Go blog); a call is a request that carries a channel for its reply ("Channels of
// channels" in "Effective Go"); skynet follows the Go program of the benchmark atemerev/skynet. A channel
// has the room that its work needs, as in the benchmarks of Go's own runtime package (chan_test.go); it is
// never unbounded. So in send, send-cost and fan a sender waits for a receiver that is `backlog` messages
// behind; in burst, where a queue has to grow, and in social, where shards send to each other and must not wait, the
// mailbox is a slice under a mutex.
//
// The row go-tuned has the same program; the harness sets GOGC=off and GOMEMLIMIT
// (src/runtimes/go.rs). GOMAXPROCS is the number of workers.
//
// The sources are those of a program for Go 1.19, the oldest release that distributions still have.
//
// Implements the workloads of src/workloads/*.rs, in the same order of steps, and prints the line of JSON
// that steps/src/outcome.rs describes. Arguments: WORKLOAD --count N --workers W --set KEY=VALUE…
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

var workloads = map[string]func(settings, *outcome) error{
	"processes":    processes,
	"tasks":        tasks,
	"spawn":        spawn,
	"send":         send,
	"send-cost":    sendCost,
	"call":         call,
	"churn":        churn,
	"sleep":        sleep,
	"pairs":        pairs,
	"ring":         ring,
	"calls":        calls,
	"fan":          fan,
	"burst":        burst,
	"fairness":     fairness,
	"skynet":       skynet,
	"chameneos":    chameneos,
	"big":          big,
	"dictionary":   dictionary,
	"buffer":       buffer,
	"philosophers": philosophers,
	"barber":       barber,
	"smokers":      smokers,
	"banking":      banking,
	"sieve":        sieve,
	"queens":       queens,
	"monitors":     monitors,
	"timers":       timers,
	"selective":    selective,
	"traffic":      traffic,
	"social":       social,
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) == 0 {
		return errors.New("usage: peer WORKLOAD --count N --workers W --set KEY=VALUE…")
	}
	work, known := workloads[arguments[0]]
	if !known {
		return fmt.Errorf("unknown workload %q", arguments[0])
	}
	given, err := parse(arguments[1:])
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(int(given.workers))
	var result outcome
	if err := work(given, &result); err != nil {
		return err
	}
	fmt.Println(result.line())
	return nil
}

// settings are the amount of work, the number of threads, and the workload's own settings.
type settings struct {
	count, workers uint64
	keys           map[string]string
}

func parse(arguments []string) (settings, error) {
	given := settings{count: 1, workers: 1, keys: map[string]string{}}
	for ; len(arguments) >= 2; arguments = arguments[2:] {
		name, text := arguments[0], arguments[1]
		var err error
		switch name {
		case "--count":
			given.count, err = strconv.ParseUint(text, 10, 64)
		case "--workers":
			given.workers, err = strconv.ParseUint(text, 10, 16)
		case "--set":
			key, value, _ := strings.Cut(text, "=")
			given.keys[key] = value
		default:
			err = fmt.Errorf("unknown argument %q", name)
		}
		if err != nil {
			return given, err
		}
	}
	if len(arguments) > 0 {
		return given, fmt.Errorf("no value for %q", arguments[0])
	}
	return given, nil
}

// numbers returns the values of keys that are numbers.
func (given settings) numbers(keys ...string) ([]uint64, error) {
	values := make([]uint64, len(keys))
	for i, key := range keys {
		value, err := strconv.ParseUint(given.keys[key], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the setting %s: %w", key, err)
		}
		values[i] = value
	}
	return values, nil
}

// outcome collects metrics and failed checks.
type outcome struct {
	metrics, failures, quantiles []string
}

// probabilities are those of the quantiles that a run reports of each distribution.
var probabilities = []float64{0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 1}

// distribution records the values that at returns for all probabilities.
func (result *outcome) distribution(name string, at func(probability float64) float64) {
	values := make([]string, len(probabilities))
	for i, probability := range probabilities {
		values[i] = fmt.Sprintf("%.6f", at(probability))
	}
	result.quantiles = append(result.quantiles, fmt.Sprintf("%q:[%s]", name, strings.Join(values, ",")))
}

// metric records a measured value, which is printed as a float.
func (result *outcome) metric(name string, value float64) {
	result.metrics = append(result.metrics, fmt.Sprintf("%q:%.6f", name, value))
}

// check records a failure unless the found number is the expected one.
func (result *outcome) check(what string, found, expected uint64) {
	if found != expected {
		failure := fmt.Sprintf("%s: %d instead of %d", what, found, expected)
		result.failures = append(result.failures, strconv.Quote(failure))
	}
}

func (result *outcome) line() string {
	version := "Go " + strings.TrimPrefix(runtime.Version(), "go")
	return fmt.Sprintf(`{"version":%q,"workers":%d,"metrics":{%s},"failures":[%s],"quantiles":{%s}}`,
		version, runtime.GOMAXPROCS(0), strings.Join(result.metrics, ","),
		strings.Join(result.failures, ","), strings.Join(result.quantiles, ","))
}
