// `restate`: the server of Restate with a service of its SDK for Go.
//
//   - A run is a workflow of Restate with the id of the run. One request starts it and waits for its result, which the
//     server keeps for a day, for requests by the id.
//   - A step is a `Run`, whose result is in the server's log before the next step begins.
//   - The log has a flush for each batch of records, which is the default.
//   - There are two partitions instead of 24, so that batches are larger. The server calls the service by HTTP/2; clients
//     call the server by HTTP/1.1, which is faster here than by HTTP/2.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"

	restate "github.com/restatedev/sdk-go"
	"github.com/restatedev/sdk-go/ingress"
	sdk "github.com/restatedev/sdk-go/server"
)

type restateEngine struct {
	server  *server
	service *http.Server
	client  *ingress.Client
}

func openRestate(place *home, p *plan) (engine, error) {
	order := func(ctx restate.WorkflowContext, input uint64) (sum uint64, err error) {
		for i, name := range stepNames {
			step := func(restate.RunContext) (uint64, error) { return p.step(input, uint64(i)), nil }
			found, err := restate.Run(ctx, step, restate.WithName(name))
			if err != nil {
				return 0, err
			}
			sum += found
		}
		return sum, nil
	}
	service := sdk.NewRestate().WithLogger(slog.DiscardHandler, true)
	handler, err := service.Bind(restate.NewWorkflow("Order").Handler("run", restate.NewWorkflowHandler(order))).Handler()
	if err != nil {
		return nil, err
	}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	on := &restateEngine{service: &http.Server{Handler: handler, Protocols: &protocols}}
	listener, err := net.Listen("tcp", place.address(0))
	if err != nil {
		return nil, err
	}
	go on.service.Serve(listener)
	// The package has a program for each kind of machine, and npm installs one of them.
	found, err := filepath.Glob(filepath.Join(place.programs, "node_modules/@restatedev/restate-server-*/bin/restate-server"))
	if err != nil || len(found) == 0 {
		return nil, fmt.Errorf("the server of Restate is not in %s", place.programs)
	}
	process := exec.Command(found[0], "--no-logo", "--listen-mode", "tcp")
	process.Env = append(process.Environ(),
		"RESTATE_BASE_DIR="+place.directory,
		"RESTATE_NODE_NAME=bench",
		"RESTATE_DISABLE_TELEMETRY=true",
		"RESTATE_LOG_FILTER=off",
		"RESTATE_DEFAULT_NUM_PARTITIONS=2",
		"RESTATE_INGRESS__BIND_ADDRESS="+place.address(1),
		"RESTATE_ADMIN__BIND_ADDRESS="+place.address(2),
		"RESTATE_BIND_ADDRESS="+place.address(3),
		"RESTATE_ADVERTISED_ADDRESS=http://"+place.address(3),
	)
	on.server, err = place.start(process, func() bool {
		return answers("http://"+place.address(2)+"/health") && answers("http://"+place.address(1)+"/restate/health")
	})
	if err != nil {
		return nil, err
	}
	if err := register("http://"+place.address(2)+"/deployments", "http://"+place.address(0)); err != nil {
		return nil, errors.Join(err, on.close())
	}
	caller := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: int(p.inflight) + readers}}
	on.client = ingress.NewClient("http://"+place.address(1), ingress.WithHttpClient(caller))
	return on, nil
}

// answers tells whether an address answers that all is well.
func answers(address string) bool {
	response, err := http.Get(address)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// register tells the server where the service is.
func register(admin, service string) error {
	body, err := json.Marshal(map[string]string{"uri": service})
	if err != nil {
		return err
	}
	response, err := http.Post(admin, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		told, _ := io.ReadAll(response.Body)
		return fmt.Errorf("the service cannot be registered: %s: %s", response.Status, told)
	}
	return nil
}

func (on *restateEngine) run(number uint64) (uint64, error) {
	run := ingress.Workflow[uint64, uint64](on.client, "Order", workflowID(number), "run")
	return run.Request(context.Background(), number)
}

func (on *restateEngine) read(number uint64) (uint64, error) {
	run := ingress.WorkflowHandle[uint64](on.client, "Order", workflowID(number))
	return run.Attach(context.Background())
}

func (on *restateEngine) close() error {
	return errors.Join(on.server.stop(), on.service.Close())
}
