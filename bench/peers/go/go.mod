module throng-bench-peer

// The version chooses the runtime's timers: from this one on, a timer that is not needed costs no memory
// until it fires. The sources also compile with Go 1.19, which has no choice.
go 1.23
