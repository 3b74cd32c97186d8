// `temporal-…`: the development server of Temporal on a file of SQLite, with a worker of its SDK for Go.
//
//   - `temporal-local` has local activities, the SDK's means for short functions in the process of the worker: the results
//     of all five are stored together, with the end of the run. `temporal-activities` has activities, whose results are
//     stored one by one, as the other rows store them.
//   - The first task of a run comes with the reply to its start, and activities with the reply to the task that asks for
//     them, if the worker has room ("eager").
//   - The file has a write-ahead log and `synchronous = FULL`: a commit is one flush. Without the two pragmas the journal
//     is a rollback journal, which is as durable and has more flushes.
package main

import (
	"context"
	"errors"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

const (
	queue   = "orders"
	pollers = 16
	// unlimited is a rate that no run reaches, for the limits of the server.
	unlimited = "1000000"
)

// dynamic are settings of the server: rates for a cluster of many users, and eager activities.
var dynamic = []string{
	"frontend.rps=" + unlimited,
	"frontend.namespaceRPS=" + unlimited,
	"frontend.persistenceMaxQPS=" + unlimited,
	"history.rps=" + unlimited,
	"history.persistenceMaxQPS=" + unlimited,
	"matching.rps=" + unlimited,
	"matching.persistenceMaxQPS=" + unlimited,
	"history.transferProcessorMaxPollRPS=" + unlimited,
	"system.enableActivityEagerExecution=true",
}

type temporal struct {
	server *server
	client client.Client
	worker worker.Worker
}

func openTemporal(place *home, p *plan) (engine, error) {
	arguments := []string{"server", "start-dev", "--headless", "--log-level", "never", "--ip", "127.0.0.1",
		"--port", strconv.Itoa(place.ports[0]), "--db-filename", filepath.Join(place.directory, "data.sqlite"),
		"--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=full"}
	for _, setting := range dynamic {
		arguments = append(arguments, "--dynamic-config-value", setting)
	}
	options := client.Options{
		HostPort: place.address(0),
		Logger:   log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	}
	on := &temporal{}
	var err error
	on.server, err = place.start(exec.Command(filepath.Join(place.programs, "temporal"), arguments...), func() bool {
		on.client, err = client.Dial(options)
		return err == nil
	})
	if err != nil {
		return nil, err
	}
	room := int(p.inflight) + pollers
	on.worker = worker.New(on.client, queue, worker.Options{
		MaxConcurrentWorkflowTaskPollers:        pollers,
		MaxConcurrentActivityTaskPollers:        pollers,
		MaxConcurrentWorkflowTaskExecutionSize:  room,
		MaxConcurrentLocalActivityExecutionSize: room,
		MaxConcurrentActivityExecutionSize:      room,
	})
	for place, name := range stepNames {
		step := func(_ context.Context, input uint64) (uint64, error) { return p.step(input, uint64(place)), nil }
		on.worker.RegisterActivityWithOptions(step, activity.RegisterOptions{Name: name})
	}
	order := order(place.row == "temporal-local")
	on.worker.RegisterWorkflowWithOptions(order, workflow.RegisterOptions{Name: "order"})
	if err := on.worker.Start(); err != nil {
		return nil, errors.Join(err, on.close())
	}
	return on, nil
}

// order returns the workflow, with local activities or with others.
func order(isLocal bool) func(workflow.Context, uint64) (uint64, error) {
	return func(ctx workflow.Context, input uint64) (sum uint64, err error) {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
		ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: time.Minute})
		execute := workflow.ExecuteActivity
		if isLocal {
			execute = workflow.ExecuteLocalActivity
		}
		for _, name := range stepNames {
			var found uint64
			if err := execute(ctx, name, input).Get(ctx, &found); err != nil {
				return 0, err
			}
			sum += found
		}
		return sum, nil
	}
}

func (on *temporal) run(number uint64) (uint64, error) {
	options := client.StartWorkflowOptions{ID: workflowID(number), TaskQueue: queue, EnableEagerStart: true}
	run, err := on.client.ExecuteWorkflow(context.Background(), options, "order", number)
	if err != nil {
		return 0, err
	}
	var found uint64
	err = run.Get(context.Background(), &found)
	return found, err
}

func (on *temporal) read(number uint64) (uint64, error) {
	var found uint64
	err := on.client.GetWorkflow(context.Background(), workflowID(number), "").Get(context.Background(), &found)
	return found, err
}

func (on *temporal) close() error {
	on.worker.Stop()
	on.client.Close()
	return on.server.stop()
}
