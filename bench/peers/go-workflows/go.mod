module throng-bench-go-workflows

go 1.26.0

require (
	github.com/restatedev/sdk-go v1.2.0
	go.temporal.io/sdk v1.51.0
)
