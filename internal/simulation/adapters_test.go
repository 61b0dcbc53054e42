package simulation_test

func (k *worker) request() {}
func (k *worker) task()    {}
