package guardasynq_test

func schedulerProcess() {}

func taskProcess() {}
