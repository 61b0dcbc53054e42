// Package guardasynq runs asynq tasks one at a time for each key, across all processes that share
// a store, while the handlers stay as they were.
//
//	key := guardasynq.ByJSON("customer")
//	byCustomer, err := guardasynq.New(g, key, guardasynq.WithClient(client, inspector))
//	mux.Use(byCustomer)
//
//	config := asynq.Config{Concurrency: 20}
//	guardasynq.Configure(&config) // last, so that it wraps your own IsFailure and the like
//	server := asynq.NewServer(redis, config)
//
// asynq delivers at least once: a worker that dies, stalls, runs into its timeout or shuts down
// late leaves a handler running while the task is given to another one, and asynq.Unique guards
// the queue, and not the run. Here a run holds a lease on its key until the handler has returned,
// also after asynq has given the task up. A task that finds its key busy goes back to the queue,
// by default: that costs none of its attempts, keeps no worker busy, and never archives it.
//
// NewScheduler and NewPeriodicTaskManager enqueue the task of each tick once, however many
// replicas of the scheduler there are.
//
// What it does not promise: exactly-once. A process that dies before asynq knows that the task is
// done leaves a task that runs again, and one that is paused for longer than its lease can believe
// for a moment that it still has it. Write guard.Fence(ctx) beside what the handler writes, and
// WithOnce keeps out repeats of what has ended well.
package guardasynq
