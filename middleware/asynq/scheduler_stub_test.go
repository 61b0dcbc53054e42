package guardasynq_test

func taskProcess() {}
